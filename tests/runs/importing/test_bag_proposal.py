"""A mapping is proposed from types, names, transforms and motion; what nothing decides is said."""

import numpy as np
import pytest
from tests.runs.importing.bag_maker import NANO, START_NS, drive, message, write_bag

from testudo_runs.importing.bags import BagError, is_complete_mapping, propose_map, read_bags
from testudo_runs.importing.bags.topic_candidates import robot_of, robots_of

COUNT = 700


def rows_of(seed, topics, lag_s=0.3, frame="odom", child="base_link", command_seed=None):
    """Return rows of one robot; topics by kind of content: odom, pose, command, other (a command not obeyed)."""
    times, command, poses, velocity = drive(COUNT, seed=seed, lag_s=lag_s)
    other = drive(COUNT, seed=seed + 50)[1]
    rows = []
    for k, stamp in enumerate(START_NS + np.rint(times * NANO).astype(np.int64)):
        content = {
            "odom": ("Odometry", np.concatenate([poses[k], velocity[k]])),
            "pose": ("PoseStamped", poses[k]),
            "command": ("Twist", command[k]),
            "relay": ("Twist", command[k]),
            "other": ("Twist", other[k]),
            "tf": ("TFMessage", poses[k]),
            "named": ("NamedPoseArray", poses[k]),
        }
        for key, topic in topics.items():
            kind, values = content[key]
            rows.append((topic, kind, stamp, message(kind, stamp, values, frame, child)))
    return rows


def bag_of(path, *parts):
    return write_bag(path, sorted((row for part in parts for row in part), key=lambda row: row[2]))


def taken(proposal):
    return {(entry["robot"], entry["role"]): entry["topic"] for entry in proposal.mapping.topics}


def test_two_robots_by_their_namespaces_and_the_command_that_the_motion_follows(tmp_path):
    bag = bag_of(
        tmp_path / "lab",
        rows_of(
            1, {"odom": "/r0/odom", "other": "/r0/cmd_vel", "command": "/r0/nav/cmd_vel", "pose": "/vrpn_mocap/r0/pose"}
        ),
        rows_of(2, {"odom": "/r1/odom", "command": "/r1/cmd_vel"}),
    )
    proposal = propose_map(bag)
    assert taken(proposal) == {
        ("r0", "odometry"): "/r0/odom",
        ("r0", "command"): "/r0/nav/cmd_vel",
        ("r0", "pose"): "/vrpn_mocap/r0/pose",
        ("r1", "odometry"): "/r1/odom",
        ("r1", "command"): "/r1/cmd_vel",
    }
    why = proposal.reasons["/r0/nav/cmd_vel r0 command"]
    lag = float(why.partition(", ")[2].partition("correlation")[2].split(", ")[1].split()[0])
    assert lag == pytest.approx(0.3, abs=0.02)
    assert not proposal.ambiguous
    damage = []
    found = read_bags([bag], is_complete_mapping(proposal), lambda _: None, damage)
    assert set(found.robots) == {"r0", "r1"}
    assert len(found.robots["r0"].find("pose")) == COUNT
    assert "proposed by `testudo inspect`" in proposal.text


def test_one_robot_without_a_namespace_with_localisation_in_tf(tmp_path):
    moves = rows_of(3, {"odom": "/odom", "command": "/cmd_vel", "tf": "/tf"})
    still = [
        (
            "/tf",
            "TFMessage",
            START_NS + k * NANO,
            message("TFMessage", START_NS + k * NANO, [0.1 * k, 0, 0, 0, 0, 0, 1], "map", "odom"),
        )
        for k in range(20)
    ]
    proposal = propose_map(bag_of(tmp_path / "lab", moves, still))
    entry = next(entry for entry in proposal.mapping.topics if entry["role"] == "pose")
    assert (entry["topic"], entry["parent"], entry["child"]) == ("/tf", "map", "base_link")
    assert not proposal.ambiguous


