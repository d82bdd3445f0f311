"""Bags of every form and age give the values that were written, exactly; the library rosbags is the writer."""

import shutil
import textwrap
from pathlib import Path

import numpy as np
import pytest
from mcap.writer import CompressionType, Writer
from tests.runs.importing.bag_maker import NANO, START_NS, drive, make_older, mapping, message, write_bag

from testudo_deploy.cli import main
from testudo_runs.importing.bags import BagError, looks_like_bag, read_bags
from testudo_runs.importing.mapping.mapping_file import MapError, parse_map
from testudo_runs.importing.mapping.topic_mapping import parse_topics
from testudo_runs.recording.load import load_recording
from testudo_runs.recording.recording import ROLES
from testudo_runs.recording.write import write_recording

LATE_NS = 3_000_000
KINDS = {
    "Odometry": "odometry",
    "PoseStamped": "pose",
    "PoseWithCovarianceStamped": "pose",
    "TransformStamped": "pose",
    "TFMessage": "pose",
    "Twist": "command",
    "TwistStamped": "command",
    "Imu": "imu",
    "JointState": "motors",
    "BatteryState": "battery",
    "NamedPoseArray": "pose",
}


def read(paths, text, **options):
    damage = []
    found = read_bags(paths if isinstance(paths, list) else [paths], mapping(text), lambda _: None, damage, **options)
    return found, damage


def rows_of(kind, values, topic="/x", child="r0"):
    stamps = START_NS + np.arange(len(values)) * 20_000_000 + 7
    return [
        (topic, kind, stamp + LATE_NS, message(kind, stamp, value, child=child))
        for stamp, value in zip(stamps, values, strict=True)
    ], stamps


def values_of(kind, count=40, seed=0):
    values = np.random.default_rng(seed).normal(size=(count, len(ROLES[KINDS[kind]].channels)))
    return values.astype(np.float32).astype(float) if kind == "BatteryState" else values


@pytest.fixture
def rows():
    times, command, poses, velocity = drive(200)
    stamps = START_NS + np.rint(times * NANO).astype(np.int64)
    found = []
    for k, stamp in enumerate(stamps):
        odometry = np.concatenate([poses[k], velocity[k]])
        found.append(("/r0/odom", "Odometry", stamp + LATE_NS, message("Odometry", stamp, odometry, "odom", "base")))
        found.append(("/r0/cmd_vel", "Twist", stamp + LATE_NS, message("Twist", stamp, command[k])))
    return found


BOTH = "{topic: /r0/odom, robot: r0, role: odometry}\n{topic: /r0/cmd_vel, robot: r0, role: command}"


def check_drive(found):
    times, command, poses, velocity = drive(200)
    robot = found.robots["r0"]
    assert len(robot.find("odometry")) == len(robot.find("command")) == 200
    np.testing.assert_array_equal(robot.find("odometry").values, np.concatenate([poses, velocity], axis=1))
    np.testing.assert_array_equal(robot.find("command").values, command)
    np.testing.assert_allclose(robot.find("odometry").stamp_s, times, atol=1e-8)
    np.testing.assert_allclose(robot.find("command").stamp_s, times + LATE_NS / NANO, atol=1e-8)


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_message_type_gives_the_values_that_were_written(tmp_path, kind, storage):
    values = values_of(kind)
    rows, stamps = rows_of(kind, values)
    bag = write_bag(tmp_path / "bag", rows, storage=storage)
    child = ", child: r0" if kind in ("TFMessage", "NamedPoseArray") else ""
    found, damage = read(bag, f"{{topic: /x, robot: r0, role: {KINDS[kind]}{child}}}")
    series = found.robots["r0"].find(KINDS[kind])
    np.testing.assert_array_equal(series.values, values)
    expected = stamps + LATE_NS if kind == "Twist" else stamps  # a Twist has no header
    np.testing.assert_array_equal(np.rint(series.stamp_s * NANO).astype(int) + found.start_ns, expected)
    np.testing.assert_array_equal(np.rint(series.received_s * NANO).astype(int) + found.start_ns, stamps + LATE_NS)
    assert not damage
    assert found.complete
    assert series.frame == ("r0/base_link" if kind == "Twist" else "world")


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
@pytest.mark.parametrize("version", range(1, 10))
def test_every_version_of_the_metadata(tmp_path, rows, version, storage):
    bag = write_bag(tmp_path / "bag", rows, storage=storage, version=max(version, 8))
    if version < 8:
        make_older(bag, version)
    found, damage = read(bag, BOTH)
    check_drive(found)
    assert not damage


