"""`host`, `link` and `pose` of a fleet file: left out as ever, refused by key where they do not hold."""

import copy
import re
from pathlib import Path

import pytest
import yaml
from tests.deploy.turtlebots import TABLES, load_turtlebots

from testudo_deploy.fleet.fleet import FleetError, load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.fleet.robot_links import LinkEntry, link_choice
from testudo_hardware.links.link_profile import link_files
from testudo_hardware.spec import load_robot

INITIAL = {"source": "odom+initial"}
SPEC = load_robot("turtlebot4")


def load(folder, **keys):
    """Load the fleet with these keys for both robots, or with a mapping by robot for one of them alone."""
    own = {"tb1": {}, "tb2": {}}
    for key, value in keys.items():
        by_robot = value if isinstance(value, dict) and set(value) <= set(own) else dict.fromkeys(own, value)
        for robot, one in by_robot.items():
            own[robot][key] = one
    return load_turtlebots(folder, **own)


def test_left_out_they_mean_our_own_driver_here_and_odometry_in_the_world(tmp_path):
    fleet = load(tmp_path)
    robot = fleet.robot("tb1")
    assert (robot.host, robot.link.name, dict(robot.link.remappings)) == ("", "testudo", {})
    assert robot.link.profile.name == "testudo"
    assert (robot.pose.source, robot.pose.frame, fleet.frame) == ("odom", "world", "world")
    assert (robot.pose.sigma_m, robot.pose.max_age_s) == (SPEC.position_error_m / 3, SPEC.pose_max_age_s)
    save_fleet(fleet, tmp_path / "copy.yaml")
    saved = yaml.safe_load((tmp_path / "copy.yaml").read_text())
    assert set(saved["robots"]["tb1"]) == {"type", "initial_position", "initial_yaw", "goal"}


def test_a_robot_whose_poses_may_be_very_young_only_is_still_read_when_it_names_no_link(tmp_path):
    text = tmp_path / "quick.toml"
    source = load_robot("turtlebot4").to_dict()
    source["sensing"]["pose_max_age"] |= {"value": 0.006, "interval": [0.006, 0.006]}
    lines = [f'{key} = "{value}"' for key, value in source.items() if isinstance(value, str)]
    for section, entries in source.items():
        if not isinstance(entries, str):
            lines.append(f"[{section}]")
            lines += [
                f'{key} = {{ value = {entry["value"]}, unit = "{entry["unit"]}", source = "x" }}'
                for key, entry in entries.items()
            ]
    text.write_text("\n".join(lines))
    assert load(tmp_path, type="quick.toml").robot("tb1").pose.max_age_s == 0.006


def test_what_is_saved_is_read_again(tmp_path):
    (tmp_path / "mine.toml").write_bytes(link_files()["turtlebot4"].read_bytes())
    fleet = load(
        tmp_path,
        host={"tb1": "tb1.local"},
        link={
            "tb1": {"profile": "mine.toml", "remappings": {"cmd_vel": "mux/input", "odom": "/tb1/odom"}},
            "tb2": "turtlebot3",
        },
        pose={
            "tb1": {"source": "tf", "frame": "map", "sigma": 0.004, "max_age": 0.12},
            "tb2": {"source": "odom+initial", "frame": "map"},
        },
    )
    (tmp_path / "deeper").mkdir()
    save_fleet(fleet, tmp_path / "deeper" / "fleet.yaml")
    again = load_fleet(tmp_path / "deeper" / "fleet.yaml")
    first = again.robot("tb1")
    assert (first.host, again.robot("tb2").host, again.frame) == ("tb1.local", "", "map")
    assert first.link.name == "../mine.toml"
    assert (first.link.profile, dict(first.link.remappings)) == (
        fleet.robot("tb1").link.profile,
        {"cmd_vel": "mux/input", "odom": "/tb1/odom"},
    )
    assert [robot.pose for robot in again.robots] == [robot.pose for robot in fleet.robots]
    assert again.robot("tb2") == fleet.robot("tb2")


@pytest.mark.parametrize("source", ["odom+initial", "tf", "amcl_pose", "mocap"])
def test_every_source_that_shares_a_frame_is_taken_from_a_turtlebot(tmp_path, source):
    link = {"profile": "turtlebot4", "remappings": {"/tf": "tf"}}
    fleet = load(tmp_path, link=link, pose={"source": source, "frame": "map"})
    assert (fleet.robot("tb1").pose.source, fleet.frame) == (source, "map")


