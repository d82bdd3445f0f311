"""Where walls leave room for a robot to pass beside one that stands."""

from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.passages import beyond_walls
from testudo_deploy.shield.projection_margins import ProjectionParameters
from testudo_hardware.arrays import Array, array_namespace

# lengths in separations of two control points
PASS = 1.06  # beside one that stands a robot passes
_SQUEEZE = 0.05  # what the place beside one that stands may be nearer to a wall


def can_pass(
    shield: ProjectionParameters,
    arena: Arena | None,
    point_world: Array,
    ahead: Array,
    shifts: tuple[float, ...] = (0.0,),
    room: float = PASS,
) -> Array:
    """Return whether walls leave room for peers that drive ``ahead`` (D, K, ...) to pass a robot on a side (K, ...).

    The robot is at (D, ...) [m], or beside it by one of ``shifts`` on either side; ``room`` is how far beside the robot
    the peers pass. Both are in separations.
    """
    place = point_world[:, None, ...] + 0 * ahead
    passes = array_namespace(ahead).zeros_like(ahead[0, ...]) > 0
    for shift in shifts:
        near, far = (free_beside(shield, arena, place, ahead, reach) for reach in (shift, room - shift))
        passes = passes | (near[0] & far[1]) | (near[1] & far[0])
    return passes


def goes_round_one(shield: ProjectionParameters, arena: Arena | None, point_world: Array, ahead: Array) -> Array:
    """Return whether peers that drive ``ahead`` (D, K, ...) go round a robot at (D, ...) [m] (K, ...).

    They do where walls leave room on one side only (`going_round`).
    """
    right, left = free_beside(shield, arena, point_world[:, None, ...] + 0 * ahead, ahead)
    return right != left


def free_beside(
    shield: ProjectionParameters, arena: Arena | None, place_world: Array, ahead: Array, reach: float = PASS
) -> tuple[Array, Array]:
    """Return whether walls leave room to the right and left of a direction, ``reach`` [separations] from places."""
    xp = array_namespace(ahead)
    x, y = ahead[0, ...], ahead[1, ...]
    if arena is None:
        return xp.abs(x) < xp.inf, xp.abs(x) < xp.inf
    right = reach * shield.separation_m * xp.stack([y, -x, *(0 * x for _ in range(ahead.shape[0] - 2))])
    return is_free(shield, arena, place_world + right), is_free(shield, arena, place_world - right)


def is_free(shield: ProjectionParameters, arena: Arena | None, place_world: Array) -> Array:
    """Return whether walls leave room for a robot at places (D, ...) [m], or nearly."""
    if arena is None:
        return place_world[0, ...] == place_world[0, ...]
    return beyond_walls(shield.wall_m, arena, place_world) < _SQUEEZE * shield.separation_m