@pytest.mark.parametrize(
    ("storage", "compression"),
    [("mcap", "file"), ("mcap", "message"), ("mcap", "storage"), ("sqlite3", "file"), ("sqlite3", "message")],
)
@pytest.mark.parametrize("metadata", [True, False])
def test_compressed_bags(tmp_path, rows, storage, compression, metadata):
    bag = write_bag(tmp_path / "bag", rows, storage=storage, compression=compression)
    if not metadata:
        (bag / "metadata.yaml").unlink()
    found, damage = read(bag, BOTH)
    check_drive(found)
    assert not damage
    assert metadata == (not any("metadata.yaml is missing" in note for note in found.info["notes"]))


IDL = """module lab_msgs { module msg {
  struct Way { geometry_msgs::msg::Point place; double heading; sequence<double> extra; };
}; };
"""
POINT = "module geometry_msgs { module msg { struct Point { double x; double y; double z; }; }; };\n"


@pytest.mark.parametrize(
    "options",
    [
        {"compression": CompressionType.LZ4},
        {"compression": CompressionType.ZSTD},
        {"compression": CompressionType.NONE},
        {"use_chunking": False},
        {"compression": CompressionType.LZ4, "chunk_size": 500},
    ],
)
def test_every_form_of_chunks_and_a_definition_in_idl(tmp_path, options):
    line = "=" * 80 + "\n"
    definition = f"{line}IDL: lab_msgs/msg/Way\n{IDL}{line}IDL: geometry_msgs/msg/Point\n{POINT}"
    file, values = tmp_path / "way.mcap", np.random.default_rng(0).normal(size=(50, 4))
    with file.open("wb") as stream:
        writer = Writer(stream, **options)
        writer.start(profile="ros2", library="test")
        schema = writer.register_schema("lab_msgs/msg/Way", "ros2idl", definition.encode())
        channel = writer.register_channel("/way", "cdr", schema)
        other = writer.register_channel("/text", "json", writer.register_schema("Text", "jsonschema", b"{}"))
        for k, row in enumerate(values):
            data = b"\0\1\0\0" + row.astype("<f8").tobytes() + (k % 3).to_bytes(8, "little") + bytes(8 * (k % 3))
            writer.add_message(channel, START_NS + k, data, START_NS + k)
            writer.add_message(other, START_NS + k, b"{}", START_NS + k)
        writer.finish()
    entry = "{topic: /way, robot: r0, role: pose, fields: {x: place.x, y: place.y, z: place.z, qw: heading}}"
    found, damage = read(file, entry)
    np.testing.assert_array_equal(found.robots["r0"].find("pose").values[:, [0, 1, 2, 6]], values)
    assert not damage
    found, _ = read(file, entry.replace("qw: heading", "yaw: heading"))
    turned = found.robots["r0"].find("pose").values
    np.testing.assert_allclose(np.arctan2(turned[:, 5], turned[:, 6]) * 2, values[:, 3], atol=1e-9)
    found, _ = read(file, entry.replace(", qw: heading", ""))
    np.testing.assert_array_equal(found.robots["r0"].find("pose").values[:, 3:], [[0, 0, 0, 1]] * 50)
    assert any("no channel gives the attitude" in note for note in found.info["notes"])
    with pytest.raises(MapError, match="fields: y is missing; a pose needs it"):
        read(file, entry.replace("y: place.y, ", ""))
    with pytest.raises(MapError, match="found qw, yaw, expected those of a quaternion or angles"):
        read(file, entry.replace("qw: heading", "qw: heading, yaw: heading"))
    with pytest.raises(BagError, match="/text: its messages are encoded as 'json', expected 'cdr'"):
        read(file, entry.replace("/way", "/text"))


