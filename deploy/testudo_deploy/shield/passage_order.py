"""Order in narrow passages: one direction at a time has the way, and who has it not waits beside the way out.

Every robot computes the direction from the map, and from the announced places and wanted velocities of all: the same
facts for all, without a station. Those of the direction that has the way queue by their distance. One inside without
the way backs out. A robot that wants through announces the velocity that leads there, so that others can tell.
"""

from dataclasses import dataclass

from testudo_deploy.shield.passages import Passage
from testudo_deploy.shield.right_of_way import PARKED_SHARE, Traffic
from testudo_hardware.arrays import Array, any_of, array_namespace, min_of
from testudo_hardware.motion.motion_state import TINY, length

# lengths in separations of two control points
_REACH = 5.0  # how far from the middle of a passage robots come under its order
_MOUTH = 0.15  # the mouth is this far outside of the narrow places
_AIMS_INSIDE = 0.7  # nearer to the mouth a robot aims at the middle of the passage
_FOLLOWS = 1.2  # nearer to the mouth it follows the passage, whatever its policy wants in detail
_MISS = 0.5  # a wanted direction that passes the mouth at this distance leads through the passage
_TIE = 0.3  # of two that differ by less in their way, the one along the axis is first
_EXIT = 0.5  # so far beside the axis a robot that is not yet past the mouth comes out
_LEAVES = 1.5  # nearer to the mouth, a robot that has come out and has not yet passed the queue has precedence
_SPREADS = 1.2  # so far from the mouth one that came out keeps mainly to the axis while others come after it
_STANDS, _RUNS = 0.5, 1.0  # by how much a robot is farther from the mouth than the one before it, to stand and to run
_LANE, _LANE_AHEAD = 1.1, 3.0  # half the width, and the length, of the lane of one that is before it in the queue
_BESIDE = 0.3  # a robot this far beside the narrow places is still inside
_INWARD, _OUTWARD = 0.25, 0.3  # cosines to the axis of a wanted direction inside, and of one out of the passage
_SURELY_IN, _LIKE = 0.7, 0.95  # beside the mouth: to the axis, or to the way of one that takes part
_INWARDS = 0.4  # least part of a way along the axis, over that across, of one that drives to the mouth
_TO_AXIS = 4.0  # gain towards the axis inside: one beside the narrow places would press against the jamb
_KEEPS_S = 2.0  # a robot wants through for so long after its nominal velocity led there
_PATIENCE_S = (
    15.0  # who has waited for longer takes the way when nobody comes against it: a head of a queue may be stuck
)
_FAR_M = 1e3


@dataclass(frozen=True)
class PassageState:
    """State of the rule; batch (...)."""

    through_s: Array  # time for which the robot still wants through; negative against the axis
    waited_s: Array  # time for which its direction has not had the way


def initial_passage_state(like: Array) -> PassageState:
    """Return the state of robots that want through no passage, in the shape (...) of ``like``."""
    return PassageState(0 * like, 0 * like)


@dataclass(frozen=True)
class PassageOrder:
    """What the order asks of a robot (...); peers in slots (K, ...)."""

    takes_part: Array  # bool: it wants through
    waits: Array  # bool: it is outside, and must let others pass or go before it
    backs_out: Array  # bool: it is inside and has not the way
    follows: Array  # bool: it is so near that it follows the passage
    through_world: Array  # (D, ...): unit vector of the way through
    out_world: Array  # (D, ...): unit vector of the way back
    speed_share: Array  # share of its speed that the queue leaves
    peer_waits: Array  # (K, ...) bool: what the peer wants has to wait
    peer_beyond: Array  # (K, ...) bool: the peer is on the other side and wants through: it comes where others come out
    comes: Array  # (K, ...) bool: the peer comes out, or may, on the robot's side
    enters: Array  # (K, ...) bool: the robot came out where the peer wants in, and passes on the outer side of it
    followed: Array  # bool: the robot came out, and another comes after it
    outward_world: Array  # (D, ...): unit vector along the axis, away from the passage
    comes_from_world: Array  # (D, K, ...) [m]: from the robot to the place where it comes out


@dataclass(frozen=True)
class _Frame:
    """A passage; batch (...). The first coordinate is along its axis, the second across."""

    x: Array
    y: Array
    axis_x: Array
    axis_y: Array
    half_length_m: Array
    half_width_m: Array
    unit_m: float  # separation

    @property
    def mouth_m(self) -> Array:
        return self.half_length_m + _MOUTH * self.unit_m

    def place(self, point_world: Array) -> tuple[Array, Array]:
        return self.vector(point_world[0, ...] - self.x, point_world[1, ...] - self.y)

    def vector(self, x: Array, y: Array) -> tuple[Array, Array]:
        return x * self.axis_x + y * self.axis_y, y * self.axis_x - x * self.axis_y

    def direction_world(self, along: Array, across: Array) -> Array:
        xp = array_namespace(along)
        x, y = along * self.axis_x - across * self.axis_y, along * self.axis_y + across * self.axis_x
        return xp.stack([x, y]) / (xp.sqrt(x**2 + y**2) + TINY)


