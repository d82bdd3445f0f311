"""Compares what a robot does with the intervals of its file while it drives, and what follows when it is outside.

Lag, delay, scales, errors of twist and pose are estimated from the commands that were sent and the poses that arrived
(`response_estimator`, `motion_residuals`). Once one of them is certainly outside of its interval, the robot drives
slower and keeps more distance: `AssumptionMonitor.caution`. It does so until nothing was outside for `CLEAR_S`.
The monitors of brakes and actuators stop a robot whose motion no lag, delay and scale of its file explain at all;
this one answers before, and also where those bounds never meet: to noise, and to delays of which each alone is small.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from testudo_deploy.monitoring.motion_residuals import Estimate, MotionResiduals
from testudo_deploy.monitoring.response_estimator import ResponseEstimator, ResponseFinding
from testudo_deploy.shield.caution import Caution, stricter
from testudo_deploy.shield.margin_terms import velocity_error_m
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import RobotSpec

SPEED_SHARE, LEAST_SHARE = 0.5, 0.2  # of the top speed: the most, and the least, outside of an interval
EVIDENCE, STILL = 40.0, 12.0  # of another lag or delay: from which it is outside, and below which it is inside again
CLEAR_S = 10.0  # a robot is as fast as before after this time without a finding
_CHECK_S = 0.5
_TEXTS = {
    "lag": ("the velocity follows commands with a lag", "s"),
    "delay": ("commands act after a delay", "s"),
    "scale": ("the speed over the commanded one is", "1"),
    "turn_scale": ("the turn rate over the commanded one is", "1"),
    "twist": ("the measured speed is wrong by", "m/s"),
    "turn_twist": ("the measured turn rate is wrong by", "rad/s"),
    "pose": ("three sigma of the measured position are", "m"),
}


@dataclass(frozen=True)
class _Alarm:
    """A quantity that is outside."""

    estimate: Estimate
    seen_s: float  # when it was last outside
    share: float  # of the top speed
    margin_m: float


class AssumptionMonitor:
    """The estimates of one robot and the answer to them; stamps are seconds on the steady clock and rise."""

    def __init__(self, spec: RobotSpec) -> None:
        self._spec = spec
        self.response, self.residuals = ResponseEstimator(spec), MotionResiduals(spec)
        self._before: tuple[np.ndarray, float, np.ndarray] | None = None
        self._alarms: dict[str, _Alarm] = {}
        self._checked_s, self._suspect = -math.inf, ""
        self.finding = ""
        """What is outside of its interval, `assumption_...: ` and a sentence; empty if nothing is."""
        self.standing: Caution | None = None
        """What holds whatever is measured, set by the owner of the robot."""
        self._found: Caution | None = None

    @property
    def caution(self) -> Caution | None:
        """Return what follows from the finding and holds anyway; None if the robot drives as its file permits."""
        return stricter(self.standing, self._found)

    @property
    def newest_s(self) -> float:
        """Return when the newest command that it knows was sent."""
        return self.response.commands.newest_s

    def send(self, now_s: float, effective: np.ndarray) -> None:
        """Take an effective command (D,) that is sent."""
        self.response.commands.add(now_s, effective)

    def forget(self) -> None:
        """Forget all measurements, after a change of the clock; findings stay until measurements refute them."""
        self.response.commands.clear()
        self.response.forget()
        self.residuals.forget()
        self._before, self._checked_s, self._suspect = None, -math.inf, ""
        self._alarms = {key: replace(alarm, seen_s=math.nan) for key, alarm in self._alarms.items()}

    def interrupt(self) -> None:
        """Begin anew at the next pose: the robot was moved, or moves by itself."""
        self._before = None
        self.residuals.pause()

    def pause(self, measured: MotionState, stamp_s: float) -> None:
        """Take a pose of a robot that does not follow its commands: braked by others, lost, or after a gap."""
        self._before = None
        self.residuals.pause()
        self.response.begin(stamp_s, np.asarray(measured.velocity, float))
        self._check(stamp_s)

    def follow(self, measured: MotionState, before_s: float, stamp_s: float) -> None:
        """Take a valid pose, its stamp, and that of the pose before."""
        velocity = np.asarray(measured.velocity, float)
        after = (np.asarray(measured.position_world, float), float(measured.yaw), velocity)
        before, self._before = self._before, after
        if before is None or not stamp_s > before_s:
            self.response.begin(stamp_s, velocity)
            return
        elapsed_s = stamp_s - before_s
        model = self.response.velocity.copy()
        settled = self.response.follow(stamp_s, elapsed_s, velocity)
        models = (model, self.response.velocity) if settled else None
        ended = self.residuals.follow(elapsed_s, before, after, models)
        if ended or stamp_s - self._checked_s >= _CHECK_S:
            self._check(stamp_s)

    def _check(self, stamp_s: float) -> None:
        """Compare all estimates with their intervals."""
        if stamp_s - self._checked_s < _CHECK_S:
            return
        self._checked_s = stamp_s
        self._alarms = {
            key: alarm if alarm.seen_s <= stamp_s else replace(alarm, seen_s=stamp_s)  # the clock was set back
            for key, alarm in self._alarms.items()
        }
        found = self.response.finding()
        name = found.name if found.evidence > EVIDENCE else ""
        if name and self._suspect:
            self._raise(found.name, self._estimate(found), stamp_s, found.beyond_s)
        elif found.evidence > STILL:
            self._keep(("lag", "delay"), stamp_s)
        self._suspect = name
        for key, estimate in self.residuals.estimates().items():
            if estimate.known and estimate.beyond > 0:
                self._raise(key, estimate, stamp_s, max(estimate.low - estimate.value, estimate.value - estimate.high))
            elif not (estimate.known and estimate.inside):
                self._keep((key,), stamp_s)
        self._alarms = {key: alarm for key, alarm in self._alarms.items() if stamp_s - alarm.seen_s < CLEAR_S}
        self._conclude()

    def _keep(self, names: tuple[str, ...], stamp_s: float) -> None:
        """Keep alarms: their quantities are not certainly outside, but not inside either."""
        for name in names:
            if name in self._alarms:
                self._alarms[name] = replace(self._alarms[name], seen_s=stamp_s)

    def _estimate(self, found: ResponseFinding) -> Estimate:
        quantity = self._spec.quantities[
            {"lag": "dynamics.velocity_lag", "delay": "dynamics.command_delay"}[found.name]
        ]
        return Estimate(found.value_s, quantity.low, quantity.high, found.beyond_s)

    def _raise(self, name: str, estimate: Estimate, stamp_s: float, beyond: float) -> None:
        """Note that a quantity is outside by ``beyond`` [its unit]."""
        spec, beyond = self._spec, max(beyond, 0.0)
        share, ahead_s = SPEED_SHARE, spec.pose_max_age_s + spec.command_delay_s + spec.hold_s
        if name in ("lag", "delay"):
            both = sum(spec.quantities[f"dynamics.{key}"].half_width for key in ("velocity_lag", "command_delay"))
            share, unit_m = both / (both + beyond), spec.control_point_speed_m_s
        elif name in ("scale", "turn_scale"):
            half = (estimate.high - estimate.low) / 2
            share = half / (half + beyond)
            unit_m = (ahead_s + spec.velocity_lag_s) * spec.control_point_speed_m_s
        elif name == "pose":
            unit_m = 1.0
        else:
            of_rim = beyond if name == "twist" else beyond * spec.wheel_base_m / 2
            way_m = spec.control_point_speed_m_s * ahead_s
            beyond, unit_m = 1.0, velocity_error_m(replace(spec, velocity_error_m_s=of_rim), ahead_s, way_m)
        share = min(max(share, LEAST_SHARE), SPEED_SHARE)
        # what grows with the speed is less at the lower one
        margin = beyond * unit_m * (share if name in ("lag", "delay", "scale", "turn_scale") else 1.0)
        self._alarms[name] = _Alarm(estimate, stamp_s, share, margin)

    def _conclude(self) -> None:
        """Set finding and caution."""
        alarms, spec = self._alarms, self._spec
        if not alarms:
            self.finding, self._found = "", None
            return
        share = min(alarm.share for alarm in alarms.values())
        most_m = spec.keep_radius_m  # more distance would not let the robot move any more
        margin_m = min(sum(alarm.margin_m for alarm in alarms.values()), most_m)
        self._found = Caution(share * spec.control_point_speed_m_s, margin_m)
        name, alarm = next(iter(alarms.items()))
        (what, unit), estimate = _TEXTS[name], alarm.estimate
        number = "" if unit == "1" else f" {unit}"
        more = f" (and {', '.join(list(alarms)[1:])})" if len(alarms) > 1 else ""
        self.finding = (
            f"assumption_{name}: {what} about {estimate.value:.3g}{number}, the robot file says "
            f"{estimate.low:.3g} to {estimate.high:.3g}{number}{more}; "
            f"the robot drives at {self._found.speed_m_s:.2f} m/s at most and keeps {margin_m:.3f} m more distance"
        )