@pytest.mark.parametrize("ending", ["mcap", "db3"])
def test_one_file_alone(tmp_path, rows, ending):
    bag = write_bag(tmp_path / "bag", rows, storage="mcap" if ending == "mcap" else "sqlite3")
    file = tmp_path / f"alone.{ending}"
    shutil.copyfile(bag / f"bag.{ending}", file)
    found, damage = read(file, BOTH)
    check_drive(found)
    assert not damage


@pytest.mark.parametrize("metadata", [True, False])
@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_split_bags_are_read_in_their_order(tmp_path, rows, storage, metadata):
    ending = "mcap" if storage == "mcap" else "db3"
    whole = tmp_path / "whole"
    whole.mkdir()
    names = []
    for part in range(12):  # ten goes after nine
        piece = rows[part * len(rows) // 12 : (part + 1) * len(rows) // 12]
        bag = write_bag(tmp_path / f"p{part}", piece, storage=storage)
        names.append(f"run_{part}.{ending}")
        shutil.copyfile(bag / f"p{part}.{ending}", whole / names[-1])
    if metadata:
        text = (tmp_path / "p0" / "metadata.yaml").read_text().replace(f"p0.{ending}", "PART")
        whole.joinpath("metadata.yaml").write_text(text.replace("- PART", "\n".join(f"  - {x}" for x in names)))
        (whole / "metadata.yaml").write_text(
            "rosbag2_bagfile_information:\n  version: 5\n  storage_identifier: " + storage + "\n  message_count: 400\n"
            "  relative_file_paths: [" + ", ".join(names) + "]\n"
        )
    found, damage = read(whole, BOTH)
    check_drive(found)
    assert not damage


def test_custom_messages_by_their_definition_or_a_folder(tmp_path):
    values = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32).astype(float)
    rows, stamps = rows_of("Thrust", values)
    entry = (
        "{topic: /x, robot: r0, role: motors, "
        "fields: {stamp: at, m1: 'newton[0]', m2: 'newton[1]', m3: 'newton[2]', m4: 'newton[3]'}}"
    )
    with_definition = write_bag(tmp_path / "new", rows)
    found, _ = read(with_definition, entry)
    np.testing.assert_array_equal(found.robots["r0"].find("motors").values, values)
    np.testing.assert_allclose(found.robots["r0"].find("motors").stamp_s, (stamps - stamps[0]) / NANO, atol=1e-8)
    without = make_older(write_bag(tmp_path / "old", rows, storage="sqlite3", version=8), 5)
    with pytest.raises(BagError, match=r"/x: type lab_msgs/msg/Thrust is not known .* --msg-path FOLDER"):
        read(without, entry)
    folder = tmp_path / "src" / "lab_msgs" / "msg"
    folder.mkdir(parents=True)
    (folder / "Thrust.msg").write_text("builtin_interfaces/Time at\nstring mode  # how\nfloat32[4] newton\n")
    found, _ = read(without, entry, msg_path=[tmp_path / "src"])
    np.testing.assert_array_equal(found.robots["r0"].find("motors").values, values)
    with pytest.raises(BagError, match="its messages have no number 'newton\\[7\\]', which `fields` names"):
        read(with_definition, entry.replace("newton[3]", "newton[7]"))


