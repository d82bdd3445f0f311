"""A shared trunk: its gradient is the sum over the scenarios, heads are apart, and each policy is an ordinary one."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.quick import TINY, assert_equal_trees

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.errors import TestudoError
from testudo_policies.commands.export import export
from testudo_policies.commands.train import train
from testudo_policies.evaluation.evaluation import evaluate_policy
from testudo_policies.evaluation.policy_under_test import load_policy_under_test
from testudo_policies.exporting import archive, packaging, parity
from testudo_policies.learning.builder import build
from testudo_policies.learning.checkpoints import load_config
from testudo_policies.learning.shared_trunk import SharedParameters, build_run
from testudo_policies.learning.training_run import load_parameters, train_run, train_shared

pytestmark = pytest.mark.usefixtures("quick")

NAMES = ("navigation", "warehouse")  # 10 and 30 ticks for a decision; other signals, features and rewards
BOTH = replace(TINY, scenario="+".join(NAMES), memory=4)


@pytest.fixture(scope="module")
def components(quick):
    return build_run(BOTH)


def any_values(shapes):
    """Return arrays with random numbers in place of shapes: neither worlds nor networks are compiled for them."""
    rng = np.random.default_rng(0)

    def one(leaf):
        values = rng.uniform(0.1, 1.0, leaf.shape)
        return jnp.ones(leaf.shape, bool) if leaf.dtype == bool else jnp.asarray(values, leaf.dtype)

    return jax.tree.map(one, shapes)


def test_the_trunks_gradient_is_the_sum_and_a_head_is_moved_by_its_own_scenario_alone(components):
    learner, key = components.learner, jax.random.key(1)

    def begin(key):
        state = learner.init(key)
        alone = {
            name: replace(state, parameters=state.parameters.of(name), rollout=state.rollout[name]) for name in NAMES
        }
        return state.parameters, {name: learner.parts[name].live(alone[name], key)[0] for name in NAMES}

    shared, lessons = any_values(jax.eval_shape(begin, key))
    columns = jax.tree.map(lambda x: x[0], learner.shuffled(lessons, key))

    def of_all(learned):
        return learner.loss(shared.with_learned(learned), lessons, columns, key)[0]

    def of_one(networks, name):
        one, step_key = replace(shared.of(name), **networks), jax.random.fold_in(key, NAMES.index(name))
        return learner.parts[name].loss(one, lessons[name], columns[name], step_key)[0]

    (actor, critic, *own) = jax.jit(jax.grad(of_all))(shared.learned)
    apart = {
        name: jax.jit(jax.grad(partial(of_one, name=name)))(
            {kind: getattr(shared.of(name), kind) for kind in ("actor", "critic")}
        )
        for name in NAMES
    }
    assert (set(actor), set(critic)) == ({"memory", "head"}, {"head"})
    for kind, trunk in (("actor", actor), ("critic", critic)):
        first, second = ({layer: apart[name][kind]["params"][layer] for layer in trunk} for name in NAMES)
        assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves((first["head"], second["head"])))
        assert_close(trunk, jax.tree.map(np.add, first, second))
    for name, pair in zip(NAMES, (own[:2], own[2:]), strict=True):
        for kind, found in zip(("actor", "critic"), pair, strict=True):
            layers = apart[name][kind]["params"]
            assert_close(found["params"], {layer: layers[layer] for layer in found["params"]})


def assert_close(first, second):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), first, second)


def test_put_together_the_parameters_of_a_scenario_are_those_that_were_taken_apart():
    def filled(name, value):
        parameters = jax.eval_shape(build(replace(BOTH, scenario=name)).learner.init, jax.random.key(0)).parameters
        return jax.tree.map(lambda x: np.full(x.shape, value, x.dtype), parameters)

    whole = {name: filled(name, number) for number, name in enumerate(NAMES)}
    shared = SharedParameters.of_scenarios(whole)
    assert_equal_trees(shared.of(NAMES[0]), whole[NAMES[0]])
    second = shared.of(NAMES[1]).actor["params"]
    assert {name: float(jax.tree.leaves(layer)[0].max()) for name, layer in second.items()} == {
        "encoder": 1, "memory": 0, "head": 0, "mean": 1, "scale": 1,
    }  # fmt: skip


@pytest.fixture(scope="module")
def run(components, tmp_path_factory):
    """Return the folder of a run that was stopped and went on."""
    folder = tmp_path_factory.mktemp("trunk") / "run"

    def stop(progress):
        if progress.update == 2:
            raise KeyboardInterrupt

    assert not train_shared(components, folder, stop).finished
    assert train(run=folder) == 0
    return folder


def test_each_scenario_has_its_figures(run):
    for name in NAMES:
        part = load_config(run / name)
        assert (part.scenario, part.trunk) == (name, BOTH.scenario)
        rows = (run / name / "metrics.jsonl").read_text().splitlines()
        assert len(rows) == BOTH.updates
        assert '"loss/actor"' in rows[0]
        assert not any(f'"{other}/' in rows[0] for other in NAMES)


@pytest.mark.slow
def test_a_stopped_run_goes_on_bit_for_bit(run, components, tmp_path):
    expected = train_shared(components, tmp_path / "whole").parameters
    for name in NAMES:
        found = load_parameters(build(load_config(run / name)), run / name)
        assert_equal_trees(found, expected.of(name))


def test_the_archive_holds_each_policy_with_its_contract_and_each_is_evaluated(run, monkeypatch, capsys):
    monkeypatch.setattr(parity, "SLOTS", (1, 3))
    monkeypatch.setattr(packaging, "_LOOP_STEPS", 50)
    export(run)
    file = run / archive.ARCHIVE_FILE
    for name in NAMES:
        artefact = PolicyArtefact.load(file / f"{name}.onnx")
        assert (artefact.contract.scenario, artefact.contract.provenance["config"]["trunk"]) == (name, BOTH.scenario)
        assert artefact.contract.parity["max_error"] <= 1e-5
        tested, trained = (load_policy_under_test(path) for path in (file / f"{name}.onnx", run / name))
        results = [
            evaluate_policy(one.environment(BOTH.team_size), one.policy, one.memory, 2, 7) for one in (tested, trained)
        ]
        assert results[0].mean_return == pytest.approx(results[1].mean_return, abs=1e-4)
        assert (run / f"fleet_{name}.yaml").is_file()


def test_what_does_not_go_together_is_refused_in_one_sentence(run):
    with pytest.raises(TestudoError, match="which share a trunk; expected one of them, in a run folder RUN: RUN/navig"):
        load_policy_under_test(run)
    with pytest.raises(TestudoError, match=r"found one of navigation\+warehouse, which are trained together"):
        train_run(build(load_config(run / NAMES[0])), run / NAMES[0])
    with pytest.raises(TestudoError, match="--seeds 2: found several scenarios, expected one"):
        train(BOTH.scenario, seeds=2, config=TINY)
    for changes, text in (
        ({"algorithm": "qmix", "command": "waypoints"}, "--algorithm: found qmix for several scenarios"),
        ({"sharing": "none"}, "--sharing: found none for several scenarios"),
        ({"scenario": "navigation+navigation"}, "expected each scenario once"),
    ):
        with pytest.raises(TestudoError, match=text):
            build_run(replace(BOTH, **changes))
