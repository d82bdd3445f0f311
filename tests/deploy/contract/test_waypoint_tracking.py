"""The tracking law of way-points by numbers worked by hand, and the contract that states it."""

import dataclasses
import json

import array_api_strict
import numpy as np
import pytest
from rich.console import Console
from tests.deploy.tiny_fleet import make_tiny_fleet
from tests.deploy.tiny_policy import draft_contract

from testudo_deploy.admission.fleet_admission import check_commands
from testudo_deploy.commands.inspect import artefact_report
from testudo_deploy.contract.command_types import (
    CommandTypeError,
    check_velocities_alone,
    tracking_of,
    velocity_command,
)
from testudo_deploy.contract.contract import Command, PolicyContractError
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.rules import check_contract, read_contract
from testudo_deploy.contract.waypoint_tracking import WaypointTracking
from testudo_hardware.spec import load_robot
from testudo_sim.go_to_goal import write_go_to_goal_policy

GROUND = load_robot("gritsbot_x")
KIND = "waypoint_world"
LAW = WaypointTracking(0.8, 0.2)


@pytest.fixture(scope="module")
def tracking(tmp_path_factory):
    """The file of a policy whose way-point is its goal."""
    path = tmp_path_factory.mktemp("waypoint") / "policy.onnx"
    write_go_to_goal_policy(path, GROUND, waypoint=True)
    return PolicyArtefact.load(path, robot=GROUND)


@pytest.mark.parametrize(
    ("waypoint", "point", "velocity"),
    [
        ((1.2, 0.5), (1.0, 0.5), (0.16, 0.0)),  # 0.8 * 0.2
        ((1.0, 0.4), (1.0, 0.5), (0.0, -0.08)),
        ((0.6, 0.8), (0.0, 0.0), (0.12, 0.16)),  # a metre away: full speed, in proportions 3 to 4
        ((0.3, -0.7), (0.3, -0.7), (0.0, 0.0)),  # to stay
    ],
)
@pytest.mark.parametrize("asarray", [np.asarray, array_api_strict.asarray])
def test_the_velocity_is_that_worked_by_hand(waypoint, point, velocity, asarray):
    found = LAW.velocity_world(asarray(np.array(waypoint)), asarray(np.array(point)))
    np.testing.assert_allclose(np.asarray(found), velocity, atol=1e-12)


def test_many_robots_at_once_and_back_from_velocity_to_waypoint():
    rng = np.random.default_rng(0)
    points, velocities = rng.uniform(-1, 1, (3, 4, 5)), 0.1 * rng.uniform(-1, 1, (3, 4, 5))
    np.testing.assert_allclose(LAW.velocity_world(LAW.waypoint_world(velocities, points), points), velocities)
    far = LAW.velocity_world(1e3 * velocities, points)
    assert np.linalg.norm(far, axis=0).max() <= 0.2 * (1 + 1e-12)


# ---- the contract


def test_the_file_says_metres_the_limit_and_the_gain(tracking):
    contract = tracking.contract
    assert contract.command == Command(KIND, "m", GROUND.control_point_speed_m_s, (), 0.8)
    assert tracking_of(contract.command) == WaypointTracking(0.8, GROUND.control_point_speed_m_s)
    assert read_contract(contract.to_json()) == contract
    # the shield is the same, so robots with way-points and robots with velocities trust each other
    assert contract.contract_hash == draft_contract(GROUND).replace(shield=contract.shield).contract_hash


def test_files_of_velocities_say_what_they_said():
    assert tracking_of(velocity_command("control_point_velocity_world", GROUND)) is None
    assert set(json.loads(draft_contract(GROUND).to_json())["command"]) == {"type", "unit", "limit"}


def test_inspect_shows_the_law(tracking):
    console = Console(width=200, record=True)
    console.print(*artefact_report(tracking.path).tables)
    assert f"{KIND}, velocity over distance 0.8 1/s, at most 0.2 m/s" in console.export_text()


@pytest.mark.parametrize("gain", [0.0, -1.0, 50.0])
def test_a_waypoint_without_a_usable_gain_is_refused(tracking, gain):
    command = dataclasses.replace(tracking.contract.command, gain_per_s=gain)
    with pytest.raises(PolicyContractError, match=rf"command\.gain_per_s: found {gain:g} for {KIND}, expected above 0"):
        check_contract(tracking.contract.replace(command=command), "here")


def test_a_velocity_with_a_gain_is_refused():
    contract = draft_contract(GROUND)
    command = dataclasses.replace(contract.command, gain_per_s=0.8)
    with pytest.raises(
        PolicyContractError, match=r"gain_per_s: found 0\.8 for control_point_velocity_world, expected n"
    ):
        check_contract(contract.replace(command=command), "here")


def test_every_link_that_carries_a_velocity_drives_to_waypoints(tmp_path, tracking):
    check_commands(make_tiny_fleet(tmp_path, 2), tracking.contract)


def test_what_knows_velocities_only_says_so(tracking):
    with pytest.raises(CommandTypeError, match=rf"a dataset: found a policy of command\.type '{KIND}'"):
        check_velocities_alone(tracking.contract.command, "a dataset")
