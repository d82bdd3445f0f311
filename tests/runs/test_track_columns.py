"""Tracks from columns are those of the messages one by one, number by number; an odd message is not read so."""

import numpy as np
import pytest
from tests.deploy.run_messages import STORE, RunMessages
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_hardware.links.wire import WORLD_FRAME, body_frame, command_frame, read_command, read_odometry
from testudo_runs.track_columns import ColumnReader
from testudo_runs.tracks import command_track, command_track_of_rows, track_of, track_of_rows

POSES, COMMANDS = "nav_msgs/msg/Odometry", "geometry_msgs/msg/TwistStamped"
COUNT = 30


@pytest.fixture(scope="module", params=["gritsbot_x", "crazyflie_2x", "robomaster_s1"])
def spoken(request, tmp_path_factory):
    """Return the specification of a robot, and its serialised odometry and commands."""
    fleet = make_tiny_fleet(tmp_path_factory.mktemp("fleet"), 1, request.param)
    said = [dict(RunMessages(fleet).at(1.7e9 + 0.0331 * k, k)) for k in range(COUNT)]
    noise, size = np.random.default_rng(0), fleet.robots[0].spec.dimension
    poses, commands = [], []
    for words in said:
        pose = STORE.deserialize_cdr(words["/r0/odom"], POSES)
        twist, command = pose.twist.twist, STORE.deserialize_cdr(words["/r0/cmd_vel"], COMMANDS)
        for one in (twist, command.twist):
            one.linear.x, one.linear.y, one.linear.z, one.angular.z = noise.normal(size=4)
        poses.append(bytes(STORE.serialize_cdr(pose, POSES)))
        commands.append(bytes(STORE.serialize_cdr(command, COMMANDS)))
    assert size in (2, 3)
    return fleet.robots[0].spec, poses, commands


def columns(spec, *frames):
    return ColumnReader(STORE, spec, frames or (WORLD_FRAME, body_frame("r0")))


def same(one, other):
    for name, values in vars(one).items():
        np.testing.assert_array_equal(values, getattr(other, name), err_msg=name)


def test_every_number_is_that_of_the_message_read_alone(spoken):
    spec, poses, commands = spoken
    arrivals = [k / 10 for k in range(COUNT)]
    alone = [read_odometry(STORE.deserialize_cdr(data, POSES), "r0", spec) for data in poses]
    rows = columns(spec).odometry(poses, with_turns=False)
    rows = [(row[0], at, *row[1:]) for at, row in zip(arrivals, rows, strict=True)]
    same(
        track_of_rows(rows, spec.dimension, with_turns=False),
        track_of(zip(arrivals, alone, strict=True), spec.dimension),
    )
    alone = [read_command(STORE.deserialize_cdr(data, COMMANDS), "r0", spec) for data in commands]
    rows = columns(spec, command_frame("r0", spec)).commands(commands)
    rows = [(row[0], at, *row[1:]) for at, row in zip(arrivals, rows, strict=True)]
    same(command_track_of_rows(rows, spec.dimension), command_track(zip(arrivals, alone, strict=True), spec.dimension))


def test_the_quaternion_is_kept_where_it_is_asked_for(spoken):
    spec, poses, _ = spoken
    turn = STORE.deserialize_cdr(poses[0], POSES).pose.pose.orientation
    found = columns(spec).odometry(poses, with_turns=True)
    assert found is not None
    assert found[0, -4:].tolist() == [turn.x, turn.y, turn.z, turn.w]


def changed(data, edit):
    message = STORE.deserialize_cdr(data, POSES)
    edit(message)
    return bytes(STORE.serialize_cdr(message, POSES))


ODD = {
    "another frame": lambda data: changed(data, lambda one: setattr(one.header, "frame_id", "worle")),
    "another body": lambda data: changed(data, lambda one: setattr(one, "child_frame_id", "r1/base_link")),
    "no unit quaternion": lambda data: changed(data, lambda one: setattr(one.pose.pose.orientation, "w", 2.0)),
    "a quaternion of NaN": lambda data: changed(data, lambda one: setattr(one.pose.pose.orientation, "w", np.nan)),
    "cut": lambda data: data[:-1],
    "longer than its type": lambda data: data + bytes(4),
    "no end of the text": lambda data: data.replace(b"world\0", b"world!"),
    "no message": lambda _: b"\0\1\0\0short",
}


@pytest.mark.parametrize("spoil", ODD.values(), ids=ODD)
def test_one_odd_message_leaves_the_whole_topic_to_who_can_say_what_is_wrong(spoken, spoil):
    spec, poses, _ = spoken
    assert spoil(poses[4]) != poses[4]
    odd = [*poses[:4], spoil(poses[4]), *poses[5:]]
    assert columns(spec).odometry(odd, with_turns=False) is None
    assert columns(spec).odometry(poses, with_turns=False) is not None  # the control
