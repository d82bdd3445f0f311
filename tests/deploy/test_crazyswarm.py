"""Crazyswarm2's configuration becomes a fleet file, or the line that is in the way is named."""

from dataclasses import replace

import pytest
from tests.deploy.swarm_files import write_swarm
from tests.deploy.tiny_policy import make_tiny_policy

from testudo_deploy.commands.fleet import fleet as fleet_verb
from testudo_deploy.crazyswarm import SwarmError, check_driver, read_swarm, read_swarm_files
from testudo_deploy.fleet import load_fleet, save_fleet
from testudo_deploy.obligations import ObligationError
from testudo_deploy.robot import Robot
from testudo_hardware.spec import load_robot

CF, MC, SV = "crazyflies.yaml", "motion_capture.yaml", "server.yaml"
SPEC = load_robot("crazyflie_2x")
MELLINGER = (CF, "controller: 1 # 1: PID", "controller: 2 # 1: PID")


def swarm_of(file):
    return read_swarm(read_swarm_files(file), SPEC)


def test_the_enabled_drones_come_with_their_places_and_what_sees_them(tmp_path):
    file, _ = write_swarm(tmp_path)
    swarm = swarm_of(file)
    assert [(robot.name, robot.type, robot.position_world, robot.tracked) for robot in swarm.robots] == [
        ("cf231", "cf21", (-0.5, 0.0, 0.0), True), ("cf5", "cf21", (0.5, 0.0, 0.0), True)]
    assert swarm.frame == "mocap"


