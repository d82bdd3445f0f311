"""What a scenario learns well with is taken whole, or not at all."""

from dataclasses import replace

from testudo_policies.train_config import SUGGESTED, TrainConfig, suggested


def test_a_scenario_without_a_wish_keeps_the_configuration():
    config = TrainConfig(scenario="navigation", seed=3)
    assert suggested(config) == (config, "")


def test_its_wishes_are_taken_and_told_and_the_rest_stays():
    found, told = suggested(TrainConfig(scenario="swap", seed=3, robot="crazyflie_2x"))
    assert found == replace(TrainConfig(scenario="swap", seed=3, robot="crazyflie_2x"), **SUGGESTED["swap"])
    assert all(f"--{name.replace('_', '-')} " in told for name in SUGGESTED["swap"])


def test_one_option_of_the_users_own_leaves_all_to_the_user():
    for name, wish in SUGGESTED["swap"].items():
        mine = replace(TrainConfig(scenario="swap"), **{name: wish})
        assert suggested(mine) == (mine, "")
