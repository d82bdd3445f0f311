"""Where a robot will be when the command of this tick begins to act: the delay-compensated state.

A pose of age A plus a command delay means that the commands of the last A + delay have yet to show in
it. They are rolled out with the motion model. Simulation and robot call the same functions.
"""

from __future__ import annotations

from testudo_hardware.arrays import Array, array_namespace
from testudo_hardware.motion import LagResponse, MotionModel, MotionState
from testudo_hardware.spec import RobotSpec


def pending_time_s(spec: RobotSpec, age_s: Array, slots: int) -> Array:
    """Return for how long each past command has yet to act (slots, ...) [s], newest first.

    Valid for ticks at the control period; ``age_s`` (...) is the age of the pose.
    """
    xp = array_namespace(age_s)
    total = age_s + spec.command_delay_s
    return xp.stack([xp.clip(total - k * spec.control_period_s, 0.0, spec.control_period_s) for k in range(slots)])


def predict_state(model: MotionModel, measured: MotionState, pending: Array, responses: LagResponse) -> MotionState:
    """Return the state after the pending commands.

    Args:
        model: the robot's motion model.
        measured: the aged state (D, ...).
        pending: effective commands (slots, D, ...), newest first.
        responses: how the lag follows each of them, arrays (slots, ...).
    """
    state = measured
    for k in reversed(range(pending.shape[0])):
        response = LagResponse(responses.duration_s[k, ...], responses.gain[k, ...], responses.mean_share[k, ...])
        state = model.step(state, pending[k, ...], response)
    return state
