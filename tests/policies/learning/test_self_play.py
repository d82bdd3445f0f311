"""Self-play: who drives by which policy, who learns and who does not, what a best response finds, and a resume."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.learning.guide_task import in_task
from tests.policies.learning.two_places_task import OPTIONS
from tests.policies.quick import TINY, assert_equal_trees

from testudo_hardware.errors import TestudoError
from testudo_policies.evaluation.policy_under_test import load_policy_under_test
from testudo_policies.learning import training_run
from testudo_policies.learning.builder import build
from testudo_policies.learning.checkpoints import blank_state
from testudo_policies.learning.opponents import actor_only
from testudo_policies.learning.run_files import Checkpoints
from testudo_policies.learning.self_play import with_opponent
from testudo_policies.learning.train_state import first_features
from testudo_policies.learning.training_run import load_opponent, load_parameters, train_run
from testudo_sim.scenarios.robotarium_task import RobotariumTask
from testudo_sim.scenarios.roles import Role, Roles, trait_values
from testudo_sim.scenarios.scenario import StartState, TaskStep

pytestmark = pytest.mark.usefixtures("quick")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Traits:
    """Who is who."""

    traits: dict[str, jax.Array]


@dataclass(frozen=True, kw_only=True)
class SidesTask(RobotariumTask):
    """Matching sides: the searcher wins where both robots are left, or both right; the tagger where they are not."""

    name: str = "sides"

    @property
    def roles(self) -> Roles:
        """Named as those of the scenario in whose place the task stands."""
        return Roles((Role("searcher", {"sign": 1.0}), Role("tagger", {"sign": -1.0})))

    @property
    def task_signals(self):
        """Who is who."""
        return self.roles.signals

    def start(self, key: jax.Array, team_size: int) -> StartState:
        """Far apart, on neither side."""
        place = jnp.array([[-0.8, 0.8], [0.0, 0.0]])
        return StartState(place, jnp.zeros(team_size), Traits(self.roles.traits(team_size, self.name)))

    def signals(self, task: Traits, scene) -> Mapping[str, jax.Array]:
        """See `task_signals`."""
        return trait_values(task.traits)

    def advance(self, task: Traits, before, after, keys) -> TaskStep:
        """The product of both sides, to the searcher and from the tagger."""
        both = jnp.prod(after.robots.position_world[1], axis=0)
        return TaskStep(task, {"alike": 4 * jnp.stack([both, -both])}, None)

    def nominal_world(self, task: Traits, scene) -> jax.Array:
        """Nobody moves."""
        return jnp.zeros_like(scene.robots.position_world)


SIDES = replace(OPTIONS, sharing="role", worlds=32, decisions=32 * 16 * 18)
PLAY = replace(
    TINY, scenario="chase", sharing="role", change_price=0.0, self_play=2, worlds=16, rollout=30, decisions=16 * 30 * 6
)
"""Six updates: the second policy of the pool, and the second match, begin with the fifth."""


def going_left(parameters):
    """Return parameters by which every tagger drives to the left."""
    layers = parameters.actor["params"]
    bias = layers["mean"]["bias"].at[1, :2].set(jnp.array([0.0, 2.0]))
    return replace(parameters, actor={"params": {**layers, "mean": {**layers["mean"], "bias": bias}}})


def test_a_best_response_beats_a_fixed_opponent_which_does_not_change():
    learner = in_task(build(replace(SIDES, against="runs/theirs", role="searcher")), SidesTask).learner
    state, update = learner.start(jax.random.key(0)), jax.jit(learner.update)
    begin, opponent = state.parameters, going_left(state.parameters)
    state, earned = with_opponent(state, opponent), []
    for _ in range(18):
        state, metrics = update(state)
        earned.append(float(metrics["pool/return_searcher"]))
    assert float(metrics["pool/wins_searcher"]) > 0.95
    assert earned[-1] > 5
    assert earned[-1] > earned[4] + 2
    assert float(metrics["pool/elo_searcher"]) > 1000
    assert "pool/elo_tagger" not in metrics
    assert float(metrics["train/not_counted"]) == 0
    assert_equal_trees(*(jax.tree.map(lambda x: x[1], x.actor) for x in (begin, state.parameters)))
    kept = jax.tree.map(lambda x: x[0], state.rollout.league.pool.policies)
    assert_equal_trees(kept, actor_only(opponent))


def test_each_slot_of_worlds_has_its_opponent_and_who_learns_drives_by_the_newest_policy():
    components = in_task(build(replace(SIDES, self_play=3)), SidesTask)
    learner: Any = components.learner
    agent, state = components.agent, learner.start(jax.random.key(0))

    @jax.jit  # one program instead of one for each operation
    def acted(state):
        moved = [jax.tree.map(lambda x, k=k: x + 0.1 * k, actor_only(state.parameters)) for k in range(1, 4)]
        pool = replace(state.rollout.league.pool, policies=jax.tree.map(lambda *x: jnp.stack(x), *moved))
        league = replace(state.rollout.league, pool=pool, drawn=jnp.arange(16) % 3)
        features, _ = first_features(agent, components.environment, state.rollout)
        seen = jax.tree.map(lambda x: x[None], features), jnp.zeros((64, 0)), jnp.zeros((1, 64), bool)
        each = [agent.act(one, *seen)[0][0] for one in (state.parameters, *moved)]
        return learner._act(league, state.parameters, *seen)[0][0], each

    found, each = jax.tree.map(lambda logits: np.asarray(logits).reshape(32, 2, -1), acted(state))
    for slot in range(16):
        world, opponent = 2 * slot + 1, each[1 + slot % 3]
        learning = [slot < 12, slot < 8 or slot >= 12]  # eight slots of both, four of each role
        for robot, learns in enumerate(learning):
            expected = each[0] if learns else opponent
            np.testing.assert_allclose(found[world, robot], expected[world, robot], atol=1e-5)
            assert learner._learns.reshape(32, 2)[world, robot] == learns


@pytest.fixture(scope="module")
def chase(quick):
    """Return the parts of a tiny run of self-play, and its compiled update."""
    components = build(PLAY)
    state = components.learner.start.eval_shape(jax.random.key(0))
    return components, jax.jit(components.learner.update).lower(state).compile()


def stop_at_two(progress):
    if progress.update == 2:
        raise KeyboardInterrupt


def interrupted(_):
    raise KeyboardInterrupt


def test_pool_and_ratings_are_kept_in_the_run_which_resumes_bit_for_bit(chase, tmp_path, monkeypatch):
    components, update = chase
    monkeypatch.setattr(training_run, "_compiled", lambda *_: update)
    assert train_run(components, tmp_path / "whole").finished
    assert not train_run(components, tmp_path / "parts", stop_at_two).finished
    assert train_run(components, tmp_path / "parts").finished
    states = []
    for name in ("whole", "parts"):
        with Checkpoints(tmp_path / name, reading=True) as checkpoints:
            states.append(checkpoints.restore(blank_state(components.learner)))
    assert_equal_trees(*states)
    pool = states[0].rollout.league.pool
    assert int(pool.filled) == 2
    assert float(jnp.abs(pool.newest - 1000).max()) > 0
    last = json.loads((tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["pool/policies"] == 2
    assert last["pool/elo_predator"] == pytest.approx(float(pool.newest[0]))
    assert 0 <= last["pool/wins_prey"] <= 1
    response = replace(PLAY, self_play=0, against=str(tmp_path / "whole"), role="prey")
    assert_equal_trees(load_opponent(response), states[0].parameters)
    begun = []
    monkeypatch.setattr(training_run, "_compiled", lambda _, state, __: begun.append(state) or interrupted)
    assert not train_run(build(response), tmp_path / "response").finished
    assert_equal_trees(
        jax.tree.map(lambda x: x[0], begun[0].rollout.league.pool.policies), actor_only(states[0].parameters)
    )
    check_evaluated_beside_its_opponent(tmp_path / "response", response, states[0].parameters)
    with pytest.raises(TestudoError, match=r"--against .*whole: found a run of --width 8, expected 16 as here"):
        load_opponent(replace(response, width=16))


def check_evaluated_beside_its_opponent(folder, config, opponent):
    """In an evaluation prey drives by what the run has learnt, and the predators by their policy of the other run."""
    tested, components = load_policy_under_test(folder), build(config)
    environment = tested.environment(config.team_size)
    robots = 2 * config.team_size

    @jax.jit  # one program instead of one for each operation
    def commanded(keys, *parameters):
        signals = environment.signals(environment.reset(keys))
        signals = {name: value.reshape(-1, *value.shape[2:]) for name, value in signals.items()}
        blank = components.agent.blank_memory(robots)
        each = [components.agent.policy(one)(signals, blank)[0] for one in parameters]
        return tested.policy(signals, jnp.zeros((robots, tested.memory))), *each

    keys = jax.random.split(jax.random.key(0), 2)
    (command, hidden), own, theirs = commanded(keys, load_parameters(components, folder), opponent)
    preys = np.tile(np.array(components.agent.groups) == 1, 2)
    np.testing.assert_allclose(command, np.where(preys[:, None], own, theirs), atol=1e-6)
    assert np.abs(own - theirs)[preys].max() > 1e-4
    assert hidden.shape == (robots, tested.memory)
    assert tested.note == f"a best response: prey has learnt, all others drive by the policy of {config.against}"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"sharing": "shared"}, "--self-play: found --sharing shared, expected role"),
        ({"algorithm": "maddpg", "replay": 64}, "--self-play: found --algorithm maddpg, expected mappo or ippo"),
        ({"against": "runs/x"}, "--self-play: found --against runs/x, expected none"),
        ({"self_play": 0, "role": "prey"}, "--role prey: found no --against; give the run"),
        ({"self_play": 0, "against": "runs/x", "role": "hare"}, "--role: found 'hare', expected one of predator, prey"),
        ({"worlds": 8}, "--worlds: found 8 with --self-play, expected a multiple of 16"),
        ({"scenario": "navigation"}, "--sharing role: scenario 'navigation' declares no roles"),
    ],
)
def test_options_that_do_not_go_together_are_refused(changes, text):
    with pytest.raises(TestudoError, match=text):
        build(replace(PLAY, **changes))