@dataclass(frozen=True)
class _Robots:
    """Robots in the frame of a passage: one (...), or several (K, ...)."""

    along_m: Array
    across_m: Array
    ahead_along: Array  # wanted direction, a unit vector
    ahead_across: Array
    wants: Array  # bool
    inside: Array  # bool
    side: Array  # 1 or -1
    to_mouth_m: Array  # on its side
    leads: Array  # bool: the wanted direction leads through the passage

    def at(self, slot: int | slice) -> "_Robots":
        """Return some of (K, ...)."""
        return _Robots(*(value[slot, ...] for value in vars(self).values()))

    @property
    def towards(self) -> Array:
        """Return the direction, 1 or -1, in which one that wants through passes."""
        xp = array_namespace(self.side)
        back = xp.where(self.ahead_along > 0, -xp.ones_like(self.side), xp.ones_like(self.side))
        return -xp.where(self.inside, back, self.side)


def passage_order(
    frame: _Frame,
    state: PassageState,
    point_world: Array,
    traffic: Traffic,
    unheard: Array,
    nominal_world: Array,
    room_outside: Array,
    top_m_s: float,
    period_s: float,
) -> tuple[PassageOrder, PassageState]:
    """Return the order in the passage of ``frame`` and the new state; positions are (2, ...) [m].

    ``unheard`` (K, ...) bool are bodies of which only the place is known, perhaps an old one; ``room_outside`` (...)
    bool says that others can pass the robot on its side away from the passage.
    """
    xp = array_namespace(nominal_world)
    robots = _all_robots(frame, point_world, traffic, nominal_world, top_m_s)
    me, peers = robots.at(0), robots.at(slice(1, None))
    zero, present = 0 * me.along_m, traffic.present
    through_s = _through_s(frame, state, me, period_s)
    through = xp.sign(through_s)
    peer_through = xp.where(peers.leads & present, peers.towards, 0 * peers.side)
    counted = xp.concat([xp.ones_like(me.inside)[None, ...], present])
    way, against = _way(frame, robots, xp.concat([through[None, ...], peer_through]), counted)
    takes_part = through != 0
    waited_s = xp.where(takes_part & (way != through), state.waited_s + period_s, zero)
    has_way = (way == through) | ((waited_s > _PATIENCE_S) & ~against)
    unclear = unheard | (present & peers.wants & (peer_through == 0))
    unclear = any_of(unclear & peers.inside, axis=0)
    here = present & ~peers.inside & (peers.side == me.side)
    alike = here & (peer_through == through)
    before = alike & (peers.to_mouth_m < me.to_mouth_m)
    leaves = here & (peer_through == 0) & peers.wants & (peers.to_mouth_m < _LEAVES * frame.unit_m)
    hinders = any_of((before | (leaves & ~room_outside)) & _is_in_lane(frame, me, peers, before), axis=0)
    waits = takes_part & ~me.inside & (~has_way | unclear | hinders)
    came_out = ~takes_part & ~me.inside & me.wants & (me.to_mouth_m < _LEAVES * frame.unit_m)
    after = present & (peer_through == me.side) & (peers.inside | (peers.to_mouth_m < frame.unit_m))
    enters = here & (peer_through == -me.side) & came_out
    against_way = present & ~peers.inside & (peer_through != 0) & (peer_through != way)
    order = PassageOrder(
        takes_part,
        waits,
        takes_part & me.inside & ~has_way,
        me.inside | (me.to_mouth_m < _FOLLOWS * frame.unit_m),
        _way_through(frame, me, through),
        frame.direction_world(-through, -me.across_m / frame.unit_m),
        _speed_share(frame, me, peers, before),
        against_way | enters | (alike & ~before & waits) | (leaves & takes_part & room_outside),
        present & ~peers.inside & (peer_through == me.side) & (peers.side != me.side),
        present & (peers.inside | ((peer_through == way) & (way == me.side))),
        enters,
        came_out & (me.to_mouth_m < _SPREADS * frame.unit_m) & any_of(after, axis=0),
        outward(frame, point_world),
        _ways_out(frame, me, peers),
    )
    return order, PassageState(through_s, waited_s)


