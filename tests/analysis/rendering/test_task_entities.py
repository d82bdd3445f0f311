"""Entities in a film: those that are there move along, those that are not are outside of the picture."""

from types import SimpleNamespace

import numpy as np

from testudo_analysis.rendering.task_entities import TaskEntities, moved
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.spec import load_robot
from testudo_sim.scenarios.scenario import make_scenario

SPEC = load_robot("gritsbot_x")
AWAY = 100.0


def entities_of(name):
    scenario = make_scenario(name, SPEC, projection_parameters(SPEC))
    return TaskEntities.of(scenario.task_signals, [box.name for box in scenario.boxes], SPEC.body_radius_m)


def test_every_entity_has_a_box_and_goals_and_real_bodies_have_none():
    counts = {name: len(entities_of(name).boxes) for name in ("foraging", "discovery", "predator_prey", "navigation")}
    assert counts == {"foraging": 2, "discovery": 6, "predator_prey": 1, "navigation": 0}
    assert entities_of("push_box").boxes == ()


def test_a_resource_that_was_foraged_is_out_of_the_picture():
    named = {"resource_position_world": np.array([[0.1, 0.3], [0.2, 0.4]]), "resource_valid": np.array([[1.0], [0.0]])}
    found = entities_of("foraging").places_world(named)
    assert found.tolist() == [[0.1, 0.3], [AWAY, AWAY]]


def test_an_entity_moves_during_a_decision_and_one_that_comes_or_goes_does_so_at_its_end():
    before, after = np.array([[0.0, 0.0], [1.0, 1.0], [AWAY, AWAY]]), np.array([[0.3, 0.0], [AWAY, AWAY], [2.0, 2.0]])
    found = moved(before, after, np.array([1, 2, 3]) / 3)
    np.testing.assert_allclose(found[:, 0, 0], [0.1, 0.2, 0.3])
    assert found[:, 1, 0].tolist() == [1.0, 1.0, AWAY]
    assert found[:, 2, 0].tolist() == [AWAY, AWAY, 2.0]


def test_a_prey_in_a_recording_is_where_the_task_node_said_it_was():
    """At the task's start until the first decision, at the end of each where its score says, and between them."""

    def at(x):
        return {"prey_position_world": [x, 0.5]}

    message = SimpleNamespace(values={name: tuple(value) for name, value in at(-1.0).items()})
    scores = ({"state": "waiting"}, {"stamp_s": 11.0, "signals": {"r0": at(0.0)}})
    run = SimpleNamespace(robots=("r0", "r1"), task_messages={"r0": (message,)}, task_scores=scores)
    prey, times = entities_of("predator_prey"), np.array([9.0, 10.0, 10.5, 11.0, 11.75, 13.0])
    assert prey.recorded_world(run, times) is None  # too little was said
    run.task_scores = (*scores, {"stamp_s": 12.0, "signals": {"r0": at(1.0)}})
    found = prey.recorded_world(run, times)
    assert found[:, 0].tolist() == [[x, 0.5] for x in (-1.0, -1.0, -0.5, 0.0, 0.75, 1.0)]
