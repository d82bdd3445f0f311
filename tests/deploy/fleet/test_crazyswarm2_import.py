"""Crazyswarm2's configuration becomes a fleet file, or the line that is in the way is named."""

from dataclasses import replace

import pytest
import yaml
from tests.deploy.swarm_files import write_swarm
from tests.deploy.tiny_policy import make_tiny_policy

from testudo_deploy.admission.safety_contracts import SafetyContractError
from testudo_deploy.commands.fleet import fleet as fleet_verb
from testudo_deploy.fleet.crazyswarm2_import import SwarmError, check_driver, read_swarm, read_swarm_files
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.supervision.robot import Robot
from testudo_hardware.errors import TestudoError
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
        ("cf231", "cf21", (-0.5, 0.0, 0.0), True),
        ("cf5", "cf21", (0.5, 0.0, 0.0), True),
    ]
    assert swarm.frame == "mocap"


UNTRACKED = (
    CF,
    """    motion_capture:
      tracking: "librigidbodytracker"
      marker: mocap_deck
      dynamics: default
""",
    "",
)
REFUSED = {
    "controller": ([MELLINGER], "found 2 (Mellinger), expected 1 (PID): cmd_velocity_world does not work with"),
    "no controller": ([(CF, "      controller: 1 # 1: PID, 2: mellinger\n", "")], "found nothing, expected 1 (PID)"),
    "estimator": ([(CF, "estimator: 2 #", "estimator: 1 #")], "found 1, expected 2 (Kalman)"),
    "planner": ([(CF, "enHighLevel: 1", "enHighLevel: 0")], "found 0, expected 1: take-off and landing need it"),
    "status": (
        [(CF, "status:\n        frequency: 10 # Hz", "status:\n        frequency: 1 # Hz")],
        "found 1 Hz, expected 5 Hz or more",
    ),
    "no logging": (
        [(CF, "firmware_logging:\n    enabled: true", "firmware_logging:\n    enabled: false")],
        "found False, expected true",
    ),
    "pose": (
        [UNTRACKED, (CF, "pose:\n        frequency: 10 # Hz", "pose:\n        frequency: 10 #  Hz")],
        "found 10 Hz, expected 100 Hz or more",
    ),
    "rate": ([(MC, "deadline: 100.0", "deadline: 50.0")], "found 50.0 Hz, expected 100 Hz or more; write deadline:"),
    "no rate": ([(MC, "          deadline: 100.0 # Hz\n", "")], "found nothing, expected 100 Hz"),
    "one marker": (
        [(CF, "marker: mocap_deck", "marker: default_single_marker")],
        "'default_single_marker' of 1 points",
    ),
    "tracking": ([(CF, 'tracking: "librigidbodytracker"', "tracking: eyes")], "found 'eyes', expected vendor"),
    "radio": ([(SV, "max_unicast_latency: 10.0", "max_unicast_latency: 60.0")], "found 60.0 ms, expected at most"),
    "version": ([(CF, "fileversion: 3", "fileversion: 2")], "found 2, expected 3"),
    "type": ([(CF, "type: cf21  # see", "type: cf22  # see")], "found 'cf22', expected one of robot_types"),
    "big": (
        [(CF, "dynamics: default\n    big_quad: false", "dynamics: default\n    big_quad: true")],
        "found true, expected false",
    ),
    "place": (
        [(CF, "initial_position: [-0.5, 0.0, 0.0]", "initial_position: [-0.5, .nan, 0.0]")],
        "expected three numbers",
    ),
    "name": ([(CF, "  cf231:", "  CF231:")], "expected small letters"),
    "key": ([(CF, "uri: radio://0/80/2M/E7E7E7E705", "url: radio://0/80/2M/E7E7E7E705")], "url: unknown key"),
    "table": ([(CF, "broadcasts:\n    num_repeats", "broadcasts:\n    repeats")], "repeats: unknown key"),
    "controller list": ([(CF, "controller: 1 # 1: PID", "controller: [1] # 1: PID")], "found [1], expected 1 (PID)"),
    "controller table": ([(CF, "controller: 1 # 1: PID", "controller: {a: 1} # 1: PID")], "found {'a': 1}, expected 1"),
    "controller yes": ([(CF, "controller: 1 # 1: PID", "controller: true # 1: PID")], "found True, expected 1 (PID)"),
    "controller text": ([(CF, "controller: 1 # 1: PID", 'controller: "1" # 1: PID')], "found '1', expected 1 (PID)"),
    "planner yes": ([(CF, "enHighLevel: 1", "enHighLevel: yes")], "found True, expected 1"),
    "version text": ([(CF, "fileversion: 3", 'fileversion: "3"')], "found '3', expected 3"),
    "one address": (
        [(CF, "radio://0/80/2M/E7E7E7E7E7", "radio://1/80/2M/e7e7e7e705")],
        "found radio://1/80/2M/e7e7e7e705, which",
    ),
    "no address": ([(CF, "    uri: radio://0/80/2M/E7E7E7E705\n", "")], "found nothing, expected the address"),
    "odd address": ([(CF, "radio://0/80/2M/E7E7E7E705", "radio://0/126/2M/E7E7E7E705")], "expected the address of"),
    "short address": ([(CF, "radio://0/80/2M/E7E7E7E705", "E7E7E7E705")], "found 'E7E7E7E705', expected the address"),
    "enabled 1": ([(CF, "cf5:\n    enabled: true", "cf5:\n    enabled: 1")], "found 1, expected true or false"),
    "enabled text": ([(CF, "cf5:\n    enabled: true", 'cf5:\n    enabled: "true"')], "found 'true', expected true or"),
    "not said": ([(CF, "cf5:\n    enabled: true\n", "cf5:\n")], "cf5.enabled: found nothing, expected true or false"),
    "too often": (
        [(CF, "status:\n        frequency: 10 # Hz", "status:\n        frequency: 200 # Hz")],
        "found 200 Hz, expected a whole number from 1 to 100",
    ),
    "half": (
        [(CF, "status:\n        frequency: 10 # Hz", "status:\n        frequency: 10.5 # Hz")],
        "found 10.5 Hz, expected a whole number",
    ),
    "fast": (
        [(CF, "status:\n        frequency: 10 # Hz", "status:\n        frequency: fast # Hz")],
        "found 'fast', expected a whole number",
    ),
    "own logs": ([(CF, "default_topics:", "custom_topics: 3\n    default_topics:")], "found 3, expected a table"),
    "own log": (
        [(CF, "default_topics:", "custom_topics:\n      a: {frequency: 0, vars: [x]}\n    default_topics:")],
        "custom_topics.a.frequency: found 0 Hz, expected a whole number from 1 to 100",
    ),
    "best rate": ([(MC, "deadline: 100.0", "deadline: .inf")], "found inf Hz, expected 100 Hz or more"),
    "rate text": ([(MC, "deadline: 100.0", "deadline: fast")], "found 'fast', expected 100 Hz or more"),
    "radio text": ([(SV, "max_unicast_latency: 10.0", "max_unicast_latency: slow")], "found 'slow', expected at most"),
    "cellar": ([(CF, "[-0.5, 0.0, 0.0]", "[-0.5, 0.0, -5.0]")], "the last one from -0.1 m on"),
    "nobody": (
        [
            (CF, "cf231:\n    enabled: true", "cf231:\n    enabled: false"),
            (CF, "cf5:\n    enabled: true", "cf5:\n    enabled: false"),
        ],
        "found no enabled drone",
    ),
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
    with pytest.raises(SwarmError, match="give the file with --motion-capture"):
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


TWO_TYPES = (CF, "[0.5, 0.0, 0.0]\n    type: cf21", "[0.5, 0.0, 0.0]\n    type: big")
BIG = (
    CF,
    "robot_types:\n",
    """robot_types:
  big:
    big_quad: false
    motion_capture:
      tracking: vendor
""",
)


def test_one_robot_file_describes_one_type_of_drone_unless_somebody_says_more(tmp_path):
    file, _ = write_swarm(tmp_path, [TWO_TYPES, BIG])
    with pytest.raises(SwarmError, match=r"robots\.cf5\.type: found 'big' beside 'cf21' of cf231; .*--robot cf21,big:"):
        swarm_of(file)
    files = read_swarm_files(file)
    assert len(read_swarm(files, SPEC, types=("cf21", "big")).robots) == 2
    with pytest.raises(SwarmError, match="found 'big' beside"):
        read_swarm(files, SPEC, types=("big",))


def test_the_address_of_a_drone_that_is_off_is_free(tmp_path):
    file, _ = write_swarm(tmp_path, [(CF, "radio://0/80/2M/E7E7E7E706", "radio://0/80/2M/E7E7E7E705")])
    assert len(swarm_of(file).robots) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r"crazyflies\.yaml: is empty; expected fileversion: 3, robots"),
        (bytes(range(256)), r"crazyflies\.yaml: is not a text file"),
        (b"\0", r"crazyflies\.yaml: is not a text file"),
        (b"fileversion: 3\n", r"robots: found no enabled drone, .* write enabled: true"),
    ],
)
def test_a_file_without_drones_says_what_to_write(tmp_path, content, said):
    file, _ = write_swarm(tmp_path)
    file.write_bytes(content)
    with pytest.raises(SwarmError, match=said):
        swarm_of(file)


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
    assert said.count("warning: crazyflie_2x: with the worst values of its file") == 1
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