def _all_robots(frame: _Frame, point_world: Array, traffic: Traffic, nominal_world: Array, top_m_s: float) -> _Robots:
    """Return the robot itself and then its peers, as seen from the passage."""
    xp = array_namespace(nominal_world)
    here = (0 * nominal_world)[:, None, ...]
    return _seen(
        frame,
        point_world[:, None, ...] + xp.concat([here, traffic.offset_world], axis=1),
        xp.concat([nominal_world[:, None, ...], traffic.wanted_world], axis=1),
        top_m_s,
    )


def _ways_out(frame: _Frame, me: _Robots, peers: _Robots) -> Array:
    """Return from where peers come out, from the robot (D, K, ...) [m]: from where they are inside, or the mouth."""
    xp = array_namespace(me.along_m)
    axis = xp.stack([frame.axis_x, frame.axis_y])
    across = xp.stack([-frame.axis_y, frame.axis_x])
    from_m = xp.where(peers.inside, peers.along_m, me.side * frame.mouth_m) - me.along_m
    return axis[:, None, ...] * from_m - across[:, None, ...] * me.across_m


def nearest_passage(passages: tuple[Passage, ...], point_world: Array, unit_m: float) -> tuple[_Frame, Array]:
    """Return the passage that is nearest to points (2, ...) [m], and whether its order reaches them (...)."""
    xp = array_namespace(point_world)
    zero = 0 * point_world[0, ...]
    values, nearest = [zero] * 6, zero + _FAR_M
    for passage in passages:
        x, y = passage.centre_world
        distance = length(point_world[:2, ...] - xp.stack([zero + x, zero + y]))
        numbers = (x, y, *passage.axis_world, passage.half_length_m, passage.half_width_m)
        values = [xp.where(distance < nearest, new, old) for new, old in zip(numbers, values, strict=True)]
        nearest = xp.minimum(nearest, distance)
    x, y, axis_x, axis_y, half_length, half_width = values
    return _Frame(x, y, axis_x, axis_y, half_length, half_width, unit_m), nearest < _REACH * unit_m


def outward(frame: _Frame, point_world: Array) -> Array:
    """Return the unit vector (2, ...) along the axis, away from the passage, at points (2, ...) [m]."""
    xp = array_namespace(point_world)
    along, _ = frame.place(point_world)
    return xp.where(along < 0, -xp.ones_like(along), xp.ones_like(along)) * xp.stack([frame.axis_x, frame.axis_y])


def _seen(frame: _Frame, point_world: Array, wanted_world: Array, top_m_s: float) -> _Robots:
    xp = array_namespace(point_world)
    along, across = frame.place(point_world)
    speed = length(wanted_world)
    ahead_along, ahead_across = frame.vector(*(wanted_world[d, ...] / (speed + TINY) for d in (0, 1)))
    side = xp.where(along < 0, -xp.ones_like(along), xp.ones_like(along))
    inside = (xp.abs(along) < frame.half_length_m) & (xp.abs(across) < frame.half_width_m + _BESIDE * frame.unit_m)
    to_along = side * frame.mouth_m - along
    to_mouth = xp.sqrt(to_along**2 + across**2)
    wants = speed > PARKED_SHARE * top_m_s
    misses = xp.abs(to_along * ahead_across + across * ahead_along)
    aims = (to_along * ahead_along - across * ahead_across > 0) & (misses < _MISS * frame.unit_m)
    aims = aims & (xp.abs(along) > frame.half_length_m)
    to_along, to_across = _way_in(frame, along, across, to_mouth, -side)
    likeness = (to_along * ahead_along + to_across * ahead_across) / xp.sqrt(to_along**2 + to_across**2 + TINY)
    aims_inside = (-side * ahead_along > _SURELY_IN) | (likeness > _LIKE)
    aims = xp.where(to_mouth < _AIMS_INSIDE * frame.unit_m, aims_inside, aims)
    near = along**2 + across**2 < (_REACH * frame.unit_m) ** 2
    leads = xp.where(inside, xp.abs(ahead_along) > _INWARD, aims) & wants & near
    return _Robots(along, across, ahead_along, ahead_across, wants, inside, side, to_mouth, leads)


def _through_s(frame: _Frame, state: PassageState, me: _Robots, period_s: float) -> Array:
    """Return how long [s] the robot still wants through, with the sign of its direction.

    Near the mouth it keeps to it until it has passed, or its nominal velocity points away: what a policy wants in
    detail changes there.
    """
    xp = array_namespace(me.along_m)
    zero = 0 * me.along_m
    direction = xp.sign(state.through_s)
    passed = (direction != 0) & (direction * me.along_m > frame.half_length_m)
    stays = (me.inside | (me.to_mouth_m < _FOLLOWS * frame.unit_m)) & me.wants
    stays = stays & (-direction * me.ahead_along < _OUTWARD)
    rest_s = xp.maximum(xp.abs(state.through_s) - xp.where(stays, zero, zero + period_s), zero)
    turns_back = me.inside & (direction == -me.towards) & (rest_s > 0)
    return xp.where(passed, zero, xp.where(me.leads & ~turns_back, me.towards * _KEEPS_S, direction * rest_s))