def test_a_usual_robot_with_sensors_of_other_names(tmp_path):
    """Wheels turn in tf, the camera has an IMU, and odometry stands in tf once more: one robot, nothing twice."""
    moves = rows_of(9, {"odom": "/odom", "command": "/cmd_vel", "tf": "/tf"}, child="base_footprint")
    rest = [
        (
            "/tf_static",
            "TFMessage",
            START_NS,
            message("TFMessage", START_NS, [0, 0, 0.1, 0, 0, 0, 1], "base_footprint", "base_link"),
        )
    ]
    for k in range(100):
        stamp = START_NS + k * 100_000_000
        rest.append(("/depth_cam/imu", "Imu", stamp, message("Imu", stamp, np.ones(6))))
        rest.append(
            (
                "/tf",
                "TFMessage",
                stamp,
                message("TFMessage", stamp, [0, 0, 0, 0, 0, np.sin(k), np.cos(k)], "base_link", "wheel_left_link"),
            )
        )
    proposal = propose_map(bag_of(tmp_path / "lab", moves, rest))
    assert taken(proposal) == {
        ("robot", "odometry"): "/odom",
        ("robot", "command"): "/cmd_vel",
        ("robot", "imu"): "/depth_cam/imu",
    }
    assert any("same as the odometry" in text for text in proposal.unused)
    assert not proposal.ambiguous


def test_motion_capture_goes_before_the_robots_own_localisation(tmp_path):
    parts = [
        rows_of(10, {"odom": "/tb/odom", "command": "/tb/cmd_vel"}),
        rows_of(10, {"pose": "/tb/amcl_pose"}, lag_s=0.31),
        rows_of(10, {"named": "/poses"}, child="rigid5"),
    ]
    proposal = propose_map(bag_of(tmp_path / "lab", *parts))
    assert taken(proposal)[("tb", "pose")] == "/poses"
    assert {robot for robot, _ in taken(proposal)} == {"tb"}
    assert not proposal.ambiguous


def test_a_rigid_body_is_given_to_the_robot_that_moves_alike(tmp_path):
    parts = [
        rows_of(seed, {"named": "/poses", "command": f"/{robot}/cmd_vel"}, child=body)
        for seed, robot, body in ((4, "a", "body7"), (5, "b", "body3"))
    ]
    proposal = propose_map(bag_of(tmp_path / "lab", *parts))
    found = {(entry["robot"], entry["role"]): entry.get("child") for entry in proposal.mapping.topics}
    assert found[("a", "pose")] == "body7"
    assert found[("b", "pose")] == "body3"


def followers(*parts, count=COUNT):
    """Return rows of robots and bodies: (topic, kind, seed, noise [m/s, rad/s], name of the body).

    Equal seeds are told alike; noise is what the drive adds, so that bodies told alike do not move quite alike.
    """
    rows = []
    for topic, kind, seed, noise, body in parts:
        times, command, poses, _ = drive(count, seed=seed, lag_s=0.3)
        if noise:
            rng = np.random.default_rng(sum(map(ord, topic + body)))
            knots = np.arange(0, times[-1] + 2, 0.7)
            late = [
                np.interp(times - 0.3, times, column) + noise * np.interp(times, knots, rng.normal(size=len(knots)))
                for column in (command[:, 0], command[:, 5])
            ]
            yaw = np.cumsum(late[1]) / 50
            poses[:, 0], poses[:, 1] = (np.cumsum(late[0] * turn(yaw)) / 50 for turn in (np.cos, np.sin))
            poses[:, 5], poses[:, 6] = np.sin(yaw / 2), np.cos(yaw / 2)
        for k, stamp in enumerate(START_NS + np.rint(times * NANO).astype(np.int64)):
            rows.append(
                (topic, kind, stamp, message(kind, stamp, command[k] if kind == "Twist" else poses[k], "world", body))
            )
    return rows


def bodies_given(proposal):
    return {
        entry["robot"]: entry.get("child", entry["topic"])
        for entry in proposal.mapping.topics
        if entry["role"] == "pose" and entry["robot"] in ("a", "b")
    }


A, B = ("/a/cmd_vel", "Twist"), ("/b/cmd_vel", "Twist")
POSES = ("/poses", "NamedPoseArray")


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
@pytest.mark.parametrize("bodies", [("left", "right"), ("left",)])
def test_of_two_robots_that_move_alike_none_is_given_a_body(tmp_path, noise, bodies):
    """Nor is the first of them given the only body that was seen: it may well be the other's."""
    parts = [(*A, 4, 0.0, ""), (*B, 4, 0.0, ""), *((*POSES, 4, noise, body) for body in bodies)]
    proposal = propose_map(bag_of(tmp_path / "lab", followers(*parts)))
    assert bodies_given(proposal) == {}
    assert {text.partition(":")[0] for text in proposal.ambiguous} == {"a", "b"}
    assert all("its pose is not given" in text for text in proposal.ambiguous)
    with pytest.raises(BagError, match="the mapping is ambiguous"):
        is_complete_mapping(proposal)


