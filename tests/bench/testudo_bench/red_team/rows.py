"""The rows of the red team: each an attack, the defence that answers it, and the control without that defence."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from testudo_bench.red_team import intruder
from testudo_bench.red_team.intruder import Intruder
from testudo_bench.red_team.signed_network import Defences


class Effect(StrEnum):
    """What must be seen in the control."""

    CONTACT = "contact"  # contacts at own speed
    STANDS = "stands"  # the robots drive less far
    NONE = "none"  # without a control: the topic has no defence, and can only stop robots


@dataclass(frozen=True)
class Row:
    """One attack."""

    name: str
    what: str
    attack: Callable[[Intruder], None] | None
    defence: str
    control: Defences | None
    effect: Effect
    size: int = 2
    hunter_speed: float = 0.0
    """Of the top speed of the robots; 0: there is no hunter."""
    begins_s: tuple[float, float] = (0.0, 1.5)
    """The intruder begins at a moment between these; at 0 it is there before the robots speak."""
    message_s: float = 0.06  # greatest delay of announcements
    reserves: bool = True
    """Without it layer 1 alone keeps robots apart, so that a control shows what a lie about places does."""
    layer1: bool = True
    """Without it reservations alone keep robots apart, so that a control shows what a lie about them does."""
    gives_way: bool = True
    """Without it robots drive straight at each other, without the deadlock rule, so that a control shows contacts."""


HUNTERS = (1.0, 1.5, 2.0)  # speeds of the hunter, of the top speed of the robots
_NO_KEY = Defences(key=False)
_OF_RESERVATIONS = ("reserved segment", "requested segment", "acknowledgement")
_CONTROLS = {
    "epoch": Defences(key=False, takeover=False),
    "requested segment": Defences(key=False, in_space=False),
    "acknowledgement": Defences(key=False, in_space=False),
}
"""Where a second defence holds without codes, it is out as well."""
_LIES = {
    "place": Effect.CONTACT,
    "reserved segment": Effect.CONTACT,
    "requested segment": Effect.CONTACT,
    "acknowledgement": Effect.CONTACT,
    "age": Effect.STANDS,
    "number": Effect.STANDS,
    "epoch": Effect.STANDS,
    "stamp": Effect.STANDS,
}


def rows() -> tuple[Row, ...]:
    """Return all rows."""
    key = "code"
    return (
        Row("nobody", "no intruder", None, "", None, Effect.NONE),
        Row("nobody, straight", "no intruder, no deadlock rule", None, "", None, Effect.NONE, gives_way=False),
        Row("driver", "commands to the drivers", intruder.command_drivers, key, _NO_KEY, Effect.CONTACT),
        Row(
            "guard",
            "commands and announcements to the guards, as the policies",
            intruder.command_guards,
            key,
            _NO_KEY,
            Effect.CONTACT,
        ),
        Row(
            "odometry",
            "poses that drift apart",
            intruder.shift_poses,
            key,
            _NO_KEY,
            Effect.CONTACT,
            gives_way=False,
        ),
        Row("identity", "a second process of each robot", intruder.speak_as_peer, key, _NO_KEY, Effect.CONTACT),
        *(_false(field) for field in _LIES),
        Row(
            "replay",
            "replays, as sent and renumbered",
            intruder.replay,
            key,
            _NO_KEY,
            Effect.CONTACT,
            begins_s=(1.8, 2.4),  # while robots drive at each other: earlier it can only prevent that they start
            gives_way=False,
        ),
        Row(
            "former run",
            "messages of a former run with stamps that fit",
            intruder.replay_former_run,
            "challenge",
            Defences(challenge=False),
            Effect.CONTACT,
            begins_s=(0.0, 0.0),
        ),
        Row("lost", "declarations that robots are lost", intruder.declare_lost, key, _NO_KEY, Effect.CONTACT),
        Row("status", "reports of the guards", intruder.report_as_guard, key, _NO_KEY, Effect.STANDS),
        Row("everything", "all of these at once", intruder.do_everything, key, _NO_KEY, Effect.CONTACT),
        Row(
            "services",
            "arm, start, stop, deactivate",
            intruder.use_services,
            "shield",
            Defences(shield=False),
            Effect.CONTACT,
            gives_way=False,
        ),
        Row("estop", "the emergency stop", intruder.press_stop, "none", None, Effect.STANDS),
        *(_hunter(speed, layer1=layer1) for layer1 in (True, False) for speed in HUNTERS),
    )


def _false(field: str) -> Row:
    """Return a row with announcements of which one field is wrong."""
    effect = _LIES[field]
    return Row(
        f"false {field}",
        f"announcements with a wrong {field}",
        intruder.lie_in(field),
        "code",
        _CONTROLS.get(field, _NO_KEY),
        effect,
        message_s=0.3 if field in _OF_RESERVATIONS else 0.06,
        layer1=field not in _OF_RESERVATIONS,
        gives_way=field not in _OF_RESERVATIONS,
        reserves=field != "place",
    )


def _hunter(speed: float, *, layer1: bool) -> Row:
    """Return a row with an untrusted body that drives at the nearest robot; without layer 1, R5 alone answers it.

    Where it is faster than the robots, the fleet file says so.
    """
    defence, control = "R5 growth", Defences(growth=False)
    if layer1:
        defence, control = (
            ("shield", Defences(shield=False)) if speed < HUNTERS[-1] else ("stated speed", Defences(told=False))
        )
    return Row(
        f"hunter {speed:g}" + ("" if layer1 else ", R5 alone"),
        f"an untrusted body at {speed:g} of the robots' speed" + ("" if layer1 else ", without layer 1"),
        None,
        defence,
        control,
        Effect.CONTACT,
        hunter_speed=speed,
        layer1=layer1,
    )
