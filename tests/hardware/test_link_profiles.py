"""Link profiles: what is shipped says what the robots' drivers do, and what does not hold is refused by name."""

import copy
import tomllib

import pytest

from testudo_hardware.links.link_profile import LinkError, link_files, load_link, parse_link

TABLES = tomllib.loads(link_files()["turtlebot4"].read_text())


def changed(path, value):
    """Return the tables of the TurtleBot 4 with one value replaced, or removed if it is None."""
    tables = copy.deepcopy(TABLES)
    *parents, last = path
    inner = tables
    for key in parents:
        inner = inner.setdefault(key, {})
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return tables


def test_every_shipped_profile_is_read_under_its_own_name():
    assert sorted(link_files()) == [
        "crazyflie_radio",
        "crazyswarm2",
        "crazyswarm2_logged",
        "generic_twist",
        "robotarium",
        "testudo",
        "testudo_flight",
        "turtlebot3",
        "turtlebot4",
    ]
    assert all(load_link(name).name == name for name in link_files())


def test_a_turtlebot4_is_slow_best_effort_and_shares_its_topic_with_the_joystick():
    profile = load_link("turtlebot4")
    assert (profile.odometry.rate.value, profile.odometry.reliability.value) == (20.0, "best_effort")
    assert profile.command.other_publishers.value == ("teleop_twist_joy_node",)
    assert profile.command_type == "geometry_msgs/msg/Twist"
    assert profile.odometry.frames("tb1") == ("odom", "base_link")
    assert (profile.battery.topic.value, profile.stamps.value) == ("battery_state", "ros")


def test_robots_name_frames_of_their_own_where_the_profile_says_so():
    profile = load_link("testudo")
    assert profile.odometry.frames("r7") == ("world", "r7/base_link")
    assert profile.command_frame("r7") == "r7/base_link"


def test_a_profile_may_be_a_file(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_bytes(link_files()["turtlebot3"].read_bytes())
    assert load_link(file) == load_link("turtlebot3")


@pytest.mark.parametrize(
    ("path", "value", "key", "said"),
    [
        (["schema"], "testudo/link/9", "schema", "expected 'testudo/link/1'"),
        (["colour"], "red", "colour", "unknown key"),
        (["wire"], "smoke", "wire", "expected one of twist, crazyswarm2"),
        (["name"], "", "name", "found an empty text"),
        (["stamps"], None, "stamps", "missing"),
        (["stamps", "value"], "wall", "stamps.value", "expected one of steady, ros"),
        (["command"], None, "command", "missing"),
        (["command", "topic"], "cmd_vel", "command.topic", "expected an object"),
        (["command", "topic", "value"], "cmd vel", "command.topic.value", "expected the name of a topic"),
        (["command", "topic", "source"], None, "command.topic.source", "missing"),
        (["command", "topic", "source"], "", "command.topic.source", "found an empty text"),
        (["command", "frame", "value"], "{name}/x", "command.frame.value", "expected the name of a frame"),
        (["command", "enable_stamped_cmd_vel"], None, "command.enable_stamped_cmd_vel", "missing for wire 'twist'"),
        (["command", "enable_stamped_cmd_vel", "value"], 1, "enable_stamped_cmd_vel.value", "expected true or false"),
        (["command", "set_point"], {"value": "hover", "source": "x"}, "command.set_point", "unknown key for wire"),
        (["command", "other_publishers", "value"], "joy", "other_publishers.value", "expected a list"),
        (["command", "other_publishers", "value"], ["a/b"], "other_publishers.value", "expected the name of a node"),
        (["odometry", "rate", "value"], 0.0, "odometry.rate.value", "expected 0.5 to 2000.0 Hz"),
        (["odometry", "rate", "value"], float("nan"), "odometry.rate.value", "expected a finite number"),
        (["odometry", "rate", "unit"], "s", "odometry.rate.unit", "expected one of Hz"),
        (["odometry", "reliability", "value"], "often", "reliability.value", "expected one of reliable, best_effort"),
        (["odometry", "child_frame"], None, "odometry.child_frame", "missing"),
        (["pose", "type", "value"], "geometry_msgs/msg/Pose", "pose.type.value", "expected one of"),
    ],
)
def test_what_does_not_hold_is_refused_with_file_key_and_reason(path, value, key, said):
    with pytest.raises(LinkError) as refusal:
        parse_link(changed(path, value), "mine.toml")
    text = str(refusal.value)
    assert text.startswith("mine.toml: ")
    assert key in text
    assert said in text
    assert "\n" not in text


def test_a_robot_that_tells_no_pose_is_refused():
    tables = {key: value for key, value in TABLES.items() if key not in ("odometry", "pose")}
    with pytest.raises(LinkError, match=r"found neither \[odometry\] nor \[pose\]"):
        parse_link(tables, "mine.toml")


def test_unknown_and_unreadable_profiles_are_named(tmp_path):
    with pytest.raises(LinkError, match="link 'mine' is not known; known are crazyflie_radio, crazyswarm2"):
        load_link("mine")
    with pytest.raises(LinkError, match="no such link file"):
        load_link(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("schema = ")
    with pytest.raises(LinkError, match="not a TOML file"):
        load_link(tmp_path / "bad.toml")


def test_the_emulation_of_a_turtlebot4_has_what_its_base_and_its_joystick_do():
    found = load_link("turtlebot4").emulation
    assert (found.dead_man.value, found.joystick_rate.value, found.reverse_way) == (0.5, 0.0, None)
    assert found.position_noise.value == 0.05


@pytest.mark.parametrize(
    ("key", "number", "said"),
    [
        ("latency_low", {"value": 0.1, "unit": "ms", "source": "x"}, "latency_low: found 0.1 ms, expected 0 to 1 s"),
        ("position_noise", {"value": -0.1, "unit": "m", "source": "x"}, "position_noise: found -0.1 m"),
        (
            "latency_high",
            {"value": 0.001, "unit": "s", "source": "x"},
            "latency_high: found 0.001 s, expected at least",
        ),
        ("yaw_noise", {"value": 0.1, "unit": "rad", "source": ""}, "yaw_noise.source: found an empty text"),
        ("wind", {"value": 0.1, "unit": "m", "source": "x"}, "wind: unknown key"),
        ("position_noise", None, "position_noise: missing"),
    ],
)
def test_numbers_of_an_emulation_that_do_not_hold_are_refused_by_name(key, number, said):
    with pytest.raises(LinkError, match=f"mine.toml: link.emulation.{said}"):
        parse_link(changed(["emulation", key], number), "mine.toml")


@pytest.mark.parametrize("link", ["testudo", "crazyswarm2"])
def test_a_base_without_a_time_out_is_known_for_its_driver_and_refused_elsewhere(link):
    """The process that brakes it sends twists, stamped on the ROS clock."""
    assert [name for name in link_files() if load_link(name).needs_last_brake] == ["turtlebot3"]
    tables = tomllib.loads(link_files()[link].read_text(encoding="utf-8"))
    tables["command"]["times_out"] = {"value": False, "source": "x"}
    with pytest.raises(LinkError, match=r"mine.toml: link.command.times_out.value: found false for wire '\w+'"):
        parse_link(tables, "mine.toml")
