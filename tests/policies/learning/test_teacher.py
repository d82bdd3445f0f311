"""A student learns from a teacher on the states that it visits, then from the reward; it resumes bit for bit."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.policies.quick import TINY, assert_equal_trees

from testudo_hardware.errors import TestudoError
from testudo_policies.commands.train import _teacher_text
from testudo_policies.learning import training_run
from testudo_policies.learning.builder import build
from testudo_policies.learning.teacher import Schedule, teacher_text, with_teacher
from testudo_policies.learning.training_run import load_parameters, load_teacher, train_run

pytestmark = pytest.mark.usefixtures("quick")

TAUGHT = replace(TINY, memory=4, learning_rate=0.05)


@pytest.fixture(scope="module")
def components(tiny_run):
    """A student with memory of a teacher without."""
    return build(replace(TAUGHT, teacher=_teacher_text(str(tiny_run))))


# compiling it takes most of the time of this file: what needs it is slow
@pytest.fixture(scope="module")
def update(components):
    state = components.learner.start.eval_shape(jax.random.key(0))
    return jax.jit(components.learner.update).lower(state).compile()


def turned(parameters):
    """Return a teacher that wants to turn to the left, whatever it sees."""
    layers = parameters.actor["params"]
    bias = layers["mean"]["bias"].at[1].add(1.0)
    return replace(parameters, actor={"params": {**layers, "mean": {**layers["mean"], "bias": bias}}})


def test_the_schedule_imitates_alone_and_then_leaves_the_teacher():
    schedule = Schedule(updates=100, imitation=0.4, divergence=2.0)
    found = [tuple(map(float, schedule.weights(jnp.int32(update)))) for update in (0, 39, 40, 70, 100)]
    assert found == [(0, 2), (0, 2), (1, 2), (1, pytest.approx(1)), (1, 0)]
    assert tuple(map(float, Schedule(10, 1.0, 1.0).weights(jnp.int32(9)))) == (0, 1)


@pytest.mark.slow
def test_a_student_comes_to_act_as_its_teacher_on_its_own_states_and_without_one_it_does_not(
    components, update, tiny_run
):
    """The control is the same program with no weight on the divergence: the reward alone does not teach this."""
    teacher = turned(load_parameters(build(TINY), tiny_run))
    begin = with_teacher(components.learner.start(jax.random.key(0)), teacher)
    state, found = begin, []
    for _ in range(60):
        state, metrics = update(replace(state, updates=jnp.int32(0)))  # imitates all the time
        found.append(float(metrics["loss/divergence"]))
    assert float(metrics["teacher/reward_weight"]) == 0
    assert found[-1] < 0.3 * found[0]
    assert_equal_trees(state.rollout.taught.parameters, begin.rollout.taught.parameters)  # it never learns
    last = begin
    for _ in range(60):
        last, metrics = update(replace(last, updates=jnp.int32(4)))  # the end: the reward alone
    assert float(metrics["teacher/divergence_weight"]) == 0
    assert float(metrics["loss/divergence"]) > 0.6 * found[0]


@pytest.mark.slow
def test_a_run_with_a_teacher_resumes_to_the_same_bits_without_the_teachers_folder(
    components, update, tmp_path, monkeypatch
):
    monkeypatch.setattr(training_run, "_compiled", lambda *_: update)
    whole = train_run(components, tmp_path / "whole")
    calls = []

    def stopped(state):
        calls.append(1)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return update(state)

    monkeypatch.setattr(training_run, "_compiled", lambda *_: stopped)
    assert not train_run(components, tmp_path / "stopped").finished
    monkeypatch.setattr(training_run, "_compiled", lambda *_: update)
    monkeypatch.setattr(training_run, "load_teacher", lambda _: pytest.fail("a resumed run asks for its teacher"))
    again = train_run(components, tmp_path / "stopped")
    assert again.finished
    assert_equal_trees(again.parameters, whole.parameters)
    lines = [json.loads(line) for line in (tmp_path / "stopped" / "metrics.jsonl").read_text().splitlines()]
    assert [line["teacher/reward_weight"] for line in lines] == [0, 0, 1, 1]
    assert np.isfinite([line["loss/divergence"] for line in lines]).all()


def test_a_teacher_that_cannot_say_what_to_do_is_refused_with_a_sentence(tiny_run, tmp_path):
    text = _teacher_text(str(tiny_run))
    for changes, sentence in (
        ({"algorithm": "hasac"}, "--teacher: found --algorithm hasac, expected mappo or ippo"),
        ({"robot": "turtlebot3_burger"}, "found a policy for gritsbot_x, expected one for turtlebot3_burger"),
        ({"message": 2}, "--message: found none, expected 2 as the student"),
        ({"scenario": "discovery"}, "found scenario 'navigation', expected 'discovery'"),
        ({"imitation": 1.5}, "--imitation: found 1.5, expected 0 to 1"),
    ):
        with pytest.raises(TestudoError, match=sentence):
            build(replace(TAUGHT, teacher=text, **changes)).learner  # noqa: B018
    with pytest.raises(TestudoError, match="not a training run"):
        _teacher_text(str(tmp_path))
    with pytest.raises(TestudoError, match="another configuration than when this one was begun"):
        load_teacher(replace(TAUGHT, teacher=teacher_text(tiny_run, replace(TINY, seed=3))))
