"""Where the guard lets the centre of its robot be: in the arena of the policy file and in its segment, with margins."""

from testudo_deploy.guard.command_checks import Bounds, KeepOut
from testudo_deploy.guard.own_segment import SegmentLimits
from testudo_deploy.shield.arena import Arena, Ball, Block, Obstacle
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.spec import RobotSpec


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