def test_transforms_are_chained_and_interpolated(tmp_path):
    """map -> odom (slow, interpolated) -> base_link (fast) -> camera (fixed): the result against hand numbers."""
    rows = []
    for k in range(11):
        stamp = START_NS + k * 100_000_000
        rows.append(("/tf", "TFMessage", stamp, message("TFMessage", stamp, [k, 0, 0, 0, 0, 0, 1], "odom", "base")))
        if k % 5 == 0:  # a quarter turn to the left, moving north by 1 m each half second
            turned = [0, 2 * k / 10, 0, 0, 0, np.sqrt(0.5), np.sqrt(0.5)]
            rows.append(("/tf", "TFMessage", stamp, message("TFMessage", stamp, turned, "map", "odom")))
    fixed = [0, 1, 0, 0, 0, 0, 1]
    rows.append(("/tf_static", "TFMessage", START_NS, message("TFMessage", START_NS, fixed, "/base", "/camera")))
    bag = write_bag(tmp_path / "bag", rows)
    found, _ = read(bag, "{topic: /tf, robot: r0, role: pose, parent: map, child: camera}")
    series = found.robots["r0"].find("pose")
    steps = np.arange(11)
    np.testing.assert_allclose(series.values[:, 0], -1, atol=1e-12)  # one to the left of a body that looks north
    np.testing.assert_allclose(series.values[:, 1], steps + 0.2 * steps, atol=1e-12)
    np.testing.assert_allclose(series.values[:, 5:], np.sqrt(0.5), atol=1e-12)
    assert series.frame == "map"
    with pytest.raises(BagError, match=r"no chain from world to camera; there are: map -> odom, odom -> base"):
        read(bag, "{topic: /tf, robot: r0, role: pose, parent: world, child: camera}")


def test_stamps_of_another_clock_are_brought_to_that_of_the_recorder(tmp_path):
    """Simulated time from zero, stamps that are all zero, and stray stamps: each is told of."""
    values = values_of("PoseStamped", 60)
    rows = [
        ("/sim", "PoseStamped", START_NS + k * NANO // 10, message("PoseStamped", k * NANO // 10, v))
        for k, v in enumerate(values)
    ]
    rows += [
        ("/zero", "PoseStamped", START_NS + k * NANO // 10, message("PoseStamped", 0, v)) for k, v in enumerate(values)
    ]
    found, damage = read(
        write_bag(tmp_path / "bag", rows), "{topic: /sim, robot: a, role: pose}\n{topic: /zero, robot: b, role: pose}"
    )
    for name in "ab":
        np.testing.assert_allclose(found.robots[name].find("pose").stamp_s, np.arange(60) / 10, atol=1e-6)
    rows[30] = (*rows[30][:3], message("PoseStamped", 5 * 3600 * NANO, values[30]))  # one stamp is five hours off
    rows[40] = ("/sim", "PoseStamped", START_NS - 7200 * NANO, rows[40][3])  # and one record time two hours
    strayed, told = read(write_bag(tmp_path / "strayed", rows), "{topic: /sim, robot: a, role: pose}")
    np.testing.assert_allclose(
        strayed.robots["a"].find("pose").stamp_s, np.delete(np.arange(60), [30, 40]) / 10, atol=1e-6
    )
    assert len(told) == 2
    assert any("shifted forward by 1700000000.000 s" in note for note in found.info["notes"])
    assert any("stamps are all zero" in note for note in found.info["notes"])
    assert not damage


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (5.4e197, "too large to be true"),
        (-2e6, "too large to be true"),
        (np.nan, "no finite numbers"),
        (np.inf, "no finite numbers"),
    ],
)
@pytest.mark.parametrize("kind", ["PoseStamped", "Twist", "TFMessage"])
def test_values_that_cannot_be_are_left_out_and_lost(tmp_path, kind, value, says):
    """As in text logs: exit status 1."""
    values = values_of(kind, 60)
    values[20, 1] = value
    bag = write_bag(tmp_path / "bag", rows_of(kind, values)[0])
    child = ", child: r0" if kind == "TFMessage" else ""
    found, damage = read(bag, f"{{topic: /x, robot: r0, role: {KINDS[kind]}{child}}}")
    np.testing.assert_array_equal(found.robots["r0"].find(KINDS[kind]).values, np.delete(values, 20, axis=0))
    assert not found.complete
    assert len(damage) == 1
    assert f"1 of 60 samples hold {'a value that is ' if says.startswith('too') else ''}{says}" in damage[0]