OWN = "expected odom+initial, which places it at initial_position"


@pytest.mark.parametrize(
    ("keys", "key", "said"),
    [
        ({"host": {"tb1": "my computer"}}, "robots.tb1.host", "expected the name or address of a computer"),
        ({"host": {"tb1": 7}}, "robots.tb1.host", "expected a text"),
        ({"link": {"tb1": "unicorn"}}, "robots.tb1.link", "link 'unicorn' is not known"),
        ({"link": {"tb1": "none.toml"}}, "robots.tb1.link", "no such link file"),
        ({"link": {"tb1": 7}}, "robots.tb1.link", "expected an object"),
        ({"link": {"tb1": {"remappings": {}}}}, "robots.tb1.link.profile", "missing"),
        ({"link": {"tb1": {"profile": "testudo", "topic": "x"}}}, "robots.tb1.link.topic", "unknown key"),
        (
            {"link": {"tb1": {"profile": "testudo", "remappings": {"cmd_vel": "a b"}}}},
            "robots.tb1.link.remappings",
            "found 'a b', expected the name of a topic",
        ),
        (
            {"link": {"tb1": {"profile": "testudo", "remappings": {"cmd_vel": 1}}}},
            "remappings.cmd_vel",
            "expected a text",
        ),
        ({"pose": {"tb1": {"frame": "map"}}}, "robots.tb1.pose.source", "missing"),
        ({"pose": {"tb1": {"source": "gps"}}}, "robots.tb1.pose.source", "expected one of odom, odom+initial, tf"),
        ({"pose": {"tb1": {"source": "mocap", "frame": "a b"}}}, "robots.tb1.pose.frame", "the name of a frame"),
        # a frame of the robot's own
        ({"link": {"tb1": "turtlebot4"}}, "robots.tb1.pose.source", OWN),
        ({"link": "turtlebot4", "pose": {"source": "odom"}}, "robots.tb1.pose.source", OWN),
        ({"link": "turtlebot4", "pose": {"source": "tf", "frame": "odom"}}, "robots.tb1.pose.frame", "is already"),
        ({"pose": {"tb1": INITIAL}}, "robots.tb1.pose.frame", "expected source odom"),
        # two frames
        (
            {"link": "turtlebot4", "pose": {"tb1": INITIAL, "tb2": {"source": "tf", "frame": "map"}}},
            "robots.tb2.pose.frame",
            "found 'map', expected 'world' as for tb1",
        ),
        (
            {"link": {"tb2": "turtlebot4"}, "pose": {"tb2": {"source": "tf", "frame": "map"}}},
            "robots.tb2.pose.frame",
            "one frame is shared by the whole fleet",
        ),
        # what the shield relies on
        (
            {"link": "turtlebot4", "pose": {**INITIAL, "sigma": 0.02}},
            "robots.tb1.pose.sigma",
            "found 0.02 m, expected 0 to 0.01 m: three sigma within sensing.position_error",
        ),
        ({"link": "turtlebot4", "pose": {**INITIAL, "sigma": -0.001}}, "robots.tb1.pose.sigma", "expected 0 to"),
        (
            {"link": "turtlebot4", "pose": {**INITIAL, "max_age": 0.3}},
            "robots.tb1.pose.max_age",
            "at most 0.15 s: sensing.pose_max_age",
        ),
        ({"link": "turtlebot4", "pose": {**INITIAL, "max_age": 0.0}}, "robots.tb1.pose.max_age", "expected above 0"),
        (
            {"link": "turtlebot4", "pose": {**INITIAL, "max_age": 0.04}},
            "robots.tb1.pose.max_age",
            "expected at least 0.05 s: link 'turtlebot4' sends odometry at 20 Hz",
        ),
        (
            {"link": "turtlebot4", "pose": {"source": "mocap", "max_age": 0.035}},
            "robots.tb1.pose.max_age",
            "expected at least 0.04 s: link 'turtlebot4' sends poses, whose velocities lag by the filter, at 100 Hz",
        ),
    ],
)
def test_what_does_not_hold_is_refused_with_file_key_and_reason(tmp_path, keys, key, said):
    with pytest.raises(FleetError) as refusal:
        load(tmp_path, **keys)
    text = str(refusal.value)
    assert str(tmp_path / "fleet.yaml") in text
    assert key in text
    assert said in text
    assert "\n" not in text


