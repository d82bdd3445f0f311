import json
import shutil

import numpy as np
import pytest
import yaml
from tests.deploy.run_messages import PERIOD_S, RunMessages, empty_odometry, record, serialised
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.launch.run_folder import RunWriter
from testudo_hardware.errors import TestudoError
from testudo_runs.bags.mcap_file import read_messages
from testudo_runs.run_reader import RunError, read_run

TICKS = 200


@pytest.fixture(scope="module", params=["gritsbot_x", "crazyflie_2x", "robomaster_s1"])
def folder(request, tmp_path_factory):
    """Return a closed run of two robots."""
    base = tmp_path_factory.mktemp("run")
    fleet = make_tiny_fleet(base, 2, request.param)
    return record(base / "run", fleet, TICKS)


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def test_a_run_comes_back_as_it_was_written(folder):
    run = read_run(folder)
    assert run.complete
    assert run.warnings == ()
    assert run.robots == ("r0", "r1")
    size = run.fleet.robots[0].spec.dimension
    for robot in run.fleet.robots:
        track = run.odometry[robot.name]
        assert track.position_world.shape == track.velocity.shape == (TICKS, size)
        assert track.position_world[10] == pytest.approx(np.add(robot.initial_position_world, 0.1), abs=1e-12)
        assert track.velocity == pytest.approx(0.1)
        # unwrapped: the yaw grows through pi
        assert track.yaw == pytest.approx(3.0 + 0.01 * np.arange(TICKS))
        assert np.diff(track.stamp_s) == pytest.approx(PERIOD_S, abs=1e-6)
        assert track.received_s - track.stamp_s == pytest.approx(0.001, abs=1e-6)
        assert run.truth[robot.name].stamp_s == pytest.approx(track.stamp_s)
        for commands in (run.sent, run.applied):
            assert commands[robot.name].command == pytest.approx(np.full((TICKS, size), 0.1))
        ticks = run.ticks[robot.name]
        assert [tick.sequence for tick in ticks] == list(range(TICKS))
        assert ticks[0].goal_world == robot.goal_world
        assert len(run.announcements[robot.name]) == TICKS
    assert {event.kind for event in run.events} == {"state"}
    assert run.policy_path.is_file()
    assert run.policy_sha256 == run.fleet.policy_sha256


@pytest.mark.parametrize(("share", "most"), [(0.3, 100), (0.6, 160), (0.95, TICKS)])
def test_a_bag_that_was_cut_short_keeps_its_beginning(copy, share, most):
    bag = copy / "run_0.mcap"
    data = bag.read_bytes()
    bag.write_bytes(data[: int(len(data) * share)])
    run = read_run(copy)
    count = len(run.ticks["r0"])
    assert not run.complete
    assert "run_0.mcap" in " ".join(run.warnings)
    assert 0 < count <= most
    assert [tick.sequence for tick in run.ticks["r0"]] == list(range(count))


def records(data):
    """Return opcode, start and length of each record of an MCAP file, by its own framing."""
    found, at = [], 8
    while at + 9 <= len(data) - 8:
        length = 9 + int.from_bytes(data[at + 1 : at + 9], "little")
        found.append((data[at], at, length))
        at += length
    return found


CHUNK, CHUNK_INDEX = 6, 8


def test_a_damaged_chunk_costs_that_chunk_alone(copy):
    bag = copy / "run_0.mcap"
    data = bytearray(bag.read_bytes())
    chunks = [(at, length) for opcode, at, length in records(data) if opcode == CHUNK]
    at, length = chunks[len(chunks) // 2]
    middle = at + length // 2
    data[middle : middle + 200] = bytes(200)
    bag.write_bytes(data)
    run = read_run(copy)
    assert not run.complete
    kept = [tick.sequence for tick in run.ticks["r0"]]
    assert (kept[0], kept[-1]) == (0, TICKS - 1)
    assert TICKS / 2 < len(kept) < TICKS
    assert np.sum(np.diff(kept) > 1) == 1


def test_a_damaged_index_loses_nothing_and_is_told(copy):
    """Regression: chunks that the index at the end no longer named were left out without a word."""
    bag = copy / "run_0.mcap"
    data = bytearray(bag.read_bytes())
    at = [at for opcode, at, _ in records(data) if opcode == CHUNK_INDEX][3]
    data[at : at + 200] = bytes(200)
    bag.write_bytes(data)
    run = read_run(copy)
    assert not run.complete
    assert "run_0.mcap" in " ".join(run.warnings)
    assert len(run.ticks["r0"]) == len(run.ticks["r1"]) == TICKS


def test_damage_anywhere_is_told_or_harmless(folder, copy):
    """Zeroed bytes at any place: where no warning is given, every message is there as it was written."""
    bag = copy / "run_0.mcap"
    data, told = bag.read_bytes(), 0
    whole, _ = read_messages(folder, [])
    places = range(0, len(data), len(data) // 16)
    for at in places:
        bag.write_bytes(data[:at] + bytes(min(200, len(data) - at)) + data[at + 200 :])
        damage = []
        found, _ = read_messages(copy, damage)
        assert damage or found == whole
        told += bool(damage)
    assert told > len(places) / 3


def test_without_metadata_the_bag_is_read_all_the_same(copy):
    (copy / "metadata.yaml").unlink()
    run = read_run(copy)
    assert len(run.ticks["r0"]) == TICKS
    assert not run.complete


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda copy: (copy / "run_0.mcap").unlink(), "run_0.mcap is missing"),
        (lambda copy: (copy / "run_0.mcap").write_bytes(b""), "no readable message"),
        (lambda copy: (copy / "run_0.mcap").write_bytes(b"x" * 5000), "no readable message"),
        (lambda copy: (copy / "fleet.yaml").unlink(), "fleet.yaml is missing"),
        (lambda copy: (copy / "fleet.yaml").write_text("{}"), "missing"),
        (lambda copy: (copy / "run.json").write_text("{"), "run.json: cannot be read"),
        (lambda copy: (copy / "run.json").write_text("{}"), "run.json: cannot be read"),
        (shutil.rmtree, "no such run folder"),
    ],
)
def test_what_is_no_run_is_refused_in_one_sentence(copy, spoil, said):
    spoil(copy)
    with pytest.raises(TestudoError) as refusal:
        read_run(copy)
    assert said in str(refusal.value)
    assert str(copy) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_schema_of_another_version_is_refused(copy):
    info = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps(info | {"schema": "testudo/run/9"}))
    with pytest.raises(RunError, match=r"run\.json: schema: found 'testudo/run/9'"):
        read_run(copy)


