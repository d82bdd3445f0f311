import math
from dataclasses import replace

import pytest
import yaml
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.fleet.fleet import FleetError, load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.fleet.hold_switch import HoldSwitch
from testudo_deploy.fleet.robot_names import robot_names
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import robot_files

SHA256 = "0123456789abcdef" * 4
SCAN = {"topic": "scan", "period": 0.1, "error": 0.03, "height": 0.2}


def tables():
    return {
        "fileversion": 1,
        "policy": "policy.onnx",
        "policy_sha256": SHA256,
        "robots": {
            "r0": {
                "type": "gritsbot_x",
                "initial_position": [-1.0, 0.5],
                "initial_yaw": 0,
                "goal": [1.0, 0.5],
            },
            "r1": {
                "type": "gritsbot_x",
                "initial_position": [-1.0, -0.5],
                "initial_yaw": 1.5,
                "goal": [1.0, -0.5],
            },
        },
    }


def load(folder, values):
    file = folder / "fleet.yaml"
    file.write_text(values if isinstance(values, str) else yaml.safe_dump(values, sort_keys=False))
    return load_fleet(file)


def test_a_fleet_is_read(tmp_path):
    fleet = load(tmp_path, tables())
    assert fleet.names == ("r0", "r1")
    assert fleet.policy == tmp_path / "policy.onnx"
    assert fleet.policy_sha256 == SHA256
    assert fleet.peers("r0") == ("r1",)
    robot = fleet.robot("r1")
    assert robot.initial_position_world == (-1.0, -0.5)
    assert (robot.initial_yaw, robot.goal_world) == (1.5, (1.0, -0.5))
    assert robot.spec.name == "gritsbot_x"


@pytest.mark.parametrize("robot", ["gritsbot_x", "crazyflie_2x", "robomaster_s1"])
def test_what_is_saved_is_read_again(tmp_path, robot):
    fleet = replace(make_tiny_fleet(tmp_path, 3, robot), estop_heartbeat_s=1.5, hold_to_run=HoldSwitch("/joy", 4, 0.3))
    copy = tmp_path / "deeper" / "copy.yaml"
    copy.parent.mkdir()
    save_fleet(fleet, copy)
    again = load_fleet(copy)
    assert again.robots == fleet.robots
    assert again.estop_heartbeat_s == 1.5
    assert again.hold_to_run == HoldSwitch("/joy", 4, 0.3)
    assert again.policy.resolve() == fleet.policy.resolve()
    assert again.policy_sha256 == fleet.policy_sha256
    assert "[-0.6, 0.0" in copy.read_text()


def test_a_scanner_is_read_and_saved(tmp_path):
    values = tables()
    values["robots"]["r0"]["scan"] = {**SCAN, "mount": [0.05, 0.0, 3.14], "intrusion": 0.0, "rows": True}
    fleet = load(tmp_path, values)
    assert fleet.robot("r1").scan is None
    scanner = fleet.robot("r0").scan.scanner
    assert fleet.robot("r0").scan.rows
    assert (scanner.period_s, scanner.mount, scanner.reach_over_m) == (0.1, (0.05, 0.0, 3.14), 0.0)
    save_fleet(fleet, tmp_path / "copy.yaml")
    assert load_fleet(tmp_path / "copy.yaml").robot("r0").scan == fleet.robot("r0").scan


def test_a_drone_has_no_scanner_in_a_plane(tmp_path):
    values = {**tables(), "robots": {"d0": {"type": "crazyflie_2x", "initial_position": [0, 0, 1], "initial_yaw": 0.0}}}
    values["robots"]["d0"] |= {"goal": [1, 0, 1], "scan": SCAN}
    with pytest.raises(FleetError, match="expected a robot on the ground"):
        load(tmp_path, values)


def test_names_are_read_without_the_rest_of_the_file(tmp_path):
    """A stop does not wait for a robot file that is missing."""
    values = tables()
    values["robots"]["r1"]["type"] = "none.toml"
    with pytest.raises(FleetError):
        load(tmp_path, values)
    assert robot_names(tmp_path / "fleet.yaml") == ("r0", "r1")
    (tmp_path / "fleet.yaml").write_text("robots: 3")
    with pytest.raises(TestudoError, match="robots: found none"):
        robot_names(tmp_path / "fleet.yaml")


