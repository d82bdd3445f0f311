"""What an evaluation counts, on worlds where everything is known, and on real ones."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.rails import Rails, rail_environment

from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.evaluation import evaluation
from testudo_policies.evaluation.evaluation import HELD_OUT_SEED, compiled_programs, crossing_paths, evaluate_policy
from testudo_policies.evaluation.evaluation_table import evaluation_table
from testudo_policies.evaluation.policy_under_test import load_policy_under_test

pytestmark = pytest.mark.usefixtures("quick")

RADIUS = load_robot("gritsbot_x").body_radius_m
DECISION_S = 5 * 0.033
FAR = ((9.0, 9.0), (9.0, -9.0))
# four worlds of two robots
RAILS = Rails(
    starts=(
        ((-0.4, 0.0), (0.4, 0.0)),
        ((-0.5, 0.0), (0.5, 0.0)),
        ((0.0, 0.3), (0.0, -0.3)),
        ((2.5, 0.0), (0.0, 0.0)),
    ),
    goals=(FAR, ((0.5, 0.0), (-0.5, 0.0)), FAR, FAR),
    speeds=((0.0, 0.0), (0.01, -0.01), (0.01, 0.01), (0.01, 0.0)),
    first_seed=100,
)


def stand(signals, hidden):
    """Return no velocity: on rails it does not matter."""
    return jnp.zeros_like(signals["goal_world"]), hidden


def straight(signals, hidden):
    """Return a velocity straight to the goal, at full speed."""
    offset = signals["goal_world"] - signals["control_point_world"]
    distance = jnp.sqrt(jnp.sum(offset**2, axis=-1, keepdims=True)) + 1e-6
    return 0.2 * offset / jnp.maximum(distance, 0.1), hidden


@pytest.fixture(scope="module")
def rails(quick):
    return evaluate_policy(rail_environment(RAILS), stand, 0, 4, 100)


def test_success_contacts_and_separation_of_hand_made_worlds(rails):
    # world 0: both stand 0.8 m apart, far from their goals
    # world 1: they run through each other, |1 - 0.02 t| apart, and are 0.1 m from the goals at
    #   tick 90, the end of decision 18: success
    # world 2: side by side, 0.6 m apart, until tick 100
    # world 3: the first runs into the wall at x = 3, the second stands 2.5 m behind
    ticks = np.arange(1, 91)
    passing = int((np.abs(1 - 0.02 * ticks) < 2 * RADIUS).sum())
    run = 48 * 5  # decisions until 8 s, five ticks each
    wall = sum(2.5 + 0.01 * min(tick, 100) > 3 - RADIUS for tick in range(1, run + 1))
    assert passing > 3
    assert wall > 100
    assert rails.episodes == 4
    assert rails.success == 0.25
    assert rails.contacts == passing + wall
    assert rails.episodes_with_contact == 2
    assert rails.minimum_separation_m == pytest.approx(0, abs=1e-5)
    least = [0.8, 0.0, 0.6, 2.51]
    assert rails.separation_p1_m == pytest.approx(np.percentile(least, 1), abs=1e-5)
    assert rails.time_to_success_s == pytest.approx(18 * DECISION_S)
    assert (rails.intervention_rate, rails.brake_rate) == (0, 0)
    assert (rails.team_size, rails.first_seed, rails.horizon_s) == (2, 100, 8.0)
    # a robot earns 1 for each decision near its goal: only both of world 0 in the decision of their success
    assert (rails.mean_return, rails.metrics) == (1 / 4, {"near": 2 / 4})


@pytest.mark.parametrize(("horizon_s", "deadlocks"), [(4.9, 0), (8.0, 1), (10.0, 3)])
def test_a_deadlock_is_five_seconds_of_rest_without_success(horizon_s, deadlocks):
    # at 4.9 s no robot can have rested for 5 s; at 8 s world 0 has, and the others, which stand
    # from tick 100 (3.3 s) on, have rested for 4.6 s; at 10 s all have but the one with success
    environment = rail_environment(RAILS.with_horizon(horizon_s))
    assert evaluate_policy(environment, stand, 0, 4, 100).deadlocks == deadlocks


def test_episodes_do_not_depend_on_how_they_are_batched(rails, monkeypatch):
    monkeypatch.setattr(evaluation, "BATCH", 3)
    told = []
    environment = rail_environment(RAILS)
    found = evaluate_policy(environment, stand, 0, 4, 100, told.append)
    assert found == rails
    assert told == [3, 4]


def summary(**values):
    """Return the evaluation of four episodes that came to these values."""
    count = 4
    columns = {
        "success": np.zeros(count), "contacts": np.zeros(count), "separation_m": np.ones(count),
        "interventions": np.zeros(count), "braked": np.zeros(count), "stuck": np.zeros(count),
        "duration_s": np.full(count, 8 * DECISION_S), "crossing": np.zeros(count, bool),
        "returns": np.zeros(count), "metrics": {},
    }  # fmt: skip
    columns |= {name: value if isinstance(value, dict) else np.array(value) for name, value in values.items()}
    batch = evaluation.EpisodeBatch(**columns)
    return evaluation._summarise(rail_environment(RAILS), [batch], 100)


def test_returns_and_metrics_are_means_over_the_episodes():
    found = summary(returns=[4.0, 0, 2, 2], metrics={"tags": np.array([1.0, 2, 3, 0])})
    assert found.mean_return == 2.0
    assert found.metrics == {"tags": 1.5}


def test_a_task_without_success_is_not_shown_as_one_that_always_fails():
    """Its episodes last to the time limit; what counts is the return."""
    batch = evaluation.EpisodeBatch(
        *(np.ones(2) for _ in range(8)), crossing=np.zeros(2, bool), metrics={}, has_success=False
    )
    found = evaluation._summarise(rail_environment(RAILS), [batch], 100)
    names, cells = (column.cells for column in evaluation_table([found], "").columns)
    shown = dict(zip(names, cells, strict=True))
    assert (shown["success"], shown["  95 % interval"], shown["return"]) == ("none", "", "1.00")


def test_rates_are_shares_of_the_decisions_that_were_made():
    # 32 decisions in all; 4 and 1.6 of them acted upon
    found = summary(interventions=[4.0, 0, 0, 0], braked=[0, 1.6, 0, 0])
    assert found.intervention_rate == pytest.approx(4 / 32)
    assert found.brake_rate == pytest.approx(1.6 / 32)


def test_the_time_to_success_is_the_median_of_the_successes():
    durations = [1.0, 3.0, 2.0, 40.0]
    assert summary(success=[1, 1, 1, 0], duration_s=durations).time_to_success_s == 2.0
    none = summary(duration_s=durations)
    assert np.isnan(none.time_to_success_s)
    assert none.to_dict()["time_to_success_s"] is None


@pytest.mark.parametrize("good", [0, 3, 4])
def test_the_interval_of_the_success_is_wilsons(good):
    z, n, share = 1.959964, 4, good / 4
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    found = summary(success=[1] * good + [0] * (4 - good))
    assert found.success == share
    assert found.success_low == pytest.approx(middle - half, abs=1e-6)
    assert found.success_high == pytest.approx(middle + half, abs=1e-6)


def test_no_contact_in_n_episodes_still_leaves_a_rate():
    # none in 4: the rate that would show none with probability 0.05; about 3 / n for many
    assert summary().contact_rate_high == pytest.approx(1 - 0.05**0.25)
    assert summary(contacts=[0, 7, 0, 0]).contact_rate_high > 1 - 0.05**0.25


def crossing_of(*paths):
    """Return whether straight paths ((start, goal) by robot) cross."""
    starts, goals = (np.array([path[end] for path in paths], float).T[..., None] for end in (0, 1))
    scene = SimpleNamespace(robots=SimpleNamespace(position_world=starts))
    scenario = SimpleNamespace(signals=lambda task, _: {"goal_world": task})
    stage = SimpleNamespace(scene=lambda _: scene, scenario=scenario)
    return bool(crossing_paths(stage, SimpleNamespace(task=goals))[0])


@pytest.mark.parametrize(
    ("paths", "crosses"),
    [
        ([((-1, 0), (1, 0)), ((0, -1), (0, 1))], True),  # a plain cross
        ([((-1, 0), (1, 0)), ((-1, 1), (1, 1))], False),  # side by side
        ([((-1, 0), (1, 0)), ((0, 0.5), (0, 1))], False),  # would cross if it were longer
        ([((-1, 0), (1, 0)), ((1.5, -1), (1.5, 1))], False),  # crosses the line beyond the goal
        ([((-1, 0), (1, 0)), ((0, 0), (0, 1))], False),  # begins on the other's path
        ([((-1, 0), (1, 0)), ((1, 0), (-1, 0))], False),  # one line, opposite ways
        ([((-1, -1), (1, 1)), ((-1, 1), (1, -1))], True),  # diagonals
        ([((2, 2), (2, 1)), ((-1, 0), (1, 0.1)), ((0.1, -1), (0, 1))], True),  # the last two
        ([((2, 2), (2, 1)), ((-1, 0), (1, 0)), ((-1, 1), (1, 1))], False),
    ],
)
def test_crossing_paths_of_hand_drawn_segments(paths, crosses):
    assert crossing_of(*paths) is crosses
    backwards = [(goal, start) for start, goal in reversed(paths)]
    assert crossing_of(*backwards) is crosses


def test_paths_in_space_are_seen_from_above():
    """In worlds of an environment, as an evaluation asks for them."""
    starts, goals = ((-1, 0, 1.0), (0, -1, 0.2)), ((1, 0, 1.0), (0, 1, 0.2))
    scenario = Rails(starts=(starts, starts), goals=(goals, starts), speeds=((0.0, 0.0),) * 2)
    environment = rail_environment(scenario, "crazyflie_2x")
    world = jax.jit(environment.reset)(jax.vmap(jax.random.key)(np.arange(2)))
    assert crossing_paths(environment, world).tolist() == [True, False]


@pytest.fixture(scope="module")
def tested(tiny_run, quick):
    return load_policy_under_test(tiny_run)


def short(tested, team_size, horizon_s=3.0, **options):
    """Return its environment with episodes of a few seconds."""
    environment = tested.environment(team_size, **options)
    return replace(environment, scenario=environment.scenario.with_horizon(horizon_s))


@pytest.fixture(scope="module")
def pair(tested):
    """Return the environment of two robots and its compiled functions; with four worlds they are those of the verb."""
    environment = short(tested, 2)
    return environment, compiled_programs(environment)


def test_committed_seeds_give_the_same_numbers_and_other_seeds_do_not(tested, pair):
    environment, programs = pair
    first, again = (evaluate_policy(environment, tested.policy, tested.memory, 4, programs=programs) for _ in range(2))
    assert first.to_dict() == again.to_dict()
    assert first.first_seed == HELD_OUT_SEED
    others = evaluate_policy(environment, tested.policy, tested.memory, 4, HELD_OUT_SEED + 4, programs=programs)
    assert others.minimum_separation_m != first.minimum_separation_m


def test_artefact_and_checkpoint_give_the_same_evaluation(tested, tiny_export, pair):
    artefact = load_policy_under_test(tiny_export.path)
    assert (artefact.scenario, artefact.memory) == (tested.scenario, tested.memory)
    assert (artefact.spec, artefact.team_size) == (tested.spec, tested.team_size)
    assert artefact.shield == tested.shield
    environment, programs = pair
    by_jax = evaluate_policy(environment, tested.policy, tested.memory, 4, programs=programs).to_dict()
    by_graph = evaluate_policy(short(artefact, 2), artefact.policy, artefact.memory, 4).to_dict()
    assert by_jax.pop("metrics") == by_graph.pop("metrics") == {}
    # float32 rounds differently in graph and JAX; in three seconds it does not grow
    assert by_graph == pytest.approx(by_jax, abs=1e-3, nan_ok=True)


def test_a_policy_is_evaluated_with_another_team_size(tested):
    found = evaluate_policy(short(tested, 3, 1.0), tested.policy, tested.memory, 4)
    assert found.team_size == 3
    assert found.contacts == 0


def test_without_the_shield_the_same_policy_touches(tested):
    # the negative control: four robots straight to their goals; with the shield nothing touches
    straight_on = jax.jit(straight)
    bare, shielded = (
        evaluate_policy(short(tested, 4, 7.0, shielded=is_shielded), straight_on, 0, 32)
        for is_shielded in (False, True)
    )
    assert bare.contacts > 0
    assert bare.intervention_rate == 0
    assert shielded.contacts == 0
    assert shielded.intervention_rate > 0
    assert shielded.minimum_separation_m > 2 * RADIUS > bare.minimum_separation_m
    assert bare.crossing_share == shielded.crossing_share > 0


@pytest.mark.parametrize(
    ("episodes", "seed", "message"),
    [
        (0, 0, "--episodes: found 0"),
        (-3, 0, "--episodes: found -3"),
        (1, -1, "--seed: found -1"),
        (10, 2**31 - 5, "--seed"),
    ],
)
def test_episodes_that_cannot_be_are_refused(episodes, seed, message):
    with pytest.raises(TestudoError, match=message):
        evaluate_policy(rail_environment(RAILS), stand, 0, episodes, seed)


@pytest.mark.parametrize(("team_size", "message"), [(1, "at least 2 robots"), (90, "do not fit")])
def test_a_team_that_cannot_be_is_refused(tested, team_size, message):
    with pytest.raises(TestudoError, match=message):
        tested.environment(team_size)
