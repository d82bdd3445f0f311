"""Recordings through the run format and back; the libraries of others are the oracle of what was written."""

import functools

import numpy as np
import pytest
from mcap.reader import make_reader
from rosbags.highlevel import AnyReader

from testudo_deploy.files.bag_writer import BAG_FILE
from testudo_runs.recording.load import load_recording
from testudo_runs.recording.message_codec import MessageLayout, blank, decode, typestore
from testudo_runs.recording.recording import ROLES, Recording, RecordingError, RobotRecording, Series
from testudo_runs.recording.write import write_recording

START_NS = 1_248_444_175_103_000_000


def series_of(role, count=50, seed=0):
    rng = np.random.default_rng(seed)
    stamp = np.sort(rng.uniform(0, 10, count).round(9))
    values = rng.normal(size=(count, len(ROLES[role].channels)))
    if role == "battery":  # the message holds it in single precision
        values = values.astype(np.float32).astype(float)
    return Series(stamp, values, stamp + 0.01, "world")


@pytest.fixture
def recording():
    series = {role: series_of(role, seed=k) for k, role in enumerate(ROLES)}
    robots = {name: RobotRecording(name, "irobot_create", series) for name in ("r0", "r1")}
    return Recording(robots, START_NS)


def test_every_role_comes_back_to_the_nanosecond(recording, tmp_path):
    count = write_recording(recording, tmp_path / "run", {"note": "made up"})
    found = load_recording(tmp_path / "run")
    assert count == 2 * 50 * len(ROLES)
    assert found.complete
    assert found.info["note"] == "made up"
    for name, robot in recording.robots.items():
        assert found.robots[name].robot_type == "irobot_create"
        for role, series in robot.series.items():
            other = found.robots[name].find(role)
            np.testing.assert_allclose(other.stamp_s, series.stamp_s, atol=1e-9)
            np.testing.assert_allclose(other.received_s, series.received_s, atol=1e-9)
            np.testing.assert_array_equal(other.values, series.values)


def test_others_read_what_was_written(recording, tmp_path):
    write_recording(recording, tmp_path / "run")
    with AnyReader([tmp_path / "run"]) as reader:
        connection = next(c for c in reader.connections if c.topic == "/r1/motors")
        _, _, data = next(reader.messages([connection]))
        message = reader.deserialize(data, connection.msgtype)
        assert message.name == ["m1", "m2", "m3", "m4"]
        np.testing.assert_array_equal(message.effort, recording.robots["r1"].series["motors"].values[0])
        assert {c.topic for c in reader.connections} == {f"/{r}/{ROLES[x].topic}" for r in ("r0", "r1") for x in ROLES}
    with (tmp_path / "run" / BAG_FILE).open("rb") as stream:
        assert make_reader(stream).get_summary().statistics.message_count == 2 * 50 * len(ROLES)


@pytest.mark.parametrize("role", ROLES.values(), ids=lambda role: role.name)
def test_a_message_of_another_layout_is_read_to_the_same_numbers(role):
    """A frame of another length in the middle moves every number."""
    series = series_of(role.name, 3)
    ns = np.array([5, 6, 7], np.int64) * 1_000_000_001
    same = MessageLayout(role, "world", "base").encode(ns, series.values)
    other = MessageLayout(role, "another_frame", "base").encode(ns, series.values)
    mixed = [same[0], other[1], same[2]]
    stamps, values, index, frame = decode(role, mixed, [])
    np.testing.assert_array_equal(stamps, ns)
    np.testing.assert_array_equal(values, series.values)
    assert (index.tolist(), frame) == ([0, 1, 2], "world")


@pytest.mark.parametrize("role", ROLES.values(), ids=lambda role: role.name)
def test_the_library_serialises_the_same_bytes(role):
    series = series_of(role.name, 1)
    message = blank(role.type)
    message.header.frame_id, message.header.stamp.sec, message.header.stamp.nanosec = "world", 7, 9
    if hasattr(message, "child_frame_id"):
        message.child_frame_id = "base"
    if role.name == "motors":
        message.name, message.effort = ["m1", "m2", "m3", "m4"], np.zeros(4)
    if role.name == "imu":
        message.orientation_covariance[0] = -1.0
    for path, value in zip(role.paths, series.values[0], strict=True):
        *parents, last = path.split(".")
        owner = functools.reduce(getattr, parents, message)
        if last.endswith("]"):
            getattr(owner, last[:-3])[int(last[-2])] = value
        else:
            setattr(owner, last, float(value))
    made = MessageLayout(role, "world", "base").encode(np.array([7_000_000_009]), series.values)
    assert made == [bytes(typestore().serialize_cdr(message, role.type))]


def test_a_cut_recording_gives_its_beginning_and_says_so(recording, tmp_path):
    write_recording(recording, tmp_path / "run")
    bag = tmp_path / "run" / BAG_FILE
    bag.write_bytes(bag.read_bytes()[:-2000])
    found = load_recording(tmp_path / "run")
    assert not found.complete
    assert found.warnings


def test_what_is_missing_is_said(recording, tmp_path):
    with pytest.raises(RecordingError, match=r"run: no such run folder"):
        load_recording(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordingError, match="testudo import"):
        load_recording(tmp_path / "empty")
    robot = RobotRecording("r0", "", {"pose": series_of("pose")})
    with pytest.raises(RecordingError, match="r0: no command is recorded; there is pose"):
        robot.find("command")