SLIPS = {
    "too close": (
        [(CF, "[0.5, 0.0, 0.0]", "[-0.3, 0.0, 0.0]")],
        {},
        r"cf5\.initial_position: found 0\.2 m to that of cf231, .* at least 0\.779 m",
    ),
    "one above the other": ([(CF, "[0.5, 0.0, 0.0]", "[-0.5, 0.0, 1.5]")], {}, "found 0 m to that of cf231"),
    "far away": (
        [(CF, "[0.5, 0.0, 0.0]", "[50.0, 0.0, 0.0]")],
        {},
        r"crazyflies\.yaml: robots\.cf5\.initial_position: found x = 50 m, expected -1\.53 to 1\.53 m",
    ),
    "through the ceiling": ([], {"height": 5.0}, "found z = 5 m, expected 0 to 2 m"),
    "to the moon": ([], {"height": 1e300}, "--height: found 1e\\+300 m, expected a height above 0 and at most 20 m"),
    "nowhere": ([], {"height": float("nan")}, "--height: found nan m"),
    "another drone": ([], {"robot": "cf21B_500"}, "found 'crazyflie_2x', this robot has 'cf21B_500'"),
}


@pytest.mark.parametrize("case", SLIPS)
def test_what_the_import_refuses_leaves_the_file_from_before(tmp_path, policy, case):
    changes, options, said = SLIPS[case]
    file, _ = write_swarm(tmp_path, changes)
    out = tmp_path / "fleet.yaml"
    for before in (None, "# of yesterday\n"):
        if before is not None:
            out.write_text(before)
        with pytest.raises(TestudoError, match=said):
            fleet_verb("import", file, policy, out, **options)
        assert (out.read_text() if out.exists() else None) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([CF, MC, SV, "fleet.yaml"])