def test_a_robot_that_moves_like_one_whose_pose_is_known_is_not_given_a_body(tmp_path):
    """The body may be the known robot's second set of markers."""
    parts = [
        (*A, 4, 0.0, ""),
        (*B, 4, 0.0, ""),
        ("/vrpn_mocap/b/pose", "PoseStamped", 4, 0.0, ""),
        (*POSES, 4, 0.02, "left"),
    ]
    proposal = propose_map(bag_of(tmp_path / "lab", followers(*parts)))
    assert "a" not in bodies_given(proposal)
    assert any(text.startswith("a: left moves as a does") for text in proposal.ambiguous)


@pytest.mark.parametrize("seed", range(8))
def test_what_was_not_seen_is_not_given_the_body_of_another(tmp_path, seed):
    """One robot and the body of another robot: whatever it is taken for, it is not taken silently."""
    parts = [(*A, seed, 0.0, ""), (*POSES, seed + 100, 0.02, "stranger")]
    proposal = propose_map(bag_of(tmp_path / "lab", followers(*parts)))
    assert "a" not in bodies_given(proposal)
    parts += [(*B, seed + 100, 0.0, "")]
    proposal = propose_map(bag_of(tmp_path / "both", followers(*parts)))
    assert bodies_given(proposal) == {"b": "stranger"}


@pytest.mark.parametrize(
    ("topics", "says"),
    [
        ({"odom": "/odom", "other": "/cmd_vel"}, "motion hardly follows /cmd_vel"),
        ({"odom": "/a/odom", "pose": "/b/pose", "other": "/cmd_vel"}, "the names contain no robot"),
        ({"pose": "/amcl_pose", "command": "/cmd_vel", "odom": "/ground_truth/odom"}, ""),
        ({"command": "/cmd_vel"}, "no topic shows where a robot was"),
    ],
)
def test_what_nothing_decides_is_ambiguous(tmp_path, topics, says):
    proposal = propose_map(bag_of(tmp_path / "lab", rows_of(6, topics)))
    if not says:
        assert not proposal.ambiguous
        return
    assert any(says in text for text in proposal.ambiguous), proposal.ambiguous
    with pytest.raises(BagError, match=r"the mapping is ambiguous: .*give it with --map"):
        is_complete_mapping(proposal)


@pytest.mark.parametrize(
    ("first", "second", "robots"),
    [
        (("/odom_r0", "/cmd_vel_r0"), ("/odom_r1", "/cmd_vel_r1"), ("r0", "r1")),
        (("/r0_odom", "/r0_cmd_vel"), ("/r1_odom", "/r1_cmd_vel"), ("r0", "r1")),
        (("/fleet/alpha/odom", "/fleet/alpha/cmd_vel"), ("/fleet/beta/odom", "/fleet/beta/cmd_vel"), ("alpha", "beta")),
        (("/xx", "/q/w/e"), ("/fleet/alpha_7/state_est", "/joystick_out_3"), ("xx", "fleet")),
        (("/a", "/told/one"), ("/b", "/told/two"), ("a", "b")),
    ],
)
def test_names_that_tell_little_and_motion_make_whole_robots(tmp_path, first, second, robots):
    proposal = propose_map(
        bag_of(
            tmp_path / "lab",
            *(
                rows_of(seed, dict(zip(("odom", "command"), topics, strict=True)))
                for seed, topics in ((1, first), (2, second))
            ),
        )
    )
    assert taken(proposal) == {
        (robot, role): topic
        for robot, topics in zip(robots, (first, second), strict=True)
        for role, topic in zip(("odometry", "command"), topics, strict=True)
    }
    assert not proposal.ambiguous


@pytest.mark.parametrize("topics", [{"odom": "/a/odom", "other": "/b/cmd_vel"}, {"odom": "/a", "other": "/b/cmd_vel"}])
def test_a_robot_that_was_only_told_something_is_ambiguous(tmp_path, topics):
    proposal = propose_map(bag_of(tmp_path / "lab", rows_of(1, topics)))
    assert {text.partition(":")[0] for text in proposal.ambiguous} == {"a", "b"}
    with pytest.raises(BagError, match=r"b: has commands and no poses.*a: has odometry and no"):
        is_complete_mapping(proposal)