def test_a_drone_that_tells_no_odometry_needs_motion_capture(tmp_path):
    place = {
        "type": "crazyflie_2x",
        "initial_position": {"tb1": [-1.0, 1.0, 1.0], "tb2": [-1.0, -1.0, 1.0]},
        "goal": {"tb1": [1.0, 1.0, 1.0], "tb2": [1.0, -1.0, 1.0]},
        "link": "crazyswarm2",
    }
    for pose in ({}, {"pose": {"source": "tf", "frame": "map"}}):
        with pytest.raises(FleetError, match="expected mocap: link 'crazyswarm2' has no odometry"):
            load(tmp_path, **place, **pose)
    assert load(tmp_path, **place, pose={"source": "mocap"}).frame == "world"


def test_no_wheels_are_reached_by_the_wire_of_a_drone(tmp_path):
    with pytest.raises(FleetError, match=r"robots\.tb1\.link: .*carries commands of a velocity_point"):
        load(tmp_path, link="crazyswarm2", pose={"source": "mocap"})


def test_a_profile_without_poses_has_no_motion_capture(tmp_path):
    text = link_files()["turtlebot4"].read_text()
    (tmp_path / "mine.toml").write_text(text[: text.index("[pose]")] + text[text.index("[battery]") :])
    with pytest.raises(FleetError, match=r"expected a link with \[pose\], which 'turtlebot4' lacks"):
        load(tmp_path, link="mine.toml", pose={"source": "mocap"})


def test_wheel_odometry_is_no_tracking_system(tmp_path):
    tables = copy.deepcopy(TABLES) | {"tracking": True}
    for robot in tables["robots"].values():
        robot |= {"link": "turtlebot4", "pose": INITIAL}
    file = tmp_path / "fleet.yaml"
    file.write_text(yaml.safe_dump(tables))
    with pytest.raises(FleetError, match=r"robots\.tb1\.pose\.source: found odom\+initial, expected mocap"):
        load_fleet(file)
    for robot in tables["robots"].values():
        robot["pose"] = {"source": "mocap"}
    file.write_text(yaml.safe_dump(tables))
    assert load_fleet(file).tracking


def test_topics_are_called_what_profile_and_remappings_say(tmp_path):
    fleet = load(
        tmp_path,
        link={"tb1": {"profile": "turtlebot4", "remappings": {"cmd_vel": "mux/cmd_vel"}}, "tb2": "turtlebot4"},
        pose=INITIAL,
    )
    assert fleet.robot("tb2").link.topics == {
        "cmd_vel": "cmd_vel",
        "odom": "odom",
        "pose": "pose",
        "battery_state": "battery_state",
    }
    assert fleet.robot("tb1").link.topics["cmd_vel"] == "mux/cmd_vel"
    drone = link_choice(LinkEntry("crazyswarm2"), "cf1", load_robot("crazyflie_2x"), tmp_path / "fleet.yaml", "here")
    assert drone.topics == {"cmd_vel": "cmd_velocity_world", "pose": "/poses", "battery_state": "status"}


def test_the_example_of_the_documentation_is_read(tmp_path):
    text = (Path(__file__).parents[3] / "docs/hardware.md").read_text()
    example = next(block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "fileversion" in block)
    (tmp_path / "fleet.yaml").write_text(example)
    fleet = load_fleet(tmp_path / "fleet.yaml")
    assert [(robot.host, robot.link.name, robot.pose.source) for robot in fleet.robots] == [
        ("tb1.local", "turtlebot4", "odom+initial"),
        ("192.168.8.12", "generic_twist", "mocap"),
    ]
    assert fleet.robot("tb2").link.topics["pose"] == "/mocap/tb2/pose"
    listed = set(re.findall(r"^\| `link: (\w+)` \|", text, re.MULTILINE))
    assert listed == set(link_files())


def test_the_comments_of_the_example_in_the_workspace_are_read(tmp_path):
    text = (Path(__file__).parents[3] / "ros_ws/src/testudo_bringup/config/fleet.yaml").read_text()
    assert load_fleet(write(tmp_path, text)).frame == "world"
    said = re.sub(r"^ *# Real.*\n", "", text, flags=re.MULTILINE).replace("    # ", "    ")
    robot = yaml.safe_load(said)["robots"]["r0"]
    assert (robot["host"], robot["link"]) == ("tb1.local", "turtlebot4")
    assert set(robot["pose"]) == {"source", "frame", "sigma", "max_age"}


def write(folder, text):
    file = folder / "fleet.yaml"
    file.write_text(text)
    return file