def test_a_file_that_cannot_be_written_is_told_by_its_option(tmp_path, policy):
    file, _ = write_swarm(tmp_path)
    for options, said in (
        ({"out": tmp_path / "none" / "f.yaml"}, "--out: found no folder .*none, expected"),
        ({"out": tmp_path}, "--out: found the folder"),
        ({"out": file}, "--out: found .*crazyflies.yaml, which is an input, expected another file"),
        ({"out": tmp_path / SV}, "--out: found .*server.yaml, which is an input"),
        ({"out": tmp_path / "f.yaml", "json": tmp_path / "none" / "x.json"}, "--json: found no f"),
    ):
        with pytest.raises(SwarmError, match=said):
            fleet_verb("import", file, policy, **options)
    assert not (tmp_path / "f.yaml").exists()


def test_types_that_one_robot_file_describes_are_said_with_it(tmp_path, policy):
    file, _ = write_swarm(tmp_path, [TWO_TYPES, BIG])
    out = tmp_path / "fleet.yaml"
    with pytest.raises(SwarmError, match="--robot cf21,big:crazyflie_2x"):
        fleet_verb("import", file, policy, out)
    fleet_verb("import", file, policy, out, robot="cf21,big:crazyflie_2x")
    assert {robot.type for robot in load_fleet(out).robots} == {"crazyflie_2x"}
    assert {robot.link.types for robot in load_fleet(out).robots} == {("cf21", "big")}
    for robot in load_fleet(out).robots:
        check_driver(robot, tmp_path)