def test_two_robots_that_are_told_alike_are_not_joined_with_commands_by_motion(tmp_path):
    """Which of the two velocities is whose command nothing tells."""
    parts = [
        rows_of(1, {"odom": f"/{robot}", "command": f"/told/{number}"})
        for robot, number in (("a", "one"), ("b", "two"))
    ]
    proposal = propose_map(bag_of(tmp_path / "lab", *parts))
    assert {robot for robot, role in taken(proposal) if role == "command"} == set()
    assert any(text.startswith("a: its motion follows /told/one") for text in proposal.ambiguous)


def test_a_velocity_that_was_measured_is_no_command(tmp_path):
    """It comes with the motion, not before it, and no name calls it a command."""
    rows = rows_of(1, {"odom": "/r0/odom"}, lag_s=0.0)
    rows += [("/r0/velocity", *row[1:]) for row in rows_of(1, {"command": "/x"})]  # equal to the velocity itself
    rows += [("/speeds", *row[1:]) for row in rows_of(1, {"command": "/x"})]
    proposal = propose_map(bag_of(tmp_path / "lab", rows))
    assert taken(proposal) == {("r0", "odometry"): "/r0/odom"}
    assert not proposal.ambiguous
    assert {text.split()[0] for text in proposal.unused} == {"/r0/velocity", "/speeds"}


def test_the_same_command_on_two_topics_is_said_but_not_ambiguous(tmp_path):
    proposal = propose_map(
        bag_of(tmp_path / "lab", rows_of(7, {"odom": "/odom", "command": "/cmd_vel", "relay": "/cmd_vel_smoothed"}))
    )
    assert not proposal.ambiguous
    assert any("holds nearly the same" in why for why in proposal.reasons.values())


def test_commands_in_the_world_are_seen_by_the_motion(tmp_path):
    """A body that turns while it is told velocities of the world: forward of the body is another direction."""
    rng = np.random.default_rng(8)
    times = np.arange(COUNT) / 50
    knots = np.arange(0, 21, 0.7)
    east, north = (np.interp(times, knots, rng.uniform(-0.5, 0.5, len(knots))) for _ in "xy")
    yaw, rows = 0.8 * times, []
    x, y = np.cumsum(east) / 50, np.cumsum(north) / 50
    for k, stamp in enumerate(START_NS + np.rint(times * NANO).astype(np.int64)):
        seen = [x[k], y[k], 1, 0, 0, np.sin(yaw[k] / 2), np.cos(yaw[k] / 2)]
        rows += [
            ("/cf1/pose", "PoseStamped", stamp, message("PoseStamped", stamp, seen)),
            ("/cf1/cmd_vel", "Twist", stamp, message("Twist", stamp, [east[k], north[k], 0, 0, 0, 0])),
        ]
    proposal = propose_map(bag_of(tmp_path / "lab", rows))
    assert next(entry for entry in proposal.mapping.topics if entry["role"] == "command")["frame"] == "world"


def test_a_bag_of_nothing_that_can_be_used(tmp_path):
    row = ("/x", "Thrust", START_NS, message("Thrust", START_NS, [1, 2, 3, 4]))
    proposal = propose_map(write_bag(tmp_path / "lab", [row]))
    with pytest.raises(BagError, match=r"no topic of the bag .* /x \(lab_msgs/msg/Thrust\)"):
        is_complete_mapping(proposal)


@pytest.mark.parametrize(
    ("topic", "robot"),
    [
        ("/r0/odom", "r0"),
        ("/odom", ""),
        ("/vrpn_mocap/cf5/pose", "cf5"),
        ("/vicon/tb3/tb3", "tb3"),
        ("/mocap/r1", "r1"),
        ("/cmd_vel", ""),
        ("/robot_1/diff_drive_controller/cmd_vel", "robot_1"),
        ("/mavros/local_position/pose", ""),
    ],
)
def test_the_robot_in_a_topics_name(topic, robot):
    assert robot_of(topic) == robot


@pytest.mark.parametrize(
    ("names", "robots"),
    [
        (("/odom_combined", "/cmd_vel"), ("", "")),
        (("/odom_r0", "/imu_r0"), ("r0", "r0")),
        (("/odom_left", "/cmd_vel_left"), ("", "")),
        (("/left_arm/odom",), ("left_arm",)),
        (("/fleet/a/odom", "/fleet/b/odom", "/fleet/b/imu"), ("a", "b", "b")),
        (("/tb/front_cam/imu", "/tb/odom"), ("tb", "tb")),
        (("/fleet/a/odom", "/fleet/odom"), ("fleet", "fleet")),
    ],
)
def test_the_robots_in_several_names(names, robots):
    assert tuple(robots_of(dict.fromkeys(names, "type")).values()) == robots
