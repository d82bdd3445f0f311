"""The lower speed of a robot whose file holds estimates: what counts as measured, and the limit of its speed."""

import math
from collections.abc import Sequence

from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec

MEASURED = ("testudo calibrate ", "testudo identify ", "measured")
"""A quantity is measured if its source begins with one of these."""
CAP_SHARE = 0.5  # of `limits.speed`
CALIBRATION = "calibration"  # scenario in the contract of the policy file of a calibration drive
_DYNAMICS = ("velocity_lag", "command_delay", "speed_scale", "turn_scale")
_TINY = 1e-9


def estimates_in(spec: RobotSpec) -> tuple[str, ...]:
    """Return the keys of a robot file on which margins and predictions rest, and whose values nobody measured."""
    keys = (f"dynamics.{name}" for name in _DYNAMICS)
    found = {key: spec.quantities[key].source for key in keys if key in spec.quantities}
    return tuple(key for key, source in found.items() if not source.lower().startswith(MEASURED))


def speed_cap_m_s(spec: RobotSpec, scenario: str, *, on_hardware: bool) -> float:
    """Return the highest speed [m/s] that a robot may drive at by its file; infinite without a cap.

    The plant moves as the file says, and drones are not calibrated by a drive. A calibration drive is sized to stay in
    its area at full speed, and its policy file, of the ``scenario`` `CALIBRATION`, follows nothing but that drive.
    """
    free = not on_hardware or spec.dimension != 2 or scenario == CALIBRATION
    return math.inf if free or not estimates_in(spec) else CAP_SHARE * spec.speed_limit_m_s


def cap_sentence(spec: RobotSpec, cap_m_s: float) -> str:
    """Return why a robot is slow, with the remedy; empty without a cap."""
    if not math.isfinite(cap_m_s):
        return ""
    return (
        f"uncalibrated: {', '.join(estimates_in(spec))} of {spec.name} are estimates: the robot drives at "
        f"{cap_m_s:.2f} m/s at most; measure them with `testudo calibrate`"
    )


def capped_share(spec: RobotSpec, cap_m_s: float, command: Sequence[float]) -> float:
    """Return the share of a command (D,) with which the control point is no faster than the cap."""
    if not math.isfinite(cap_m_s):
        return 1.0
    lever = (1.0, spec.look_ahead_m) if spec.kind == DIFFERENTIAL_DRIVE else (1.0,) * len(command)
    speed = math.hypot(*(part * value for part, value in zip(lever, command, strict=True)))
    return min(1.0, cap_m_s / max(speed, _TINY))
