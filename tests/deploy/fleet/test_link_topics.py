"""No link of a fleet file speaks on a topic that is another robot's, or of the fleet's own nodes."""

import pytest
from tests.deploy.turtlebots import load_turtlebots

from testudo_deploy.fleet.fleet import FleetError
from testudo_deploy.fleet.link_topics import absolute
from testudo_deploy.fleet.pose_source import PoseSourceReader
from testudo_deploy.launch import lock_step, topic_names
from testudo_deploy.launch.launch_plan import WATCHERS, plan
from testudo_deploy.launch.process_interfaces import process_interfaces
from testudo_hardware.links.link_profile import link_files

MAP = {"source": "odom+initial", "frame": "map"}
TF = {"source": "tf", "frame": "map"}


def load(folder, first, second=None, pose=MAP, profile="turtlebot4"):
    """Load a fleet whose robots call topics so."""
    own = {
        robot: {"link": {"profile": profile, "remappings": names}, "pose": pose}
        for robot, names in (("tb1", first), ("tb2", second or {}))
    }
    return load_turtlebots(folder, **own)


def test_two_robots_never_take_each_others_transform(tmp_path):
    """Both would hear map -> odom of both, and each would stand where the other one does."""
    with pytest.raises(FleetError) as refusal:
        load(tmp_path, {}, pose=TF)
    text = str(refusal.value)
    assert f"{tmp_path}/fleet.yaml: robots.tb2.pose.source: found tf, with transforms on /tf" in text
    assert "'odom' as for tb1" in text
    assert "`remappings: {/tf: tf}`" in text
    with pytest.raises(FleetError, match="as for tb1"):
        load(tmp_path, {"/tf": "/map/tf"}, {"/tf": "/map/tf"}, pose=TF)


def test_a_topic_or_a_frame_of_its_own_tells_transforms_apart(tmp_path):
    mended = load(tmp_path, {"/tf": "tf"}, {"/tf": "tf"}, pose=TF)
    assert [absolute(PoseSourceReader(robot).transform_topic, robot.name) for robot in mended.robots] == [
        "/tb1/tf",
        "/tb2/tf",
    ]
    load(tmp_path, {"/tf": "tf"}, pose=TF)
    text = link_files()["turtlebot4"].read_text()
    own = text.replace('frame = { value = "odom"', 'frame = { value = "{robot}/odom"')
    assert own != text
    (tmp_path / "mine.toml").write_text(own)
    assert load(tmp_path, {}, pose=TF, profile="mine.toml").names == ("tb1", "tb2")


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"cmdvel": "base/cmd_vel"}, {}, "robots.tb1.link.remappings.cmdvel: unknown key"),
        ({"cmd": "x"}, {}, "link 'turtlebot4' has the topics cmd_vel, odom, pose, battery_state, amcl_pose, /tf"),
        ({"truth": "x"}, {}, "remappings.truth: unknown key"),
        ({"odom": "truth"}, {}, "found /tb1/truth for 'odom', expected another name"),
        ({"odom": "/tb1/truth"}, {}, "found /tb1/truth for 'odom'"),
        ({"cmd_vel": "cmd_vel_policy"}, {}, "found /tb1/cmd_vel_policy for 'cmd_vel'"),
        ({"cmd_vel": "applied_cmd_vel"}, {}, "found /tb1/applied_cmd_vel"),
        ({"odom": "peer_state"}, {}, "found /tb1/peer_state"),
        ({"battery_state": "guard/status"}, {}, "found /tb1/guard/status"),
        ({"cmd_vel": "estop"}, {}, "found /tb1/estop"),
        ({"cmd_vel": "/estop"}, {}, "found /estop"),
        ({"odom": "/plant/odom"}, {}, "found /plant/odom"),
        ({"cmd_vel": "/tb2/cmd_vel"}, {}, "expected a topic that is not in the namespace of another robot, tb2"),
        ({"odom": "/tb2/base/odom"}, {}, "namespace of another robot, tb2"),
        ({"odom": "/tb2/truth"}, {}, "namespace of another robot, tb2"),
        ({"odom": "/tb/odom"}, {"odom": "/tb/odom"}, "expected a topic of its own: it is 'odom' of tb1"),
        ({"cmd_vel": "/cmd"}, {"cmd_vel": "/cmd"}, "it is 'cmd_vel' of tb1"),
        ({"battery_state": "/power"}, {"battery_state": "/power"}, "it is 'battery_state' of tb1"),
        ({"odom": "/base"}, {"cmd_vel": "/base"}, "it is 'odom' of tb1"),
        ({"cmd_vel": "odom"}, {}, "found /tb1/odom for 'odom', expected a topic of its own: it is 'cmd_vel' of tb1"),
    ],
)
def test_a_topic_that_is_not_its_own_is_refused_with_the_key(tmp_path, first, second, said):
    with pytest.raises(FleetError) as refusal:
        load(tmp_path, first, second)
    assert said in str(refusal.value)
    assert "fleet.yaml: robots.tb" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("pose", "topic"),
    [({"source": "mocap", "frame": "map"}, "pose"), ({"source": "amcl_pose", "frame": "map"}, "amcl_pose")],
)
def test_two_robots_never_take_one_pose_for_theirs(tmp_path, pose, topic):
    with pytest.raises(FleetError, match=rf"expected a topic of its own: it is '{topic}' of tb1"):
        load(tmp_path, {topic: "/where"}, {topic: "/where"}, pose=pose)
    load(tmp_path, {topic: "/where/tb1"}, {topic: "/where/tb2"}, pose=pose)
    load(tmp_path, {topic: "/where"}, {topic: "/where"})  # nobody hears it


def test_motion_capture_tells_many_robots_on_one_topic_and_each_knows_its_name(tmp_path):
    text = link_files()["generic_twist"].read_text()
    named = text.replace('"geometry_msgs/msg/PoseStamped"', '"motion_capture_tracking_interfaces/msg/NamedPoseArray"')
    assert named != text
    (tmp_path / "mine.toml").write_text(named)
    names, pose = {"pose": "/poses"}, {"source": "mocap", "frame": "map"}
    assert load(tmp_path, names, names, pose=pose, profile="mine.toml").names == ("tb1", "tb2")
    with pytest.raises(FleetError, match="expected a topic of its own"):
        load(tmp_path, names, {**names, "odom": "/poses"}, pose=pose, profile="mine.toml")


def test_no_topic_of_our_own_nodes_can_be_taken_by_a_link(tmp_path):
    """Whatever a node of the plan speaks on that is no link's is refused as a name in a link."""
    fleet = load(tmp_path, {}, profile="turtlebot4")
    links = {absolute(name, robot.name) for robot in fleet.robots for name in robot.link.topics.values()}
    ours = {
        topic_names.EVENTS_TOPIC,
        topic_names.DIAGNOSTICS_TOPIC,
        topic_names.ESTOP_TOPIC,
        lock_step.CLOCK_TOPIC,
        topic_names.MARKERS_TOPIC,
        topic_names.SCORE_TOPIC,
        topic_names.GOALS_TOPIC,
    }
    for process in plan(fleet, run_folder=tmp_path, watch=WATCHERS):
        spoken = process_interfaces(process, fleet)
        ours |= {name for name in spoken.publishes | spoken.subscribes if "*" not in name}
    for name in sorted(ours - links):
        with pytest.raises(FleetError, match="found /"):
            load(tmp_path, {"cmd_vel": name})
