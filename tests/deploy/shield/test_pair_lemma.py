"""The pairwise lemma for asynchronous ticks in the plane, checked by z3 over the reals, with exact parameters.

Two control points move with q' = u, |u| <= v. Each robot ticks on its own clock; a command is held until the next tick,
at most T_hold. At a tick, robot i knows where j was `age` ago: d = q_i - q_j(t - age), x = |d|, n = d / x. Write
c for the true direction from j to i at a moment, r for the true distance, beta = gamma / (2 T_hold), towards = -u . n.

The rule that is proven:
    max(towards, 0) + |u| R / x <= beta G,  G = max(x - D - v age, 0),  R = v (age + T_hold) + v T_hold < x
    (else u = 0): a share of the gap as it is at the tick, kept in every direction that is possible during the hold.

Proven (each step is a query whose negation is unsatisfiable):
1. In the plane: G is at most the true gap r - D at the tick; towards the peer's true place the speed is at most beta G
   at every moment of the hold, not only at the tick (tests `..._in_the_plane`).
2. With that, for any offset of the ticks, any number of ticks, and either or both robots falling silent for good at any
   moment, r never falls below D, if gamma and the longest time between two ticks T are as in `PROVEN`
   (tests `..._of_time`). This is an induction over ticks: r - D >= G (1 - lambda time since the tick / T).
3. For shield.md's wider margin, kappa (v (age + T_hold) + v T_hold) subtracted from the distance, the speed towards the
   peer is at most beta (r - D) at every moment, for every gamma; then r >= D without 2.

Assumed, not checked here: the distance has the derivative c . (u_i - u_j), and a continuous function whose
derivative is at least -2 beta times its positive part stays positive; z3 itself; the age is at least the true one; D
holds all errors of position and model. In 2, T is the longest time between two ticks, not the nominal one, and a
robot that was silent ticks again only after it has stood still for T (not needed in the last row of `PROVEN`).

Not proven: layer 1 as it is built takes the age into account, not the hold: at the end of a hold the direction is not
the one of the tick. What is proven of it: at the tick itself, the speed towards every place where the peer can be is at
most beta times the gap there (`test_layer_one_as_built_...`), and along the line of both points 2 holds of it, since
its gamma is 0.9. With gamma 1 two asynchronous ticks lose some thousandths of the gap (`test_gamma_one_...`). Layer 1
takes the peer to be in a smaller ball than v age: for its tick the peer does what it announced. Layers 2 and 3 carry
the guarantee, not this lemma.

The mutants (gamma 1.2, no age, full share each, T in place of T_hold) have counterexamples, which are replayed with
two points that move in the plane.
"""

# ruff: noqa: SIM300 -- terms of z3 are not constants
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
import z3

PROVEN = [
    # T / T_hold, gamma, lambda
    (Fraction(1, 4), Fraction(19, 20), Fraction(57, 200)),
    (Fraction(1, 3), Fraction(9, 10), Fraction(2, 5)),
    (Fraction(1), Fraction(1, 3), Fraction(1, 2)),
]
"""The last row needs no regular ticks: any hold may be as long as T_hold."""

CX, CY, R_TRUE, X, REACH, UX, UY, SPEED = z3.Reals("cx cy r x reach ux uy speed")
"""Axes along n: d = (x, 0), the true relative position r (cx, cy), the command (ux, uy), |u|."""
UNIT = CX * CX + CY * CY == 1
NEAR = [UNIT, R_TRUE > 0, X > 0, REACH >= 0, (R_TRUE * CX - X) ** 2 + (R_TRUE * CY) ** 2 <= REACH**2]


def exact(value):
    return z3.Q(value.numerator, value.denominator)


def proves(given, claim):
    """Return whether the claim follows; z3 must know."""
    solver = z3.Solver()
    solver.set("timeout", 10_000)
    solver.add(given)
    solver.add(z3.Not(claim))
    answer = solver.check()
    assert answer != z3.unknown, solver.reason_unknown()
    return answer == z3.unsat


def test_the_peer_is_as_near_as_its_reach_allows_in_the_plane():
    """Step 1: with reach = v age, x - reach is at most the true distance, so that G is at most the true gap."""
    assert proves(NEAR, z3.And(R_TRUE >= X - REACH, R_TRUE <= X + REACH))
    assert not proves(NEAR, R_TRUE >= X)  # mutant: no age


def test_the_direction_stays_within_the_cone_in_the_plane():
    assert proves([*NEAR, REACH < X], z3.And(CX > 0, (X * CY) ** 2 <= REACH**2))
    half = z3.Real("half")
    assert not proves([*NEAR, REACH < X, half * 2 == REACH], (X * CY) ** 2 <= half**2)


