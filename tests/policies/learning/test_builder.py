"""A training run on a map has its obstacles, and a map that cannot be is refused in one sentence."""

import pytest

from testudo_hardware.errors import TestudoError
from testudo_policies.learning.builder import build
from testudo_policies.train_config import TrainConfig


def test_a_run_on_a_map_has_its_obstacles_in_the_arena_of_scenario_and_shield():
    made = build(TrainConfig(scenario="crossing_map", map="shelves:2", team_size=2))
    assert len(made.obstacles) > 9
    assert made.obstacles == made.environment.scenario.arena.obstacles == made.environment.team.arena.obstacles


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (TrainConfig(map="maze"), "--map: found 'maze', scenario 'navigation' takes none; crossing_map does"),
        (TrainConfig(scenario="crossing_map", map="maze", obstacles="[]"), "--map: found it with --obstacles"),
        (TrainConfig(scenario="crossing_map", map="maze:-1"), "--map: found 'maze:-1', expected a whole number"),
    ],
)
def test_a_map_that_cannot_be_is_refused(config, text):
    with pytest.raises(TestudoError, match=text):
        build(config)