def _way(frame: _Frame, robots: _Robots, leads: Array, counted: Array) -> tuple[Array, Array]:
    """Return the direction that has the way (...), 1 or -1, and whether others inside come against the first robot.

    ``leads`` (K, ...) is the direction in which each wants through, or zero. The way is that of those inside, and of
    those who come out; if they differ, that of the one that is farthest on its way. With nobody inside it is the
    direction of the one that is nearest to its mouth.
    """
    xp = array_namespace(leads)
    out = ~robots.inside & (leads == 0) & robots.wants & (robots.side * robots.ahead_along > -_INWARD)
    out = out & (xp.abs(robots.along_m) < frame.mouth_m) & (xp.abs(robots.across_m) < _EXIT * frame.unit_m)
    direction = xp.where(out, robots.side, leads)
    uses = robots.inside | out
    plus, minus = counted & (direction == 1), counted & (direction == -1)

    def least(which: Array, value: Array) -> Array:
        return min_of(xp.where(which, value, _FAR_M), axis=0)

    in_plus, in_minus = least(plus & uses, -robots.along_m), least(minus & uses, robots.along_m)
    head_plus, head_minus = least(plus & ~uses, robots.to_mouth_m), least(minus & ~uses, robots.to_mouth_m)
    tie, one = _TIE * frame.unit_m, xp.ones_like(in_plus)
    nobody = (in_plus == _FAR_M) & (in_minus == _FAR_M)
    is_plus = xp.where(nobody, head_plus < head_minus + tie, in_plus < in_minus + tie)
    against = xp.where(leads[0, ...] > 0, in_minus < _FAR_M, in_plus < _FAR_M)
    return xp.where(is_plus, one, -one), against


def _speed_share(frame: _Frame, me: _Robots, peers: _Robots, before: Array) -> Array:
    """Return the share of its speed (...) that keeps a robot behind those ``before`` it (K, ...) in the queue."""
    xp = array_namespace(me.to_mouth_m)
    ahead_m = xp.where(before, me.to_mouth_m - peers.to_mouth_m, _FAR_M)
    gap = (min_of(ahead_m, axis=0) if ahead_m.shape[0] else 0 * me.to_mouth_m + _FAR_M) / frame.unit_m
    return xp.where(me.inside, 1.0, xp.clip((gap - _STANDS) / (_RUNS - _STANDS), 0.0, 1.0))


def _is_in_lane(frame: _Frame, me: _Robots, peers: _Robots, before: Array) -> Array:
    """Return whether the robot is in the lanes of peers (K, ...), from where they are into what they want.

    The lane of those ``before`` it (K, ...) in the queue ends at the mouth, into which they turn.
    """
    xp = array_namespace(me.along_m)
    along, across = me.along_m - peers.along_m, me.across_m - peers.across_m
    towards = along * peers.ahead_along + across * peers.ahead_across
    beside = xp.abs(along * peers.ahead_across - across * peers.ahead_along)
    longest = _LANE_AHEAD * frame.unit_m + 0 * towards
    longest = xp.where(before, xp.minimum(longest, peers.to_mouth_m + _LANE * frame.unit_m), longest)
    return (towards > 0) & (towards < longest) & (beside < _LANE * frame.unit_m)


def _way_through(frame: _Frame, me: _Robots, through: Array) -> Array:
    """Return the unit vector (2, ...) to the mouth, near it to the middle, and inside along the axis."""
    xp = array_namespace(through)
    along, across = _way_in(frame, me.along_m, me.across_m, me.to_mouth_m, through)
    along = xp.where(me.inside, through, along)
    across = xp.where(me.inside, -_TO_AXIS * me.across_m / frame.unit_m, across)
    return frame.direction_world(along, across)


def _way_in(frame: _Frame, along_m: Array, across_m: Array, to_mouth_m: Array, through: Array) -> tuple[Array, Array]:
    """Return the way (...) of robots outside to the mouth, and near it to the middle, along the axis and across."""
    xp = array_namespace(through)
    beside_m, before_m = xp.abs(across_m), -frame.mouth_m - through * along_m
    near = to_mouth_m < _AIMS_INSIDE * frame.unit_m
    # one beside the mouth never aims across alone: it would look like one that comes out
    to_mouth = through * xp.where(near, xp.maximum(before_m, _INWARDS * beside_m), before_m)
    return xp.where(near & (beside_m < frame.half_width_m), -along_m, to_mouth), -across_m