def test_the_rule_keeps_its_share_towards_every_place_of_the_peer_in_the_plane():
    """Step 1: the speed towards the true place, -u . c, is at most what the rule allows."""
    limit, approach = z3.Reals("limit approach")
    cone = [UNIT, CX > 0, X > 0, REACH >= 0, REACH < X, X * CY <= REACH, -X * CY <= REACH]
    speed = [SPEED >= 0, SPEED >= UY, SPEED >= -UY]
    rule = [approach >= 0, approach >= -UX, approach * X + SPEED * REACH <= limit * X]
    assert proves([*cone, *speed, *rule], -UX * CX - UY * CY <= limit)
    # mutants: the bearing's error left out; a retreat counted against it
    assert not proves([*cone, *speed, approach >= 0, approach >= -UX, approach <= limit], -UX * CX - UY * CY <= limit)
    exact_speed = SPEED * SPEED == UX * UX + UY * UY
    built = [limit >= 0, -UX * X + SPEED * REACH <= limit * X]
    assert not proves([*cone, *speed, exact_speed, *built], -UX * CX - UY * CY <= limit)


def test_a_retreat_cone_is_a_retreat_from_every_place_of_the_peer_in_the_plane():
    cone = [UNIT, CX > 0, CY * CY <= REACH**2, REACH < 1, REACH >= 0]
    retreat = [SPEED >= 0, SPEED * SPEED == UX * UX + UY * UY]
    assert proves([*cone, *retreat, UX >= SPEED * REACH], UX * CX + UY * CY >= 0)
    assert not proves([*cone, *retreat, UX >= 0], UX * CX + UY * CY >= 0)


def test_layer_one_as_built_keeps_its_share_at_the_tick_in_the_plane():
    """Built: towards + |u| reach / x <= beta (x - D - reach); then -u . c <= beta (r - D). In units of x and |u|."""
    fast, limit, apart, beta, approach = z3.Reals("fast limit D beta approach")
    cone = [*NEAR, X == 1, REACH < 1, CX > 0, UX * UX + UY * UY == 1]
    assert proves([*cone, fast == REACH - UX, fast >= 0], (-UX * CX - UY * CY) * (1 - REACH) <= fast * R_TRUE)
    rule = [
        approach * (1 - REACH) <= fast * R_TRUE,
        fast <= beta * (1 - apart - REACH),
        beta > 0,
        apart >= 0,
        1 - apart - REACH >= 0,
        R_TRUE >= 1 - REACH,
        REACH < 1,
    ]
    assert proves([*rule, limit == beta * (R_TRUE - apart)], approach <= limit)
    assert not proves([*rule, limit == beta * (1 - apart - REACH)], approach <= limit)


def test_the_margin_for_the_whole_hold_keeps_the_share_at_every_moment_in_the_plane():
    """Step 3, with kappa = 1 + v / (beta D): in four small steps, since z3 is slow on all of it at once."""
    apart, top, beta, square, turn, approach = z3.Reals("D v beta square turn approach")
    assert proves([*NEAR, R_TRUE >= apart, X >= apart, apart > 0], apart**2 * (2 - 2 * CX) <= REACH**2)
    turned = (UX * (1 - CX) - UY * CY) ** 2
    assert proves([UNIT, UX * UX + UY * UY <= top**2, top >= 0], turned <= top**2 * (2 - 2 * CX))
    positive = [apart > 0, top >= 0, REACH >= 0, beta > 0]
    assert proves([*positive, turn**2 <= top**2 * square, apart**2 * square <= REACH**2], apart * turn <= top * REACH)

    def rule(kappa):
        return [
            *positive,
            apart * turn <= top * REACH,
            -UX <= beta * (X - apart - kappa * REACH),
            R_TRUE >= X - REACH,
            approach == -UX + turn,
        ]

    assert proves(rule(1 + top / (beta * apart)), approach <= beta * (R_TRUE - apart))
    assert not proves(rule(1), approach <= beta * (R_TRUE - apart))  # mutant: the direction is taken as certain


GAP, G_I, G_J, SINCE_I, SINCE_J, TIME, WAY_I, WAY_J = z3.Reals("gap g_i g_j since_i since_j time way_i way_j")
"""True gap r - D; what each used at its last tick; times since then; a span; ways towards each other in it."""


def keeps(gap, used, since, period, rate):
    """Return the invariant of one robot: the gap is at least this share of what it was taken for."""
    return z3.And(used >= 0, gap >= used * (1 - rate * since / period))


def ways(beta, time_i, time_j):
    return [WAY_I <= beta * G_I * time_i, WAY_J <= beta * G_J * time_j]


