"""Faults of one robot of an emulated fleet in lock-step: after each it stands in time, and nobody is touched.

The rows of the fault matrix (`testudo bench faults`) that a vendor's robot can have, with its rates, ages and noise.
The times are from the fault to the moment at which the robot begins to stand.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from testudo_bench.emulated.emulated_robot import EmulatedRobot
from testudo_bench.emulated.lock_step_fleet import STEP_S, LockStep
from testudo_deploy.fleet.fleet import Fleet
from testudo_deploy.supervision.modes import Mode
from testudo_hardware.motion.motion_model import hover_drift_m_s
from testudo_hardware.schema import DIFFERENTIAL_DRIVE
from testudo_hardware.spec import RobotSpec
from testudo_plant.plant.injected_faults import RobotFaults
from testudo_plant.plant.odometry_sensor import OdometrySample
from testudo_plant.worlds.drone_dynamics import flies

_FAST_M_S = 0.15  # the robot drives at least so fast when the fault comes
_FAST_SHARE = 0.5  # the same of a drone, of its top speed; the policy limits each axis alone, to 0.58 of it
_STANDS_M_S = 0.02  # a drone beside the drift of its hover
_LONGEST_S = 60.0  # without a robot that drives so fast for so long, there is nothing to inject
_WATCHED_S, _STOOD_S = 6.0, 0.5
_JUMP_M = 0.6


@dataclass(frozen=True)
class FaultRow:
    """One fault and what must follow."""

    name: str
    inject: Callable[[LockStep, int], None]  # into the robot of this number
    detected_s: Callable[[RobotSpec], float]
    """Longest time from the fault until it is noticed, beside the age of measurements."""
    left_out: Callable[[RobotSpec], str] = lambda _: ""
    """Why a robot cannot have the fault, or nothing follows from it; empty if it is injected."""


@dataclass(frozen=True)
class FaultOutcome:
    """What one injection led to."""

    name: str
    stood_s: float  # from the fault until the robot stood, for `_STOOD_S` at least; infinite if it did not
    limit_s: float
    reason: str  # of the robot or its guard at the end
    contacts: int

    @property
    def holds(self) -> bool:
        """Return whether it stood in time, without a contact."""
        return self.stood_s <= self.limit_s and self.contacts == 0


def _lose_poses(world: LockStep, index: int) -> None:
    world.robots[index].senses = lambda _: None


def _jump(world: LockStep, index: int) -> None:
    def moved(sample: OdometrySample) -> OdometrySample:
        x, *rest = sample.position_world
        return replace(sample, position_world=(x + _JUMP_M, *rest))

    world.robots[index].senses = moved


def _not_finite(world: LockStep, index: int) -> None:
    world.robots[index].senses = lambda sample: replace(sample, position_world=(math.nan,) * len(sample.position_world))


def _kill_policy(world: LockStep, index: int) -> None:
    world.robots[index].policy_lives = False


def _kill_guard(world: LockStep, index: int) -> None:
    world.robots[index].guard_lives = False


def _stop(world: LockStep, index: int) -> None:
    world.robots[index].guard.hear_estop(pressed=True, source="/estop")


def _block(world: LockStep, index: int) -> None:
    world.plant.break_robot(world.robots[index].name, RobotFaults(blocked=("left", "right")))


def _lose_radio(world: LockStep, index: int) -> None:
    world.plant.break_robot(world.robots[index].name, RobotFaults(radio_lost=True))


def _dead_man(spec: RobotSpec) -> float:
    return spec.dead_man_s + spec.control_period_s


def _has_no_wheels(spec: RobotSpec) -> str:
    return "" if spec.kind == DIFFERENTIAL_DRIVE else "it has no wheels"


def _nothing_brakes(spec: RobotSpec) -> str:
    """Return why no brake follows from silence: firmware without an app on board levels out, and cuts the motors."""
    if spec.brakes_in_silence:
        return ""
    level_s, cut_s = (spec.silence[f"silence.{key}"].value for key in ("level_after", "cut_after"))
    return f"nothing brakes it without set-points: it levels out after {level_s:g} s and falls after {cut_s:g} s"


def _has_no_radio(spec: RobotSpec) -> str:
    return "its driver has no radio" if not spec.silence else _nothing_brakes(spec)


ROWS = (
    FaultRow("no poses", _lose_poses, lambda spec: spec.pose_max_age_s + spec.control_period_s),
    FaultRow("poses jump by 0.6 m", _jump, lambda spec: 2 * spec.control_period_s),
    FaultRow("poses are not numbers", _not_finite, lambda spec: spec.pose_max_age_s + spec.control_period_s),
    FaultRow("policy killed", _kill_policy, _dead_man),
    FaultRow("guard killed", _kill_guard, _dead_man, _nothing_brakes),
    FaultRow("emergency stop", _stop, lambda spec: spec.control_period_s),
    FaultRow("wheels blocked", _block, lambda spec: spec.control_period_s, _has_no_wheels),
    FaultRow("radio of the vehicle lost", _lose_radio, _dead_man, _has_no_radio),
)


def run_fault(row: FaultRow, fleet: Fleet, seed: int) -> FaultOutcome:
    """Inject a fault into the first robot that drives fast, and watch the fleet."""
    world = LockStep(fleet, seed)
    now_s, index = 0.0, -1
    stands_m_s = _STANDS_M_S + math.hypot(*hover_drift_m_s(fleet.robots[0].spec))
    while index < 0:
        now_s += STEP_S
        if now_s > _LONGEST_S:
            return FaultOutcome(row.name, math.inf, 0.0, "no robot drove fast enough", len(world.plant.contacts))
        world.step(now_s)
        index = next((k for k, robot in enumerate(world.robots) if _drives(world, robot)), -1)
    robot, spec = world.robots[index], fleet.robots[index].spec
    emulation = fleet.robots[index].link.profile.emulation
    age_s = 0.0 if emulation is None else emulation.latency_high.value + spec.control_period_s
    row.inject(world, index)
    began_s, moved_s, stood_s, reason = now_s, now_s, math.inf, ""
    while now_s < began_s + _WATCHED_S:
        now_s += STEP_S
        world.step(now_s)
        if _speed(world, robot.name) > stands_m_s:
            moved_s = now_s
        elif now_s - moved_s >= _STOOD_S and stood_s == math.inf:
            # a robot that found its new place, after a jump, may drive on
            stood_s, reason = moved_s - began_s, robot.guard.code or robot.robot.supervisor.reason
    delay, lag = spec.quantities["dynamics.command_delay"].high, spec.quantities["dynamics.velocity_lag"].high
    rests_s = delay + 4 * lag + spec.speed_limit_m_s / spec.acceleration_limit_m_s2
    limit_s = row.detected_s(spec) + age_s + rests_s
    return FaultOutcome(row.name, stood_s, limit_s, reason.partition(":")[0], len(world.plant.contacts))


def _drives(world: LockStep, robot: EmulatedRobot) -> bool:
    """Return whether the policy drives a robot fast; a drone climbs by its own planner before."""
    is_active, speed_m_s = robot.robot.supervisor.mode is Mode.ACTIVE, _speed(world, robot.name)
    return is_active and speed_m_s > (_FAST_SHARE * robot.spec.speed_limit_m_s if flies(robot.spec) else _FAST_M_S)


def _speed(world: LockStep, name: str) -> float:
    """Return the speed ahead of a robot on the ground, or that of a drone in space."""
    velocity = world.plant.truth(name).velocity
    return math.hypot(*velocity) if len(velocity) == 3 else abs(velocity[0])