UNTRACKED = (CF, """    motion_capture:
      tracking: "librigidbodytracker"
      marker: mocap_deck
      dynamics: default
""", "")
REFUSED = {
    "controller": ([MELLINGER], "found 2 (Mellinger), expected 1 (PID): cmd_velocity_world does not work with"),
    "no controller": ([(CF, "      controller: 1 # 1: PID, 2: mellinger\n", "")], "found nothing, expected 1 (PID)"),
    "estimator": ([(CF, "estimator: 2 #", "estimator: 1 #")], "found 1, expected 2 (Kalman)"),
    "planner": ([(CF, "enHighLevel: 1", "enHighLevel: 0")], "found 0, expected 1: take-off and landing need it"),
    "status": ([(CF, "status:\n        frequency: 10 # Hz", "status:\n        frequency: 1 # Hz")],
               "found 1 Hz, expected 5 Hz or more"),
    "no logging": ([(CF, "firmware_logging:\n    enabled: true", "firmware_logging:\n    enabled: false")],
                   "found False, expected true"),
    "pose": ([UNTRACKED, (CF, "pose:\n        frequency: 10 # Hz", "pose:\n        frequency: 10 #  Hz")],
             "found 10 Hz, expected 100 Hz or more"),
    "rate": ([(MC, "deadline: 100.0", "deadline: 50.0")], "found 50.0 Hz, expected 100 Hz or more; write deadline:"),
    "no rate": ([(MC, "          deadline: 100.0 # Hz\n", "")], "found nothing, expected 100 Hz"),
    "one marker": ([(CF, "marker: mocap_deck", "marker: default_single_marker")],
                   "'default_single_marker' of 1 points"),
    "tracking": ([(CF, 'tracking: "librigidbodytracker"', "tracking: eyes")], "found 'eyes', expected vendor"),
    "radio": ([(SV, "max_unicast_latency: 10.0", "max_unicast_latency: 60.0")], "found 60.0 ms, expected at most"),
    "version": ([(CF, "fileversion: 3", "fileversion: 2")], "found 2, expected 3"),
    "type": ([(CF, "type: cf21  # see", "type: cf22  # see")], "found 'cf22', expected one of robot_types"),
    "big": ([(CF, "dynamics: default\n    big_quad: false", "dynamics: default\n    big_quad: true")],
            "found true, expected false"),
    "place": ([(CF, "initial_position: [-0.5, 0.0, 0.0]", "initial_position: [-0.5, .nan, 0.0]")],
              "expected three numbers"),
    "name": ([(CF, "  cf231:", "  CF231:")], "expected small letters"),
    "key": ([(CF, "uri: radio://0/80/2M/E7E7E7E705", "url: radio://0/80/2M/E7E7E7E705")], "url: unknown key"),
    "table": ([(CF, "broadcasts:\n    num_repeats", "broadcasts:\n    repeats")], "repeats: unknown key"),
    "nobody": ([(CF, "cf231:\n    enabled: true", "cf231:\n    enabled: false"),
                (CF, "cf5:\n    enabled: true", "cf5:\n    enabled: false")], "found none that is enabled"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_with_the_file_and_the_key(tmp_path, case):
    changes, text = REFUSED[case]
    file, line = write_swarm(tmp_path, changes)
    with pytest.raises(SwarmError) as refusal:
        swarm_of(file)
    said = str(refusal.value)
    assert text in said, said
    name = changes[-1][0]
    found_line = int(said.split(f"{name}:")[1].split(":", maxsplit=1)[0])
    assert abs(found_line - line) <= 2 or case in ("no controller", "no rate", "nobody", "no logging")


def test_the_line_is_that_of_the_setting_that_counts(tmp_path):
    """Settings of one drone go before those of its type, and those before the settings of all."""
    mine = "    type: cf21  # see robot_types\n    firmware_params:\n      stabilizer:\n        controller: "
    file, line = write_swarm(tmp_path, [(CF, "    type: cf21  # see robot_types\n", mine + "2\n")])
    with pytest.raises(SwarmError, match=rf"yaml:{line + 3}: robots\.cf231\.firmware_params"):
        swarm_of(file)
    mended = mine + "1\n"
    file, _ = write_swarm(tmp_path, [MELLINGER, (CF, "    type: cf21  # see robot_types\n", mended)])
    with pytest.raises(SwarmError, match=r"all\.firmware_params\.stabilizer\.controller: found 2 .*expected 1"):
        swarm_of(file)  # cf5 has no setting of its own


def test_all_that_is_in_the_way_is_counted(tmp_path):
    file, _ = write_swarm(tmp_path, [MELLINGER])
    with pytest.raises(SwarmError, match=r"\(and 1 more\)"):  # both drones
        swarm_of(file)


def test_without_motion_capture_yaml_nobody_knows_how_often_poses_come(tmp_path):
    file, _ = write_swarm(tmp_path, without=[MC])
    with pytest.raises(SwarmError, match="give it with --motion-capture"):
        swarm_of(file)


def test_drones_that_log_their_pose_need_no_motion_capture(tmp_path):
    fast = (CF, "pose:\n        frequency: 10 # Hz", "pose:\n        frequency: 100 # Hz")
    file, _ = write_swarm(tmp_path, [UNTRACKED, fast], without=[MC, SV])
    swarm = swarm_of(file)
    assert not any(robot.tracked for robot in swarm.robots)
    assert swarm.frame == "world"


@pytest.mark.parametrize("text", ["", "- 1\n", "robots: [\n", "robots: 3\n", "a: 1\na: 2\n"])
def test_a_file_that_is_none_is_refused(tmp_path, text):
    file, _ = write_swarm(tmp_path)
    file.write_text(text)
    with pytest.raises(SwarmError, match=r"crazyflies\.yaml"):
        swarm_of(file)
    with pytest.raises(SwarmError, match=r"no_such\.yaml"):
        read_swarm_files(tmp_path / "no_such.yaml")


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    file = tmp_path_factory.mktemp("policy") / "policy.onnx"
    make_tiny_policy(file, SPEC)
    return file


def test_the_verb_writes_a_fleet_file_that_holds(tmp_path, policy, capsys):
    file, _ = write_swarm(tmp_path)
    out = tmp_path / "fleet.yaml"
    fleet_verb("import", file, policy, out, goals="swap")
    said = capsys.readouterr().out
    assert "2 drones imported" in said
    assert said.count("warning: crazyflie_2x: at the worse ends of its file") == 1
    fleet = load_fleet(out)
    assert fleet.names == ("cf231", "cf5")
    first = fleet.robots[0]
    assert (first.initial_position_world, first.goal_world) == ((-0.5, 0.0, 1.0), (0.5, 0.0, 1.0))
    assert (first.link.name, first.pose.source, fleet.frame, fleet.tracking) == ("crazyswarm2", "mocap", "mocap", True)
    assert first.has_flight_phases
    assert first.link.config["crazyflies"] == CF


def test_the_verb_refuses_and_writes_nothing(tmp_path, policy):
    file, _ = write_swarm(tmp_path, [MELLINGER])
    with pytest.raises(SwarmError, match=r"write controller: 1"):
        fleet_verb("import", file, policy, tmp_path / "f.yaml")
    assert not (tmp_path / "f.yaml").exists()


def confirm_brakes(file):
    """Write what the owner of the drones has to write: that they brake by themselves when their radio is silent."""
    fleet = load_fleet(file)
    robots = tuple(replace(robot, link=replace(robot.link, onboard_brake=True)) for robot in fleet.robots)
    save_fleet(replace(fleet, robots=robots), file)


def test_at_configure_the_files_are_looked_at_again(tmp_path, policy):
    """What was changed between import and start is refused by the robot that it concerns."""
    file, _ = write_swarm(tmp_path)
    out = tmp_path / "fleet.yaml"
    fleet_verb("import", file, policy, out)
    with pytest.raises(ObligationError, match="`onboard_brake: true` below link of cf231"):
        Robot(load_fleet(out), "cf5", str(policy), epoch="a", now_s=0.0)
    confirm_brakes(out)
    fleet = load_fleet(out)
    Robot(fleet, "cf5", str(policy), epoch="a", now_s=0.0)
    write_swarm(tmp_path, [MELLINGER])
    with pytest.raises(SwarmError, match="controller"):
        Robot(load_fleet(out), "cf5", str(policy), epoch="a", now_s=0.0)
    (tmp_path / "run").mkdir()
    save_fleet(fleet, tmp_path / "run" / "fleet.yaml")  # as a recorder does
    moved = load_fleet(tmp_path / "run" / "fleet.yaml")
    assert moved.robots[0].link.config["crazyflies"] == f"../{CF}"
    with pytest.raises(SwarmError, match="controller"):
        check_driver(moved.robots[0], moved.file.parent)