@pytest.mark.parametrize(("period", "gamma", "rate"), PROVEN)
def test_ticks_of_both_keep_the_gap_over_any_span_of_time(period, gamma, rate):
    """Step 2: the invariant holds between ticks, and a tick (G at most the gap) establishes it."""
    period, beta, rate = exact(period), exact(gamma / 2), exact(rate)
    now = [
        keeps(GAP, G_I, SINCE_I, period, rate),
        keeps(GAP, G_J, SINCE_J, period, rate),
        SINCE_I >= 0,
        SINCE_J >= 0,
        TIME >= 0,
        SINCE_I + TIME <= period,
        SINCE_J + TIME <= period,
    ]
    later = GAP - WAY_I - WAY_J
    kept = z3.And(keeps(later, G_I, SINCE_I + TIME, period, rate), keeps(later, G_J, SINCE_J + TIME, period, rate))
    assert proves([*now, *ways(beta, TIME, TIME)], z3.And(kept, later >= 0))
    assert proves([G_I >= 0, G_I <= GAP], keeps(GAP, G_I, z3.RealVal(0), period, rate))
    assert not proves([*now, *ways(2 * beta, TIME, TIME)], kept)  # mutant: full share each


@pytest.mark.parametrize(("period", "gamma", "rate"), PROVEN[:2])
def test_both_may_fall_silent_at_any_moment_of_time(period, gamma, rate):
    """Step 2: after the last tick of both, their commands run out before the gap does."""
    period, beta, rate = exact(period), exact(gamma / 2), exact(rate)
    now = [
        keeps(GAP, G_I, SINCE_I, period, rate),
        keeps(GAP, G_J, SINCE_J, period, rate),
        SINCE_I >= 0,
        SINCE_J >= 0,
        SINCE_I <= period,
        SINCE_J <= period,
    ]
    assert proves([*now, *ways(beta, 1 - SINCE_I, 1 - SINCE_J)], GAP - WAY_I - WAY_J >= 0)
    # mutants: gamma 1.2, full share each, T in place of T_hold
    for wrong in (Fraction(12, 10), 2 * gamma, gamma / period.as_fraction()):
        assert not proves([*now, *ways(exact(wrong / 2), 1 - SINCE_I, 1 - SINCE_J)], GAP - WAY_I - WAY_J >= 0)


@pytest.mark.parametrize(("period", "gamma", "rate"), PROVEN[:2])
def test_one_may_fall_silent_and_the_other_drive_on_for_any_span_of_time(period, gamma, rate):
    """Step 2: robot i is silent; j ticks at any times, and at each the gap holds what i's command has left."""
    period, beta, rate = exact(period), exact(gamma / 2), exact(rate)
    left = exact(gamma / (2 - gamma))

    def holds(gap, since):
        return gap >= left * G_I * (1 - since)

    first = [keeps(GAP, G_I, SINCE_I, period, rate), SINCE_I >= 0, SINCE_I <= period]
    assert proves(first, holds(GAP, SINCE_I))
    tick = [G_I >= 0, holds(GAP, SINCE_I), SINCE_I >= 0, TIME >= 0, SINCE_I + TIME <= 1, G_J >= 0, G_J <= GAP]
    later = GAP - WAY_I - WAY_J
    assert proves([*tick, *ways(beta, TIME, TIME)], holds(later, SINCE_I + TIME))
    assert proves([*tick, *ways(beta, 1 - SINCE_I, z3.RealVal(1))], later >= 0)


@dataclass(frozen=True)
class Rule:
    """The rule along the line of both points. Unit of time T_hold, of length v T_hold."""

    gamma: Fraction = Fraction(19, 20)
    hold: Fraction = Fraction(1)
    """The time by which the gap is divided."""
    share: int = 2
    """One of so many equal shares of the gap."""
    age: bool = True

    def limit(self, gap, age, maximum):
        """Return the highest closing speed for a gap that was seen so long ago; numbers or z3 terms."""
        rate = (
            exact(self.gamma / self.share / self.hold)
            if z3.is_expr(gap)
            else float(self.gamma / self.share / self.hold)
        )
        return rate * maximum(gap - age if self.age else gap)


MUTANTS = {
    "gamma 1.2": Rule(gamma=Fraction(12, 10)),
    "full share each": Rule(share=1),
    "T in place of T_hold": Rule(hold=Fraction(1, 4)),
    "no age": Rule(age=False),
}
T_TICK = Fraction(1, 4)
EVENTS = ((1, 0), (0, 1), (1, 2), (0, 3))
"""Ticks in their order: robot, and its index; both then fall silent."""