def rewritten(folder, target, change):
    """Write a run with the topics and messages that ``change`` makes of ours."""
    fleet = read_run(folder).fleet
    messages = RunMessages(fleet)
    topics, at = change(messages)
    with RunWriter(target, topics, fleet) as writer:
        for k in range(20):
            for topic, data in at(writer._start_s + PERIOD_S * k, k):
                writer.write(topic, data, writer._start_s + PERIOD_S * k)
    return target


def test_a_topic_of_another_type_is_refused(folder, tmp_path):
    def swap(messages):
        types = {topic.name: topic for topic in messages.topics}
        string = types["/plant/events"]
        changed = [
            type(topic)(**(vars(string) | {"name": topic.name})) if topic.name == "/r0/odom" else topic
            for topic in messages.topics
        ]
        return changed, messages.at

    run = rewritten(folder, tmp_path / "run", swap)
    with pytest.raises(RunError, match=r"/r0/odom: found type std_msgs/msg/String, expected nav_msgs"):
        read_run(run)


def test_messages_that_no_robot_could_use_are_left_out_and_told(folder, tmp_path):
    def spoil(messages):
        def at(stamp_s, sequence):
            yield from messages.at(stamp_s, sequence)
            yield "/r0/odom", serialised(empty_odometry())  # no frame
            if sequence == 3:
                yield (
                    "/r0/tick",
                    dict(messages.at(stamp_s, sequence))["/r0/tick"].replace(b"[", b"("),
                )
                yield "/r0/odom", b"\0\1\0\0short"

        return messages.topics, at

    run = read_run(rewritten(folder, tmp_path / "run", spoil))
    assert len(run.odometry["r0"].stamp_s) == 20
    assert len(run.ticks["r0"]) == 20
    text = "\n".join(run.warnings)
    assert "/r0/odom: r0: odometry: found frames" in text
    assert "/r0/tick: testudo/tick/7: unreadable" in text
    assert "/r0/odom: a message cannot be decoded" in text
    assert not run.complete


@pytest.mark.parametrize("topic", ["/r0/tick", "/r0/peer_state", "/plant/events"])
def test_a_record_of_our_own_that_cannot_be_read_makes_the_run_incomplete(tmp_path, folder, topic):
    """Regression: it was a warning, and `testudo replay` returned 0."""

    def spoil(messages):
        def at(stamp_s, sequence):
            for name, data in messages.at(stamp_s, sequence):
                yield name, data.replace(b"stamp_s", b"stamp_t") if name == topic and sequence == 3 else data

        return messages.topics, at

    run = read_run(rewritten(folder, tmp_path / "run", spoil))
    assert not run.complete
    assert topic in " ".join(run.warnings)


def test_metadata_that_list_too_few_topics_lose_nothing(copy):
    information = yaml.safe_load((copy / "metadata.yaml").read_text())
    information["rosbag2_bagfile_information"]["topics_with_message_count"].pop()
    (copy / "metadata.yaml").write_text(yaml.safe_dump(information))
    assert len(read_run(copy).ticks["r1"]) == TICKS


def test_missing_messages_are_reported_without_any_other_damage(tmp_path):
    folder = record(tmp_path / "run", make_tiny_fleet(tmp_path, 2), 5)
    assert read_run(folder).complete
    tables = yaml.safe_load((folder / "metadata.yaml").read_text())
    tables["rosbag2_bagfile_information"]["message_count"] += 1
    (folder / "metadata.yaml").write_text(yaml.safe_dump(tables))
    run = read_run(folder)
    assert not run.complete
    assert "were written" in " ".join(run.warnings)
