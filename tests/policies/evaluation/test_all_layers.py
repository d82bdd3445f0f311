"""Evaluation as deployed: the episodes of layer 1 alone, with all layers, asynchronous ticks and messages by echo."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.evaluation.test_evaluation import RADIUS, straight

from testudo_deploy.cli import main
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.commands import evaluate as verb
from testudo_policies.evaluation import evaluation
from testudo_policies.evaluation.evaluation import (
    HELD_OUT_SEED,
    Evaluation,
    _keep,
    _still_running,
    compiled_programs,
    evaluate_policy,
)
from testudo_policies.evaluation.policy_under_test import load_policy_under_test
from testudo_policies.learning.builder import make_environment
from testudo_sim.deployed_environment import STRIDE, DeployedEnvironment
from testudo_sim.physics_choice import PhysicsChoice

pytestmark = pytest.mark.usefixtures("quick")

HORIZON_S = 7.0


def short(environment, horizon_s=HORIZON_S):
    return replace(environment, scenario=environment.scenario.with_horizon(horizon_s))


@pytest.fixture(scope="module")
def tested(tiny_run, quick):
    return load_policy_under_test(tiny_run)


@pytest.fixture(scope="module")
def team_of_four(tested):
    return short(tested.environment(4, all_layers=True))


@pytest.fixture(scope="module")
def programs(team_of_four):
    return compiled_programs(team_of_four)


WORLDS = jax.vmap(jax.random.key)(jnp.arange(32))


def test_the_episodes_are_those_of_layer_1(tested, team_of_four, programs):
    deployed, alone = programs.reset(WORLDS), jax.jit(tested.environment(4).reset)(WORLDS)
    for name in ("velocity_lag_s", "message_loss", "scale"):
        assert np.array_equal(getattr(deployed.team.parameters, name), getattr(alone.team.parameters, name)), name
    scenes = [team_of_four.scene(world) for world in (deployed, alone)]
    assert np.array_equal(scenes[0].robots.position_world, scenes[1].robots.position_world)
    assert np.array_equal(deployed.task.goal_world, alone.task.goal_world)


def test_ticks_are_asynchronous_and_messages_take_up_to_their_longest_time(team_of_four, programs):
    state = programs.reset(WORLDS).team
    assert set(np.asarray(state.faults.phase).ravel()) == set(range(STRIDE))
    least, most = np.asarray(state.faults.message_ticks)
    assert (least == 1).all()
    assert set(most) == {STRIDE, 3 * STRIDE // 2, 2 * STRIDE}  # one to two control ticks
    assert team_of_four.deployment.longest_message_ticks == 2 * STRIDE


def test_in_lock_step_robots_tick_together_and_every_message_arrives_at_the_next_tick(team_of_four):
    """As the recordings of fleets in lock-step have it; the control is the test above."""
    timed = team_of_four.in_lock_step
    parameters = jax.jit(timed.draw_start)(WORLDS)[1]
    faults = timed._faults(WORLDS, parameters)
    assert (np.asarray(faults.phase) == 0).all()
    assert (np.asarray(faults.message_ticks) == STRIDE).all()
    assert (np.asarray(parameters.message_loss) == 0).all()


@pytest.mark.slow
def test_all_layers_keep_a_team_apart_that_touches_without_them(team_of_four, programs, monkeypatch):
    """The negative control is the same deployed team with its layers off.

    In `make test` tests/sim/team/test_deployed_team.py shows both with three robots that meet.
    """
    monkeypatch.setattr(evaluation, "_SHRINK", 0.0)  # one size, one program
    off = replace(
        team_of_four,
        team=replace(team_of_four.team, shielded=False),
        deployment=replace(team_of_four.deployment, gate=False),
    )
    straight_on = jax.jit(straight)
    shielded = evaluate_policy(team_of_four, straight_on, 0, 32, programs=programs)
    bare = evaluate_policy(off, straight_on, 0, 32)
    assert bare.contacts > 0
    assert bare.intervention_rate == 0
    assert shielded.contacts == 0
    assert shielded.minimum_separation_m > 2 * RADIUS > bare.minimum_separation_m
    assert 0 < shielded.intervention_rate <= 1
    assert shielded.brake_rate <= 1
    assert (shielded.layers, shielded.name) == ("all", "4, layers all")
    assert shielded.horizon_s == HORIZON_S


def test_worlds_that_are_dropped_leave_the_others_as_they_were(programs):
    """A fixed share is kept, which fills up with finished worlds."""
    world = jax.tree.map(lambda x: np.asarray(x)[..., :8] if x.ndim else x, programs.reset(WORLDS))
    open_ = np.array([False, True, False, False, False, False, False, False])
    chosen = _still_running(open_)
    assert chosen.tolist() == [0, 1]
    kept = _keep(world, chosen)
    assert np.array_equal(kept.task.goal_world[..., 1], world.task.goal_world[..., 1])
    assert kept.team.number.shape == ()
    shapes = {leaf.shape[-1] for leaf in jax.tree.leaves(kept) if leaf.ndim}
    assert shapes == {2}


def test_the_verb_shows_layer_1_and_all_layers_side_by_side(tiny_run, tmp_path, capsys, monkeypatch):
    ran = []

    def found(environment, _policy, _memory, episodes, seed, _done, _programs, **_options):
        ran.append((environment.layers, environment.team.size, episodes, seed))
        deployed = environment.layers == "all"
        return Evaluation(
            team_size=environment.team.size, episodes=episodes, first_seed=seed, horizon_s=40.0, crossing_share=0.5,
            success=1.0, success_low=0.5, success_high=1.0, contacts=0, episodes_with_contact=0,
            contact_rate_high=0.5, minimum_separation_m=0.3, separation_p1_m=0.3, intervention_rate=0.5,
            brake_rate=0.0, deadlocks=0, time_to_success_s=12.0 if deployed else 11.0, layers=environment.layers,
        )  # fmt: skip

    monkeypatch.setattr(verb, "evaluate_policy", found)
    numbers = tmp_path / "numbers.json"
    words = ["evaluate", tiny_run, "--layers", "all", "--episodes", "2", "--team-size", "2", "--json", numbers]
    words += ["--baselines", "none"]
    assert main([str(word) for word in words]) == 0
    shown = capsys.readouterr().out
    assert "2 robots, layer 1" in shown
    assert "2 robots, all layers" in shown
    assert "simulation step" in shown
    # the same seeds for both
    assert ran == [(layers, 2, 2, HELD_OUT_SEED) for layers in ("1", "all")]
    values = json.loads(numbers.read_text())
    assert [item["layers"] for item in values] == ["1", "all"]
    # files of earlier versions have no such key
    earlier = {name: value for name, value in values[0].items() if name != "layers"}
    assert Evaluation.from_dict(earlier).name == "2"


def test_what_is_not_deployed_is_refused(tiny_run, capsys):
    assert main(["evaluate", str(tiny_run), "--layers", "all", "--no-shield"]) != 0
    assert "--no-shield" in capsys.readouterr().err


def test_a_box_starts_where_it_does_under_layer_1_and_needs_a_tier_that_moves_it():
    spec, physics = load_robot("gritsbot_x"), PhysicsChoice("mujoco", form="planar")
    environment = make_environment("push_box", spec, projection_parameters(spec), 2, physics=physics)
    deployed = DeployedEnvironment.of(environment, physics)
    boxes = [
        jax.jit(lambda keys, own=each: own.scene(own.reset(keys)).bodies)(WORLDS[:2])
        for each in (environment, deployed)
    ]
    assert boxes[0].position_world.shape == (2, 1, 2)
    assert np.array_equal(boxes[0].position_world, boxes[1].position_world)
    assert np.array_equal(boxes[0].yaw, boxes[1].yaw)
    with pytest.raises(TestudoError, match="--physics kinematic: this scenario has boxes"):
        DeployedEnvironment.of(environment, PhysicsChoice())