@dataclass(frozen=True)
class Story:
    """Two ticks of each robot, and what they commanded."""

    gap: float
    """At the start, beyond D."""
    times: tuple[float, ...]
    speeds: tuple[float, ...]


def find_story(rule, loss):
    """Return two asynchronous ticks of each robot that end by ``loss`` below D, or None; z3 must know."""
    offset, solver = z3.Real("offset"), z3.Solver()
    solver.set("timeout", 10_000)
    tick = exact(T_TICK)
    solver.add(offset >= tick / 8, offset <= tick * 7 / 8)
    times = (z3.RealVal(0), offset, tick, tick + offset)
    gap = [z3.Real("gap")]
    speeds = [z3.Real(f"u{event}") for event in range(4)]
    moved = [[z3.RealVal(0)], [z3.RealVal(0)]]
    solver.add(gap[0] >= 0, gap[0] <= 2)
    now = [z3.RealVal(0), z3.RealVal(0)]
    for event, (robot, _) in enumerate(EVENTS):
        if event:
            for one in (0, 1):
                moved[one].append(moved[one][-1] + now[one] * (times[event] - times[event - 1]))
        # any earlier place of the peer may be the one that was heard last
        limits = [
            rule.limit(
                gap[0] - moved[robot][event] - moved[1 - robot][heard],
                times[event] - times[heard],
                lambda value: z3.If(value > 0, value, 0),
            )
            for heard in range(event + 1)
        ]
        solver.add(speeds[event] >= 0, speeds[event] <= 1, z3.Or([speeds[event] <= limit for limit in limits]))
        now[robot] = speeds[event]
    end = gap[0] - moved[0][3] - moved[1][3] - now[0] - now[1] * (1 - offset)  # each holds for T_hold after its tick
    solver.add(end < exact(-loss))
    answer = solver.check()
    assert answer != z3.unknown, solver.reason_unknown()
    if answer == z3.unsat:
        return None
    model = solver.model()

    def number(term):
        return float(model.eval(term, model_completion=True).as_fraction())

    return Story(number(gap[0]), tuple(map(number, times)), tuple(map(number, speeds)))


def replay(story, rule, *, obey=False):
    """Move two points in the plane through a story and return the least distance less D.

    At each tick the command must be within the rule for some earlier place of the peer; with ``obey`` it is
    shortened to what the rule allows for the newest.
    """
    apart, direction, step = 2.1, np.array([0.6, 0.8]), 1e-3
    points = [np.zeros(2), direction * (apart + story.gap)]
    heading = (direction, -direction)
    seen, speeds, held = [], [0.0, 0.0], [-np.inf, -np.inf]
    events = [(time, robot, speed) for time, (robot, _), speed in zip(story.times, EVENTS, story.speeds, strict=True)]
    least, now = np.inf, 0.0
    while now < story.times[-1] + 1 + step:
        while events and events[0][0] <= now + 1e-12:
            _, robot, speed = events.pop(0)
            seen.append((now, points[0].copy(), points[1].copy()))
            limits = [
                rule.limit(
                    float(np.linalg.norm(points[robot] - places[1 - robot])) - apart,
                    now - then,
                    lambda value: max(value, 0.0),
                )
                for then, *places in seen
            ]
            speeds[robot], held[robot] = min(speed, limits[-1]) if obey else speed, now
            assert obey or speed <= max(limits) + 1e-6
        ends = [begin + 1 for begin in held if begin + 1 > now + 1e-12]
        until = min([now + step, *(time for time, *_ in events[:1]), *ends])
        for robot in (0, 1):
            if now < held[robot] + 1 - 1e-12:
                points[robot] = points[robot] + heading[robot] * speeds[robot] * (until - now)
        now = until
        least = min(least, float(np.linalg.norm(points[1] - points[0])) - apart)
    return least


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_has_a_counterexample_that_two_points_follow(name):
    story = find_story(MUTANTS[name], Fraction(1, 100))
    assert story is not None
    assert replay(story, MUTANTS[name]) < -0.009
    assert replay(story, Rule(), obey=True) >= -1e-9


def test_gamma_one_loses_some_of_the_gap_with_asynchronous_ticks():
    """Why layer 1 has gamma 0.9: along the line of both points 1 is not proven, because it is not so."""
    story = find_story(Rule(gamma=Fraction(1)), Fraction(1, 1000))
    assert story is not None
    assert -0.05 * story.gap < replay(story, Rule(gamma=Fraction(1))) < -9e-4
    assert replay(replace(story, times=(0.0, 0.0, 0.25, 0.25)), Rule(gamma=Fraction(1)), obey=True) >= -1e-9
