"""Fleets of two kinds of robots: who is whose peer, who follows whom, and what keeps the kinds apart."""

import pytest
from tests.deploy.tiny_policy import make_tiny_policy
from tests.deploy.two_teams import DRONE, fleet_of, tables

from testudo_deploy.admission.fleet_admission import checked_safety_contracts, world_arena
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.fleet.policy_groups import Follow
from testudo_deploy.fleet.robot_links import FleetError
from testudo_deploy.launch.launch_plan import plan
from testudo_hardware.spec import load_robot


def test_robots_of_one_policy_file_are_a_team_and_peers(tmp_path):
    fleet = fleet_of(tmp_path, tables(tmp_path))
    assert [team.names for team in fleet.teams] == [("g0", "g1"), ("d0", "d1")]
    assert fleet.peers("g0") == ("g1",)
    assert fleet.peers("d1") == ("d0",)
    assert fleet.team_of("d0").policy == tmp_path / "air.onnx"
    assert len({one.robot for one in checked_safety_contracts(fleet)}) == 4


def test_a_follower_has_its_goal_beside_its_leader_and_the_file_is_written_as_it_was_read(tmp_path):
    fleet = fleet_of(tmp_path, tables(tmp_path))
    assert fleet.robot("d1").goal_world == (0.0, 0.6, 1.0)
    (tmp_path / "moved").mkdir()
    save_fleet(fleet, tmp_path / "moved" / "fleet.yaml")
    again = load_fleet(tmp_path / "moved" / "fleet.yaml")
    assert again.robots == fleet.robots
    assert again.policies[DRONE].path.samefile(tmp_path / "air.onnx")
    assert again.policies[DRONE].sha256 == fleet.policies[DRONE].sha256
    assert Follow("g0", (0.0, 0.1, 1.0)).goal_world((2.0, 3.0), 3) == (2.0, 3.1, 1.0)
    assert Follow("d0").goal_world((2.0, 3.0, 4.0), 2) == (2.0, 3.0)


def test_every_robot_is_started_with_its_own_policy_file(tmp_path):
    processes = {one.label: one for one in plan(fleet_of(tmp_path, tables(tmp_path)), run_folder=None)}
    assert processes["g0/policy"].parameters["policy"].endswith("ground.onnx")
    assert processes["d0/policy"].parameters["policy"].endswith("air.onnx")
    assert processes["d0/guard"].parameters["policy"].endswith("air.onnx")


def test_a_floor_that_ground_robots_reach_is_refused(tmp_path):
    fleet = fleet_of(tmp_path, tables(tmp_path, floor_m=0.1))
    with pytest.raises(FleetError, match=r"d0: its policy file has a floor at 0\.1 m, expected a floor at 0\.15 m"):
        checked_safety_contracts(fleet)


def test_drones_that_land_among_ground_robots_are_refused(tmp_path):
    values = tables(tmp_path)
    for name in ("d0", "d1"):
        place = [-0.5, *values["robots"][name]["initial_position"][1:]]  # not above a robot on the ground
        values["robots"][name] |= {"link": "crazyswarm2_logged", "pose": {"source": "mocap"}, "initial_position": place}
    with pytest.raises(FleetError, match=r"robots\.d0\.link: found flight phases, expected none in a fleet"):
        checked_safety_contracts(fleet_of(tmp_path, values))


def test_two_teams_on_the_ground_are_refused(tmp_path):
    values = tables(tmp_path)
    make_tiny_policy(tmp_path / "other.onnx", load_robot("turtlebot4"))
    values["policies"] = {
        "turtlebot4": {"policy": "other.onnx", "policy_sha256": PolicyArtefact.load(tmp_path / "other.onnx").sha256}
    }
    values["robots"] = {
        "g0": values["robots"]["g0"],
        "t0": {"type": "turtlebot4", "initial_position": [0.0, 1.5], "initial_yaw": 0.0, "goal": [0.5, 1.5]},
    }
    with pytest.raises(FleetError, match="g0 and t0: both are on the ground and run different policy files"):
        checked_safety_contracts(fleet_of(tmp_path, values))


@pytest.mark.parametrize(
    ("robot", "key", "value", "sentence"),
    [
        ("d0", "goal", [0.0, 0.0, 1.0], r"robots\.d0\.goal: found with follow; expected one of them"),
        ("d0", "follow", None, r"robots\.d0\.goal: missing, and follow, too; expected one of them"),
        (
            "d0",
            "follow",
            {"robot": "d1"},
            r"follow\.robot: found 'd1', expected another robot that follows none: g0, g1",
        ),
        ("d0", "follow", {"robot": "nobody"}, r"follow\.robot: found 'nobody'"),
        ("d0", "follow", {"robot": "g0", "offset": [0.0, 1.0]}, r"follow\.offset: found 2 coordinates, expected 3"),
    ],
)
def test_a_goal_that_does_not_hold_is_refused(tmp_path, robot, key, value, sentence):
    values = tables(tmp_path)
    values["robots"][robot][key] = value
    if value is None:
        del values["robots"][robot][key]
    with pytest.raises(FleetError, match=sentence):
        fleet_of(tmp_path, values)


def test_a_type_that_nobody_has_is_refused(tmp_path):
    values = tables(tmp_path)
    values["policies"]["turtlebot4"] = values["policies"][DRONE]
    with pytest.raises(FleetError, match=r"policies\.turtlebot4: no robot is of this type; those of the fleet are"):
        fleet_of(tmp_path, values)


def test_the_world_of_both_kinds_has_the_walls_of_both(tmp_path):
    """And other walls are refused: the plant is one world."""
    values = tables(tmp_path)
    fleet = fleet_of(tmp_path, values)
    walls = PolicyArtefact.load(tmp_path / "ground.onnx").contract.arena
    air = PolicyArtefact.load(tmp_path / "air.onnx").contract.arena
    if (walls.low_world, walls.high_world) == (air.low_world[:2], air.high_world[:2]):
        assert world_arena(fleet) == air
    else:
        with pytest.raises(FleetError, match="expected the same in x and y"):
            world_arena(fleet)
