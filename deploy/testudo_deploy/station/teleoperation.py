"""Teleoperation of robots by keys of a terminal or axes of a joystick; pure, on one injected clock.

A terminal reports no release of a key: a key counts for a moment, and while it repeats. Nothing is remembered beyond
that, so that a lost terminal, connection or joystick is a command of zero.
"""

import math
from collections.abc import Mapping, Sequence

from testudo_hardware.errors import TestudoError
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

FIRST_S, REPEATED_S = 0.5, 0.25
"""How long a key counts after it went down, until it begins to repeat, and after each repetition."""
JOY_SILENT_S = 0.3  # an older message of a joystick counts as let go
DEAD_BAND = 0.1  # of an axis at rest
SHARE, _STEP = 0.3, 0.1  # of the robot's limits, at first and for each press of + and -
_ARROWS = {"A": "w", "B": "s", "C": "d", "D": "a"}
NEXT = "\t"
_ENDS = ("q", "\x03", "\x04")
_PLAIN = {"w": (0, 1.0), "s": (0, -1.0), "a": (1, 1.0), "d": (1, -1.0), "r": (2, 1.0), "f": (2, -1.0)}
"""By key: component of the command, and its sign."""


def keys_of(text: str) -> list[str]:
    """Return the keys in what a terminal sent; arrows are w, a, s and d, and an unknown sequence is a space."""
    found: list[str] = []
    rest = text
    while rest:
        if rest[0] == "\x1b" and rest[1:2] in ("[", "O") and rest[2:]:
            found.append(_ARROWS.get(rest[2], " "))
            rest = rest[3:]
            continue
        found.append(rest[0].lower())
        rest = rest[1:]
    return found


def is_end(key: str) -> bool:
    """Return whether a key ends the teleoperation."""
    return key in _ENDS


class Teleoperation:
    """The command of one robot (D,): wheeled (forward [m/s], turn [rad/s]), else a velocity in the fleet's frame."""

    def __init__(self, spec: RobotSpec, speed_m_s: float | None = None) -> None:
        """Begin with zero; ``speed_m_s`` is that of a key or of a full axis, by default `SHARE` of the limit.

        Raises:
            TestudoError: the speed is not above 0 and at most the limit of the robot file.
        """
        limit_m_s = spec.speed_limit_m_s
        if speed_m_s is not None and not 0 < speed_m_s <= limit_m_s:  # NaN, too
            raise TestudoError(
                f"--speed: found {speed_m_s:g} m/s, expected above 0 up to {limit_m_s:g} m/s, the limit of {spec.name}"
            )
        self.share = SHARE if speed_m_s is None else speed_m_s / limit_m_s
        is_wheeled = spec.kind == DIFFERENTIAL_DRIVE
        self._limits = (limit_m_s, spec.turn_rate_limit_rad_s) if is_wheeled else (limit_m_s,) * spec.dimension
        self._until_s: dict[str, float] = {}
        """By key: until when it counts."""
        self._axes: tuple[tuple[float, ...], float] = ((), -math.inf)

    @property
    def rest(self) -> tuple[float, ...]:
        """Return the command (D,) to stand."""
        return (0.0,) * len(self._limits)

    @property
    def speed_m_s(self) -> float:
        """Return the speed of a key, or of a full axis."""
        return self.share * self._limits[0]

    def press(self, key: str, now_s: float) -> None:
        """Take a key; one that has no meaning stops."""
        if key in ("+", "-"):
            self.share = min(max(self.share + (_STEP if key == "+" else -_STEP), _STEP), 1.0)
            return
        axis = _PLAIN.get(key)
        if axis is None or axis[0] >= len(self._limits):
            self._until_s.clear()
            return
        repeats = self._until_s.get(key, -math.inf) > now_s
        self._until_s[key] = now_s + (REPEATED_S if repeats else FIRST_S)

    def move(self, axes: Sequence[float], now_s: float) -> None:
        """Take the axes (D,) of a joystick, each from -1 to 1."""
        self._axes = (tuple(_axis(value) for value in axes), now_s)

    def command(self, now_s: float) -> tuple[float, ...]:
        """Return the command (D,) now; zero without a key and without a message of the joystick."""
        shares = [0.0] * len(self._limits)
        axes, moved_s = self._axes
        if now_s - moved_s < JOY_SILENT_S:
            shares[: len(axes)] = axes
        for key, until_s in self._until_s.items():
            if until_s > now_s:
                component, sign = _PLAIN[key]
                shares[component] += sign
        return tuple(
            self.share * limit * min(max(share, -1.0), 1.0) for share, limit in zip(shares, self._limits, strict=True)
        )


class Hands:
    """Robots of which one is driven at a time; the others are told to stand."""

    def __init__(self, hands: Mapping[str, Teleoperation]) -> None:
        """Begin with the first robot."""
        self._hands, self._order = dict(hands), list(hands)

    @property
    def driven(self) -> str:
        """Return the name of the robot that is driven."""
        return self._order[0]

    @property
    def hand(self) -> Teleoperation:
        """Return the hand on that robot."""
        return self._hands[self.driven]

    def press(self, key: str, now_s: float) -> None:
        """Take a key; the one for the next robot first stops this one."""
        if key != NEXT:
            self.hand.press(key, now_s)
            return
        self.hand.press(" ", now_s)
        self._order.append(self._order.pop(0))

    def commands(self, now_s: float) -> dict[str, tuple[float, ...]]:
        """Return the command (D,) of each robot."""
        return {name: hand.command(now_s) if name == self.driven else hand.rest for name, hand in self._hands.items()}


def joystick_axes(axes: Sequence[float], chosen: Sequence[int]) -> tuple[float, ...]:
    """Return the chosen axes of a joystick's message; 0 for one that it lacks."""
    return tuple(float(axes[number]) if number < len(axes) else 0.0 for number in chosen)


def _axis(value: float) -> float:
    """Return an axis without its dead band; 0 for what is not finite."""
    if not math.isfinite(value) or abs(value) < DEAD_BAND:
        return 0.0
    return min(max(value, -1.0), 1.0)
