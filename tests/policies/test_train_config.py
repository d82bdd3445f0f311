"""What a scenario learns well with is taken whole, or not at all."""

from dataclasses import replace

import pytest

from testudo_policies.train_config import SUGGESTED, TrainConfig, for_fine_tuning, suggested


def test_a_scenario_without_a_wish_keeps_the_configuration():
    config = TrainConfig(scenario="navigation", seed=3)
    assert suggested(config) == (config, "")


@pytest.mark.parametrize("name", SUGGESTED)
def test_its_wishes_are_taken_and_told_and_the_rest_stays(name):
    found, told = suggested(TrainConfig(scenario=name, seed=3, robot="robomaster_s1"))
    assert found == replace(TrainConfig(scenario=name, seed=3, robot="robomaster_s1"), **SUGGESTED[name])
    assert all(f"--{option.replace('_', '-')} {wish}" in told for option, wish in SUGGESTED[name].items())


@pytest.mark.parametrize("name", SUGGESTED)
def test_one_option_of_the_users_own_leaves_all_to_the_user(name):
    for option, wish in SUGGESTED[name].items():
        mine = replace(TrainConfig(scenario=name), **{option: wish})
        assert suggested(mine) == (mine, "")


def test_a_trainer_that_takes_no_way_points_is_wished_none():
    config = TrainConfig(scenario="rware", trainer="brax-ppo")
    assert suggested(config) == (config, "")
    assert suggested(TrainConfig(scenario="swap", trainer="brax-ppo"))[1]


def test_ppo_goes_on_from_the_policy_of_any_algorithm_with_its_own_options():
    mine = TrainConfig(scenario="rware", seed=3)
    assert for_fine_tuning(mine) == mine
    chosen, _ = suggested(replace(mine, algorithm="pqn-vdn"))
    assert for_fine_tuning(chosen) == replace(mine, command="waypoints")
