"""Roles: who has which, the traits that follow, and that signals and fleet file come from the declaration."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from testudo_deploy.contract.contract import NEIGHBOURS, Signal
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_sim.online_task.task_state import make_task, values_of
from testudo_sim.scenarios import scenario_check
from testudo_sim.scenarios.material_transport import MaterialTransport
from testudo_sim.scenarios.roles import Role, Roles, trait_values
from testudo_sim.scenarios.scenario_check import check_scenario

SPEC = load_robot("gritsbot_x")
SHARED = Roles((Role("near", {"reach": (1.0, 0.0)}), Role("far", {"reach": (0.0, 2.0)})), {"reach": "m"})


def test_roles_without_a_count_share_the_team_and_the_first_have_one_more():
    assert [role.name for role in SHARED.of_team(5, "task")] == ["near"] * 3 + ["far"] * 2
    assert SHARED.traits(3, "task")["reach"].tolist() == [[1, 1, 0], [0, 0, 2]]


def test_counts_are_those_of_the_team():
    roles = Roles((Role("scout", {"speed": 1.0}, 2), Role("hauler", {"speed": 0.5}, 1)))
    assert roles.traits(3, "task")["speed"].tolist() == [1, 1, 0.5]
    with pytest.raises(TestudoError, match="task: found a team of 4, expected 3: 2 scout, 1 hauler"):
        roles.traits(4, "task")


def test_roles_without_a_count_share_what_those_with_one_leave():
    one_prey = Roles((Role("predator", {"speed": 0.8}), Role("prey", {"speed": 1.0}, 1)))
    assert [role.name for role in one_prey.of_team(4, "task")] == ["predator"] * 3 + ["prey"]
    with pytest.raises(TestudoError, match="task: found a team of 1, expected at least 2: 1 or more predator, 1 prey"):
        one_prey.of_team(1, "task")


def test_roles_with_other_traits_are_refused():
    with pytest.raises(TestudoError, match=r"found the traits .*'range'"):
        replace(SHARED, roles=(SHARED.roles[0], replace(SHARED.roles[1], traits={"range": (0.0, 2.0)})))


def test_a_trait_may_follow_from_the_number_of_the_robot():
    assert Roles((Role("forager", {"level": float}),)).traits(3, "task")["level"].tolist() == [1, 2, 3]


def test_traits_are_signals_of_the_robot_and_of_its_peers():
    own, peers = SHARED.signals
    assert own == Signal("reach", (2,), "m", "", None)
    assert peers == Signal("neighbour_reach", (NEIGHBOURS, 2), "m", "", None)
    values = trait_values({"reach": np.zeros((2, 3, 4)), "speed": np.zeros((3, 4))})
    assert {name: value.shape for name, value in values.items()} == {"reach": (2, 3, 4), "speed": (1, 3, 4)}


def test_a_fleet_file_states_the_traits_or_leaves_them_to_the_roles():
    scenario = MaterialTransport.create(SPEC, projection_parameters(SPEC))
    start = values_of(scenario.start(jax.random.key(0), 4).task)
    assert start["traits.capacity"] == [5.0, 5.0, 15.0, 15.0]
    goals = [(0.0, 0.0)] * 4
    without = {name: value for name, value in start.items() if not name.startswith("traits")}
    assert make_task(scenario, goals, without).traits["capacity"][:, 0].tolist() == [5, 5, 15, 15]
    stronger = without | {"traits.capacity": [5, 5, 15, 20]}
    assert make_task(scenario, goals, stronger).traits["capacity"][:, 0].tolist() == [5, 5, 15, 20]


def test_a_scenario_whose_signal_is_not_the_declared_trait_is_refused(monkeypatch):
    class Broken(MaterialTransport):
        def signals(self, task, scene):
            named = super().signals(task, scene)
            return {**named, "capacity": 2 * named["capacity"]}

    monkeypatch.setattr(scenario_check, "make_scenario", lambda _name, spec, shield: Broken.create(spec, shield))
    with pytest.raises(
        TestudoError, match="material_transport: the signal capacity begins as the trait that the roles declare; found"
    ):
        check_scenario("material_transport", SPEC, 4)