def test_a_robot_may_be_a_file_beside_the_fleet(tmp_path):
    (tmp_path / "mine.toml").write_bytes(robot_files()["gritsbot_x"].read_bytes())
    values = tables()
    values["robots"]["r0"]["type"] = "mine.toml"
    fleet = load(tmp_path, values)
    assert fleet.robot("r0").spec.name == "gritsbot_x"
    (tmp_path / "deeper").mkdir()
    save_fleet(fleet, tmp_path / "deeper" / "fleet.yaml")
    assert load_fleet(tmp_path / "deeper" / "fleet.yaml").robot("r0").type == "../mine.toml"


def wrong(path, value):
    """Return the tables with one value replaced, or removed if it is None."""
    values = tables()
    *parents, last = path
    inner = values
    for key in parents:
        inner = inner[key]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return values


@pytest.mark.parametrize(
    ("path", "value", "key", "said"),
    [
        (["speed"], 1, "speed", "unknown key"),
        (["robots", "r0", "colour"], "red", "robots.r0.colour", "unknown key"),
        (["policy"], None, "policy", "missing"),
        (["robots", "r0", "goal"], None, "robots.r0.goal", "missing"),
        (["fileversion"], 2, "fileversion", "found 2, expected 1"),
        (["fileversion"], "1", "fileversion", "expected a whole number"),
        (["policy_sha256"], "abc", "policy_sha256", "expected 64 digits"),
        (["robots"], {}, "robots", "at least one"),
        (["robots"], ["r0"], "robots", "expected an object"),
        (["robots", "r0"], "gritsbot_x", "robots.r0", "expected an object"),
        (["robots", "r0", "type"], 7, "robots.r0.type", "expected a text"),
        (["robots", "r0", "type"], "unicorn", "robots.r0.type", "is not known"),
        (["robots", "r0", "type"], "none.toml", "robots.r0.type", "no such robot file"),
        (["robots", "r0", "initial_yaw"], "east", "robots.r0.initial_yaw", "expected a number"),
        (["robots", "r0", "initial_yaw"], math.nan, "robots.r0.initial_yaw", "finite"),
        (["robots", "r0", "initial_yaw"], True, "robots.r0.initial_yaw", "expected a number"),
        (["robots", "r0", "goal"], [1.0, math.inf], "robots.r0.goal[1]", "finite"),
        (["robots", "r0", "goal"], [1.0, 0.0, 0.0], "robots.r0.goal", "found 3 coordinates"),
        (["robots", "r0", "initial_position"], [1.0], "initial_position", "found 1 coordinates"),
        (["robots", "r0", "initial_position"], [-1.0, -0.45], "initial_position", "touch"),
        (["robots", "r0", "goal"], [1.0, -0.4], "robots.r1.goal", "touch"),
        (
            ["robots", "r0", "initial_position"],
            [1e308, 0.0],
            "robots.r0.initial_position",
            "found 1e+308 m, expected -10000 to 10000 m",
        ),
        (["robots", "r0", "goal"], [0.0, -15000.0], "robots.r0.goal", "found -15000 m, expected -10000 to 10000 m"),
        (["robots", "r0", "initial_yaw"], 1e300, "robots.r0.initial_yaw", "expected -6.2832 to 6.2832 rad"),
        (["robots", "r0", "initial_yaw"], 90, "robots.r0.initial_yaw", "found 90 rad"),
        (["robots", "r 0"], {}, "robots.r 0", "expected small letters"),
        (["robots", "plant"], {}, "robots.plant", "none of"),
        (["robots", 3], {}, "3", "is not a text"),
        (["estop_heartbeat_s"], 0.1, "estop_heartbeat_s", "expected 0 for none, or 0.3 to 60 s"),
        (["estop_heartbeat_s"], -1.0, "estop_heartbeat_s", "expected 0 for none"),
        (["hold_to_run"], {"topic": "joy", "button": 4}, "hold_to_run.topic", "expected a topic from the root"),
        (["hold_to_run"], {"topic": "/joy", "button": -1}, "hold_to_run.button", "found -1, expected 0 to 63"),
        (["hold_to_run"], {"topic": "/joy", "button": 4, "silent_s": 5.0}, "hold_to_run.silent_s", "0.2 to 2 s"),
        (["hold_to_run"], {"topic": "/joy"}, "hold_to_run", "button"),
        (["robots", "r0", "scan"], {**SCAN, "topic": "a b"}, "scan.topic", "expected the name of a topic"),
        (["robots", "r0", "scan"], {**SCAN, "period": 0.0}, "scan.period", "expected 0.005 to 1"),
        (["robots", "r0", "scan"], {**SCAN, "mount": [0.0]}, "scan.mount", "expected x, y and yaw"),
        (["robots", "r0", "scan"], {**SCAN, "human_speed": math.nan}, "scan.human_speed", "finite"),
    ],
)
def test_what_does_not_hold_is_refused_with_file_key_and_reason(tmp_path, path, value, key, said):
    with pytest.raises(FleetError) as refusal:
        load(tmp_path, wrong(path, value))
    text = str(refusal.value)
    assert str(tmp_path / "fleet.yaml") in text
    assert key in text
    assert said in text
    assert "\n" not in text


