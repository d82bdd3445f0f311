"""Monitors the vehicle, its radio and its commands: faults, and whether commands may pass; pure."""

import math
from collections import deque
from collections.abc import Sequence

from testudo_hardware.links.crazyflie.vehicle_messages import Info, RadioSample

BLOCK_SILENT_S, RADIO_SILENT_S = 0.2, 0.5
LAND_AFTER_S = 1.0  # time without the log block after which the drone lands
COMMANDS_LAND_S = 5.0  # time without a command after which the drone lands
HEALTHY_S = 1.0  # time without a fault before commands pass again
EMPTY_V, EMPTY_S, LOW_S = 3.0, 2.0, 15.0
"""It lands below EMPTY_V for EMPTY_S, or below the voltage of the robot file for LOW_S. The supervisor of the policy
lands it after five seconds, through the shield: this is the fallback."""
_REMEMBERED_S = 3.0
_FOREIGN_WITHIN_S, _FOREIGN_COUNT = 0.5, 3
_UPLINK_S = 0.5
_SAME_M_S = 0.0021
_SETTLE_S = 0.5


class LinkMonitor:
    """State and faults of one vehicle; times are seconds on one clock that the caller provides."""

    def __init__(self, dead_man_s: float, battery_v: tuple[float, float]) -> None:
        """Start without data; ``battery_v``: voltages below which it does not take off, and below which it lands."""
        self.code, self.detail = "", ""
        self.stopped = self.restarted = False
        """An emergency stop was requested; the vehicle was switched off and on."""
        self.must_land = False
        self._dead_man_s = dead_man_s
        self._sample: RadioSample | None = None
        self._fresh = False
        self._lost = ""
        self._heard_s = self._commanded_s = -math.inf
        self._phase_s = self._trouble_s = -math.inf
        self._trouble = ""
        self._arm_v, self._land_v = battery_v
        self._low_since_s: float | None = None
        self._empty_since_s: float | None = None
        self._sent: deque[tuple[float, tuple[float, ...]]] = deque()
        self._foreign: deque[float] = deque()
        self._followed_s = -math.inf

    @property
    def info(self) -> Info | None:
        """Return the supervisor's flags; None if they are not fresh."""
        return self._sample.info if self._fresh and self._sample else None

    @property
    def battery_v(self) -> float:
        """Return the last voltage; NaN before the first."""
        return self._sample.battery_v if self._sample else math.nan

    @property
    def battery_is_low(self) -> bool:
        """Return whether the voltage is too low for take-off."""
        return self._sample is not None and self._sample.battery_v < self._arm_v

    @property
    def height_m(self) -> float:
        """Return the last height; 0 before the first."""
        return self._sample.position_world[2] if self._sample else 0.0

    def info_since(self, time_s: float) -> Info | None:
        """Return the flags if they were measured after a time."""
        info, sample = self.info, self._sample
        return info if sample is not None and sample.stamp_s > time_s else None

    def hear(self, now_s: float) -> None:
        """Take the arrival of any packet."""
        self._heard_s = now_s

    def hear_command(self, now_s: float) -> None:
        """Take the arrival of a command."""
        self._commanded_s = now_s

    def commanded_after(self, time_s: float) -> bool:
        """Return whether a command came after a time."""
        return self._commanded_s > time_s

    def lose(self, reason: str) -> None:
        """Take the end of the link."""
        self._lost = reason or "no reason given"

    def begin_phase(self, now_s: float) -> None:
        """Forget foreign set-points: those of another phase are no fault."""
        self._phase_s = self._followed_s = now_s
        self._foreign.clear()

    def sent(self, velocity_world: Sequence[float], now_s: float) -> None:
        """Remember a set-point that was sent."""
        self._sent.append((now_s, tuple(velocity_world)))
        while self._sent[0][0] < now_s - _REMEMBERED_S:
            self._sent.popleft()

    def see(self, sample: RadioSample, *, streaming: bool) -> None:
        """Take what the vehicle logged; ``streaming``: set-points are sent."""
        self._sample = sample
        self.hear(sample.received_s)
        now_s = sample.received_s
        if not streaming or now_s - self._phase_s < _SETTLE_S:
            self._followed_s = now_s
            return
        match_s = max((at_s for at_s, velocity in self._sent if _same(velocity, sample.target_velocity)), default=None)
        if match_s is not None:
            self._followed_s = max(self._followed_s, match_s)
        elif any(sample.target_velocity):  # standstill is what an onboard brake commands
            self._foreign.append(now_s)

    def judge(self, now_s: float, *, in_air: bool, streaming: bool) -> None:
        """Find faults; ``in_air``: the drone should be flying; ``streaming``: set-points are sent."""
        sample = self._sample
        age_s = now_s - sample.received_s if sample else math.inf
        self._fresh = age_s < BLOCK_SILENT_S
        while self._foreign and self._foreign[0] < now_s - _FOREIGN_WITHIN_S:
            self._foreign.popleft()
        self._watch_battery(now_s)
        self.code, self.detail = self._find(now_s, age_s, in_air=in_air, streaming=streaming)
        if self.code:
            self._trouble, self._trouble_s = self.code, now_s
        silent_s = now_s - max(self._commanded_s, self._phase_s)
        self.must_land = self.code == "battery" or age_s > LAND_AFTER_S or (streaming and silent_s > COMMANDS_LAND_S)

    def holds(self, now_s: float) -> str:
        """Return the code of the fault that blocks commands now or until recently; empty if they pass."""
        return self.code or (self._trouble if now_s - self._trouble_s < HEALTHY_S else "")

    def _find(self, now_s: float, age_s: float, *, in_air: bool, streaming: bool) -> tuple[str, str]:
        """Return the code of the worst fault and the detail of its sentence."""
        if self._lost:
            return "lost", self._lost
        if self.restarted or self.stopped:
            return "restarted" if self.restarted else "emergency", ""
        if now_s - self._heard_s > RADIO_SILENT_S and math.isfinite(self._heard_s):
            return "radio_silent", f"{now_s - self._heard_s:.1f}"
        if age_s > BLOCK_SILENT_S and math.isfinite(age_s):
            return "block_silent", f"{age_s:.1f}"
        return self._find_in_sample(now_s, in_air=in_air, streaming=streaming)

    def _find_in_sample(self, now_s: float, *, in_air: bool, streaming: bool) -> tuple[str, str]:
        if self._sample is None:
            return "", ""
        info, silent_s = self._sample.info, now_s - max(self._commanded_s, self._phase_s)
        found = (
            ("locked", info.locked, ""),
            ("tumbled", info.tumbled or info.crashed, ""),
            ("disarmed", in_air and not info.can_fly, ""),
            ("second_commander", streaming and len(self._foreign) >= _FOREIGN_COUNT, ""),
            ("uplink_silent", streaming and now_s - self._followed_s > _UPLINK_S and bool(self._sent), ""),
            ("battery", in_air and self._is_empty(now_s), f"{self._sample.battery_v:.2f}"),
            ("commands_silent", streaming and silent_s > self._dead_man_s, f"{silent_s:.1f}"),
        )
        return next(((code, detail) for code, holds, detail in found if holds), ("", ""))

    def _watch_battery(self, now_s: float) -> None:
        voltage = math.inf if self._sample is None else self._sample.battery_v
        low, empty = voltage < self._land_v, voltage < EMPTY_V
        self._low_since_s = _since(self._low_since_s, now_s) if low else None
        self._empty_since_s = _since(self._empty_since_s, now_s) if empty else None

    def _is_empty(self, now_s: float) -> bool:
        since = ((self._low_since_s, LOW_S), (self._empty_since_s, EMPTY_S))
        return any(begin_s is not None and now_s - begin_s >= long_s for begin_s, long_s in since)


def _since(begin_s: float | None, now_s: float) -> float:
    return now_s if begin_s is None else begin_s


def _same(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(abs(a - b) <= _SAME_M_S for a, b in zip(one, other, strict=True))
