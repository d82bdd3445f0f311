"""A policy whose robots have parameters of their own is improved as others are; a run of another team is refused."""

from dataclasses import replace
from importlib import resources
from types import SimpleNamespace

import jax
import numpy as np
import onnx
import pytest
from rich.console import Console
from tests.policies.proven_file import trained_and_proven
from tests.policies.quick import TINY
from tests.sim.recorded_run import record_run

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.commands.improve import improve
from testudo_policies.dataset.episodes import episodes_of
from testudo_policies.exporting import packaging, parity
from testudo_policies.improve import comparison
from testudo_policies.improve.discriminators import DiscriminatorConfig
from testudo_policies.improve.fine_tuning import FineTuner
from testudo_policies.improve.initial_policy import GRAPH, find_initial_policy, matches, parameters_of_graph
from testudo_policies.improve.recorded_run import recorded_of
from testudo_policies.improve.steps import ImproveSettings, open_improvement
from testudo_policies.learning.builder import build
from testudo_policies.learning.training_run import load_parameters

pytestmark = pytest.mark.usefixtures("quick")
OWN = replace(TINY, sharing="none", algorithm="ippo")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, quick):
    """Return the parts of a tiny run of robots with parameters of their own, its policy file, and the parameters."""
    components = build(OWN)
    artefact, (_, run) = trained_and_proven(components, None, tmp_path_factory.mktemp("own"))
    return components, artefact, load_parameters(components, run)


@pytest.fixture(scope="module")
def robot_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("robot") / "identified.toml"
    path.write_text(resources.files("testudo_hardware.robots").joinpath("gritsbot_x.toml").read_text())
    return path


@pytest.fixture(scope="module")
def drives(tiny_export):
    """Return a run of a number of robots, which a shared policy drives."""
    artefact = PolicyArtefact.load(tiny_export.path)
    return lambda count: (artefact, record_run(artefact, load_robot("gritsbot_x"), seconds=3.0, count=count))


def same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))


def test_the_networks_of_all_robots_come_back_out_of_the_graph_bit_for_bit(trained):
    components, artefact, parameters = trained
    blank = components.learner.start(jax.random.key(9)).parameters
    found = parameters_of_graph(onnx.load(artefact.path), blank, 1000, components.agent.groups)
    assert same(found.actor, parameters.actor)
    assert matches(components.agent, found, artefact.contract)
    swapped = replace(found, actor=jax.tree.map(lambda x: x[::-1], found.actor))
    assert not matches(components.agent, swapped, artefact.contract)  # the test vector tells the robots apart


def test_fine_tuning_begins_with_the_parameters_of_each_robot(trained, robot_file, tmp_path):
    _, artefact, parameters = trained
    alone = tmp_path / "policy.onnx"
    alone.write_bytes(artefact.path.read_bytes())
    found = find_initial_policy(PolicyArtefact.load(alone), robot_file)
    assert (found.source, found.config.sharing) == (GRAPH, "none")
    assert same(found.parameters.actor, parameters.actor)


def test_recorded_robots_stay_beside_the_simulated_ones_and_each_robot_learns(trained, drives):
    components, _, parameters = trained
    shared, run = drives(2)
    (episode,) = episodes_of(run, shared.contract)
    number = np.broadcast_to(np.arange(2.0, dtype=np.float32)[:, None], (len(episode), 2, 1))
    numbered = replace(
        episode,
        signals={**episode.signals, "robot_number": number},
        next_signals={**episode.next_signals, "robot_number": number},
    )
    recorded = recorded_of([numbered], components, parameters)
    assert recorded.weight.shape[1] % (OWN.minibatches * OWN.team_size) == 0
    seen = np.asarray(recorded.batch.features.own)
    assert {np.ptp(seen[:, robot::2, at]) for robot in (0, 1) for at in _number_places(seen)} == {0.0}
    tuner = FineTuner(
        OWN,
        components.agent,
        components.environment,
        begin=parameters,
        recorded=recorded,
        discriminator_config=DiscriminatorConfig(width=8, steps=2, samples=16),
    )
    once, _ = jax.jit(tuner.update)(jax.jit(tuner.init)(jax.random.key(0)))
    for robot in range(2):
        after, before = (jax.tree.leaves(one.actor) for one in (once.parameters, parameters))
        assert not same([leaf[robot] for leaf in after], [leaf[robot] for leaf in before])


def _number_places(own):
    """Return the features (T, B, F) in which the first robot always has 0 and the second one 1."""
    found = [at for at in range(own.shape[-1]) if (own[:, 0::2, at] == 0).all() and (own[:, 1::2, at] == 1).all()]
    assert found
    return found


@pytest.mark.slow
def test_improve_takes_it_and_exports_a_policy_of_each_robot(trained, robot_file, tmp_path, capsys, monkeypatch):
    """The run is one of another program, without a policy: old and new are compared on the identified model."""
    monkeypatch.setattr(parity, "SLOTS", (1, 3, 8))  # each number of slots is a program to compile
    monkeypatch.setattr(packaging, "_LOOP_STEPS", 100)
    _, artefact, _ = trained
    alone, run, out = tmp_path / "policy.onnx", tmp_path / "run", tmp_path / "better"
    alone.write_bytes(artefact.path.read_bytes())
    run.mkdir()
    status = improve(run, policy=alone, out=out, robot=robot_file, episodes=4, decisions=64)
    assert "starts from: the weights in the artefact's graph" in " ".join(capsys.readouterr().out.split())
    assert status == (0 if (out / "policy.onnx").exists() else 1)
    if status == 0:
        contract = PolicyArtefact.load(out / "policy.onnx").contract
        assert "robot_number" in {signal.name for signal in contract.signals}


def test_its_counterfactual_has_the_numbers_and_takes_its_team_alone(trained, drives, tmp_path, monkeypatch):
    components, artefact, _ = trained
    monkeypatch.setattr(comparison, "_MOMENTS", 1)
    shared, run = drives(2)
    found = comparison.counterfactual(run, shared.contract, components.spec, artefact.path, 2.0, lambda _: None)
    assert found.worlds == comparison._DRAWS
    shared, run = drives(3)
    with pytest.raises(TestudoError, match=r"each robot has its own parameters: found 3 robots in .*, expected 2"):
        comparison.counterfactual(run, shared.contract, components.spec, artefact.path, 2.0, lambda _: None)
    settings = ImproveSettings(tmp_path, artefact.path, tmp_path, "finetune", 1.0, 4, 64)
    with pytest.raises(TestudoError, match=r"found 3 robots, expected 2: each robot of .* has its own parameters"):
        open_improvement(settings, Console(), SimpleNamespace(robots=("r0", "r1", "r2")))
