"""Entities in a film: those that are there move along, those that are not are outside of the picture."""

from types import SimpleNamespace

import numpy as np

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.spec import load_robot
from testudo_policies.evaluation.episode_entities import EpisodeEntities, over_ticks
from testudo_sim.scenarios.scenario import make_scenario

SPEC = load_robot("gritsbot_x")
AWAY = 100.0


def entities_of(name):
    scenario = make_scenario(name, SPEC, projection_parameters(SPEC))
    team = SimpleNamespace(model=SimpleNamespace(spec=SPEC))
    return EpisodeEntities.of(SimpleNamespace(scenario=scenario, team=team))


def test_every_entity_has_a_box_and_goals_and_real_bodies_have_none():
    counts = {name: len(entities_of(name).boxes) for name in ("foraging", "discovery", "predator_prey", "navigation")}
    assert counts == {"foraging": 2, "discovery": 6, "predator_prey": 1, "navigation": 0}
    assert entities_of("push_box").boxes == ()


def test_a_resource_that_was_foraged_is_out_of_the_picture():
    place = np.broadcast_to(np.array([[0.1, 0.2], [0.3, 0.4]])[:, :, None, None], (2, 2, 3, 1))
    valid = np.broadcast_to(np.array([[1.0, 0.0]])[:, :, None, None], (1, 2, 3, 1))
    found = entities_of("foraging").places_world({"resource_position_world": place, "resource_valid": valid})
    assert found.tolist() == [[0.1, 0.3], [AWAY, AWAY]]


def test_an_entity_moves_during_a_decision_and_one_that_comes_or_goes_does_so_at_its_end():
    before, after = np.array([[0.0, 0.0], [1.0, 1.0], [AWAY, AWAY]]), np.array([[0.3, 0.0], [AWAY, AWAY], [2.0, 2.0]])
    found = over_ticks(before, after, 3)
    np.testing.assert_allclose(found[:, 0, 0], [0.1, 0.2, 0.3])
    assert found[:, 1, 0].tolist() == [1.0, 1.0, AWAY]
    assert found[:, 2, 0].tolist() == [AWAY, AWAY, 2.0]