def test_a_topic_of_the_mapping_that_no_bag_holds_costs_that_role_alone(tmp_path, rows, capsys):
    bag = write_bag(tmp_path / "bag", rows)
    text = BOTH + "\n{topic: /r0/imu, robot: r0, role: imu}\n{topic: /r1/odom, robot: r1, role: odometry}"
    found, damage = read(bag, text)
    check_drive(found)
    assert set(found.robots) == {"r0"}
    assert len(damage) == 2
    assert "map.yaml: topics: /r0/imu holds no message, so that r0 is without imu; correct the name, or" in damage[0]
    assert "there are /r0/cmd_vel, /r0/odom" in damage[0]
    (tmp_path / "own.yaml").write_text(mapping(text).raw)
    line = ["import", str(bag), "--map", str(tmp_path / "own.yaml"), "--robot-type", "turtlebot4"]
    assert main([*line[:2], str(tmp_path / "run"), *line[2:]]) == 1
    assert "/r1/odom holds no message" in " ".join(capsys.readouterr().out.split())
    assert main([*line[:2], str(tmp_path / "other"), *line[2:], "--allow-damage"]) == 0


def test_what_was_read_is_written_as_a_run_and_comes_back(tmp_path, rows):
    found, _ = read(write_bag(tmp_path / "bag", rows), BOTH)
    write_recording(found, tmp_path / "run", found.info)
    again = load_recording(tmp_path / "run")
    for role in ("odometry", "command"):
        np.testing.assert_array_equal(again.robots["r0"].find(role).values, found.robots["r0"].find(role).values)


def test_what_is_a_bag(tmp_path, rows):
    bag = write_bag(tmp_path / "bag", rows, storage="sqlite3")
    (tmp_path / "notes.txt").write_text("no bag")
    (tmp_path / "empty").mkdir()
    assert looks_like_bag(bag)
    assert looks_like_bag(bag / "bag.db3")
    assert not looks_like_bag(tmp_path / "notes.txt")
    assert not looks_like_bag(tmp_path / "empty")
    assert not looks_like_bag(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        (
            "{topic: /r0/odom, robot: r0, role: odometri}",
            MapError,
            r"topics\[0\].role: found 'odometri', expected one of",
        ),
        ("{topic: /r0/odom, robot: a/b, role: odometry}", MapError, "expected letters, digits and _, a letter first"),
        ("{topic: /r0/odom, robot: r0, role: odometry, frame: body}", MapError, "only a command has one"),
        ("{topic: /r0/odom, robot: r0}", MapError, r"topics\[0\].role: missing"),
        (BOTH + "\n{topic: /other, robot: r0, role: command}", MapError, "r0 has its command from /r0/cmd_vel already"),
        (
            "{topic: /nothing, robot: r0, role: pose}",
            BagError,
            "/nothing holds no message; there are /r0/cmd_vel, /r0/od",
        ),
        ("{topic: /r0/cmd_vel, robot: r0, role: pose}", BagError, "Twist cannot be the pose of r0; it can be: command"),
        ("{topic: /r0/odom, bag: other, robot: r0, role: pose}", BagError, "bag: found 'other', expected one of bag"),
    ],
)
def test_a_wrong_mapping_is_refused_in_one_sentence(tmp_path, rows, text, error, says):
    bag = write_bag(tmp_path / "bag", rows[:20])
    with pytest.raises(error, match=says):
        read(bag, text)


def test_the_mapping_in_the_documentation_holds():
    text = (Path(__file__).parents[3] / "docs" / "replay.md").read_text(encoding="utf-8")
    section = text.partition("## Bags of other projects")[2]
    block = section.partition("    schema:")[2].partition("\n\n")[0]
    entries = parse_topics(parse_map(textwrap.dedent(f"    schema:{block}"), "docs/replay.md"))
    assert {entry.role for entry in entries} == {"odometry", "pose", "command", "motors"}