def test_a_drone_of_another_type_than_at_import_is_refused_at_configure(tmp_path, policy):
    """Nobody said that the robot file describes that one."""
    file, _ = write_swarm(tmp_path)
    out = tmp_path / "fleet.yaml"
    fleet_verb("import", file, policy, out)
    robots = load_fleet(out).robots
    assert {robot.link.types for robot in robots} == {("cf21",)}
    write_swarm(tmp_path, [TWO_TYPES, BIG])
    changed, same = sorted(robots, key=lambda robot: robot.name == "cf231")
    check_driver(same, tmp_path)
    with pytest.raises(SwarmError, match="type: found 'big', expected cf21: the types that crazyflie_2x describes"):
        check_driver(changed, tmp_path)


def test_types_without_the_configuration_that_they_are_of_are_refused(tmp_path, policy):
    file, _ = write_swarm(tmp_path)
    out = tmp_path / "fleet.yaml"
    fleet_verb("import", file, policy, out)
    tables = yaml.safe_load(out.read_text())
    del next(iter(tables["robots"].values()))["link"]["config"]
    out.write_text(yaml.safe_dump(tables))
    with pytest.raises(TestudoError, match=r"link\.types: found cf21, expected them beside config"):
        load_fleet(out)


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
    with pytest.raises(SafetyContractError, match="`onboard_brake: true` below link of cf231"):
        Robot(load_fleet(out), "cf5", str(policy), epoch="a", now_s=0.0)
    confirm_brakes(out)
    fleet = load_fleet(out)
    Robot(fleet, "cf5", str(policy), epoch="a", now_s=0.0)
    write_swarm(tmp_path, [MELLINGER])
    with pytest.raises(SwarmError, match="controller"):
        Robot(load_fleet(out), "cf5", str(policy), epoch="a", now_s=0.0)
    write_swarm(tmp_path, [(CF, "radio://0/80/2M/E7E7E7E7E7", "radio://0/80/2M/E7E7E7E705")])
    with pytest.raises(SwarmError, match=r"cf5\.uri: found .* which .*cf231\.uri has; expected another"):
        Robot(load_fleet(out), "cf5", str(policy), epoch="a", now_s=0.0)
    write_swarm(tmp_path, [MELLINGER])
    (tmp_path / "run").mkdir()
    save_fleet(fleet, tmp_path / "run" / "fleet.yaml")  # as a recorder does
    moved = load_fleet(tmp_path / "run" / "fleet.yaml")
    assert moved.robots[0].link.config["crazyflies"] == f"../{CF}"
    with pytest.raises(SwarmError, match="controller"):
        check_driver(moved.robots[0], moved.file.parent)