def test_a_robot_that_stands_twice_is_refused(tmp_path):
    text = yaml.safe_dump(tables(), sort_keys=False).replace("  r1:", "  r0:")
    with pytest.raises(FleetError, match="'r0' occurs twice"):
        load(tmp_path, text)


@pytest.mark.parametrize("height_m", [0.0, -5.0])
def test_a_drone_that_takes_off_goes_up(tmp_path, height_m):
    place = {"initial_yaw": 0.0, "goal": [0.0, 0.0, 1.0], "initial_position": [0.0, 0.0, height_m]}
    values = tables() | {"robots": {"d0": {"type": "crazyflie_2x", "link": "testudo_flight", **place}}}
    with pytest.raises(FleetError, match=r"d0\.initial_position: found the height .* expected one above 0"):
        load(tmp_path, values)


@pytest.mark.parametrize("text", ["", "a: [", "- 1", "!!python/object:os.system {}", "\0"])
def test_what_is_no_fleet_is_refused(tmp_path, text):
    with pytest.raises(FleetError, match=r"fleet\.yaml"):
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty; expected fileversion: 1, policy, policy_sha256 and robots"),
        (b"# nothing but this\n", "is empty; expected"),
        (b"- 1\n", "found a list; expected fileversion: 1"),
        (b"3\n", "found 3 alone; expected"),
        (b"none\n", "found 'none' alone; expected"),
        (bytes(range(256)), "is not a text file"),
        (b"\0\0", "is not a text file"),
    ],
)
def test_what_is_no_fleet_file_at_all_is_told_so_with_what_to_write(tmp_path, content, said):
    (tmp_path / "fleet.yaml").write_bytes(content)
    with pytest.raises(FleetError) as refusal:
        load_fleet(tmp_path / "fleet.yaml")
    assert said in str(refusal.value)
    assert "None" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_missing_file_and_a_missing_robot_are_named(tmp_path):
    with pytest.raises(FleetError, match="no such fleet file"):
        load_fleet(tmp_path / "fleet.yaml")
    with pytest.raises(FleetError, match="there is no 'r7'; known are r0, r1"):
        load(tmp_path, tables()).robot("r7")


def test_robots_that_are_not_trusted_are_named_and_must_be_tracked(tmp_path):
    values = tables() | {"tracking": True}
    values["robots"]["r1"]["untrusted"] = True
    fleet = load(tmp_path, values)
    assert (fleet.tracking, fleet.untrusted) == (True, ("r1",))
    save_fleet(fleet, tmp_path / "copy.yaml")
    again = load_fleet(tmp_path / "copy.yaml")
    assert (again.tracking, again.untrusted) == (True, ("r1",))
    with pytest.raises(FleetError, match=r"robots\.r1\.untrusted: found true, expected `tracking: true`"):
        load(tmp_path, {key: value for key, value in values.items() if key != "tracking"})
    values["robots"]["r1"]["untrusted"] = "no"
    with pytest.raises(FleetError, match=r"robots\.r1\.untrusted: found"):
        load(tmp_path, values)


def test_the_highest_speed_of_an_untrusted_robot_may_be_stated(tmp_path):
    values = tables() | {"tracking": True}
    values["robots"]["r1"] |= {"untrusted": True, "untrusted_speed_m_s": 2.5}
    fleet = load(tmp_path, values)
    assert fleet.untrusted_speed_m_s == 2.5
    save_fleet(fleet, tmp_path / "copy.yaml")
    assert load_fleet(tmp_path / "copy.yaml").untrusted_speed_m_s == 2.5
    for wrong in ({"untrusted_speed_m_s": -1.0}, {"untrusted_speed_m_s": 1e3}, {"untrusted": False}):
        spoiled = values | {"robots": values["robots"] | {"r1": values["robots"]["r1"] | wrong}}
        with pytest.raises(FleetError, match=r"robots\.r1\.untrusted_speed_m_s: found .* m/s"):
            load(tmp_path, spoiled)
