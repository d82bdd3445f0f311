"""Where the guard lets the centre of its robot be: in the arena of the policy file and in its segment, with margins."""

from pathlib import Path

from testudo_deploy.contract.policy_archive import read_policy_contract
from testudo_deploy.guard.command_checks import Bounds, KeepOut
from testudo_deploy.guard.own_segment import SegmentLimits
from testudo_deploy.guard.speed_cap import speed_cap_m_s
from testudo_deploy.shield.arena import Arena, Ball, Block, Obstacle
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.spec import RobotSpec


def load_bounds(policy: Path, sha256: str, spec: RobotSpec) -> Bounds | None:
    """Return the bounds for a robot from its policy file; None if its world has no walls.

    The file is read without the policy's runtime.

    Raises:
        TestudoError: the file cannot be read, is another one, or holds no valid contract.
    """
    arena = read_policy_contract(policy, sha256).arena
    return None if arena is None else guard_bounds(spec, arena)


def load_speed_cap(policy: Path, sha256: str, spec: RobotSpec, *, on_hardware: bool) -> float:
    """Return the highest speed [m/s] of a robot by its file and its policy file; see `speed_cap_m_s`.

    Raises:
        TestudoError: see `load_bounds`.
    """
    return speed_cap_m_s(spec, read_policy_contract(policy, sha256).scenario, on_hardware=on_hardware)


def guard_bounds(spec: RobotSpec, arena: Arena) -> Bounds:
    """Return the bounds of an arena.

    The shield keeps its stop tubes `wall_m` from walls. Two estimates of one place can differ by twice the error of the
    position, so that with the same margin the guard would brake for commands that the shield has checked.
    """
    margin_m = stop_tube_parameters(spec).wall_m - 2 * spec.position_error_m
    return Bounds(arena.low_world, arena.high_world, tuple(map(_keep_out, arena.obstacles)), margin_m)


def segment_limits(spec: RobotSpec) -> SegmentLimits:
    """Return how far a robot may be from its segment: as far as its peers expect."""
    space = stop_tube_parameters(spec)
    return SegmentLimits(space.segment_reach_m, space.height_ratio)


def _keep_out(obstacle: Obstacle) -> KeepOut:
    if isinstance(obstacle, Ball):
        return KeepOut(obstacle.centre_world, obstacle.centre_world, obstacle.radius_m)
    if isinstance(obstacle, Block):
        return KeepOut(obstacle.centre_world, obstacle.centre_world, 0.0, obstacle.half_size_m, obstacle.yaw)
    return KeepOut(obstacle.start_world, obstacle.end_world, obstacle.radius_m)
