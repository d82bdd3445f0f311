"""A killed recorder's bag is rebuilt: every readable message, the files of a run of ours, and what was lost is told."""

import json
import re
import shutil

import numpy as np
import pytest
import yaml
from mcap.reader import make_reader
from rosbags.highlevel import AnyReader
from tests.deploy.run_messages import PERIOD_S, RunMessages, record
from tests.deploy.tiny_fleet import make_tiny_fleet
from tests.runs.importing.bag_maker import NANO, START_NS, drive, make_older, mapping, message, write_bag

from testudo_analysis.commands.import_run import recover
from testudo_deploy.cli import main
from testudo_deploy.launch.run_folder import RunWriter
from testudo_runs.importing.bags import BagError, read_bags
from testudo_runs.importing.bags.bag_recovery import recover_bag
from testudo_runs.recording.load import load_recording
from testudo_runs.recording.write import write_recording
from testudo_runs.run_reader import read_run

TICKS = 120


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a closed run of two robots."""
    base = tmp_path_factory.mktemp("run")
    fleet = make_tiny_fleet(base, 2, "gritsbot_x")
    return record(base / "run", fleet, TICKS)


@pytest.fixture
def rows():
    times, command, poses, velocity = drive(300)
    found = []
    for k, stamp in enumerate(START_NS + np.rint(times * NANO).astype(np.int64)):
        odometry = np.concatenate([poses[k], velocity[k]])
        found.append(("/r0/odom", "Odometry", stamp, message("Odometry", stamp, odometry, "odom", "base")))
        found.append(("/r0/cmd_vel", "Twist", stamp, message("Twist", stamp, command[k])))
    return found


CUT = re.compile(r"cannot be read from byte \d+ of|it ends at byte \d+, after")
"""What a cut is reported as: within a record, or within the nine bytes before one."""


def raw_of(file):
    with file.open("rb") as stream:
        return [
            (channel.topic, schema.name, m.log_time, m.sequence, m.data)
            for schema, channel, m in make_reader(stream).iter_messages(log_time_order=False)
        ]


def test_a_killed_run_comes_back_with_its_files(run, tmp_path, capsys):
    """Only the cut bag is left: no metadata.yaml, no fleet file, no run.json."""
    killed = tmp_path / "killed"
    killed.mkdir()
    data = (run / "run_0.mcap").read_bytes()
    (killed / "run_0.mcap").write_bytes(data[: int(len(data) * 0.6)])
    before = {file.name: file.read_bytes() for file in killed.iterdir()}
    assert recover(killed, tmp_path / "rescued") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert CUT.search(shown)
    assert "policy.onnx" in shown
    assert {file.name: file.read_bytes() for file in killed.iterdir()} == before
    whole, rescued = raw_of(run / "run_0.mcap"), raw_of(tmp_path / "rescued" / "run_0.mcap")
    assert 0.4 * len(whole) < len(rescued) < len(whole)
    assert rescued == whole[: len(rescued)]
    assert (tmp_path / "rescued" / "fleet.yaml").read_bytes() == (run / "fleet.yaml").read_bytes()
    info = json.loads((tmp_path / "rescued" / "run.json").read_text())
    lost = info.pop("recovered")
    assert info == json.loads((run / "run.json").read_text())
    assert lost["messages"] == len(rescued)
    assert any(CUT.search(text) for text in lost["lost"])
    shutil.copyfile(run / "policy.onnx", tmp_path / "rescued" / "policy.onnx")
    found = read_run(tmp_path / "rescued")
    assert found.complete
    assert [tick.sequence for tick in found.ticks["r0"]] == list(range(len(found.ticks["r0"])))


def test_the_folder_of_a_killed_run_keeps_its_other_files(run, tmp_path):
    killed = shutil.copytree(run, tmp_path / "killed")
    (killed / "metadata.yaml").unlink()
    (killed / "run.json").write_text("{ half")
    found = recover_bag(killed, tmp_path / "rescued")
    assert set(found.files) == {"fleet.yaml", "policy.onnx", "run.json"}
    assert not found.missing
    assert not found.lost
    assert read_run(tmp_path / "rescued").complete


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
@pytest.mark.parametrize("version", [5, 8, 9])
def test_bags_of_others_are_rebuilt_and_open_with_other_libraries(tmp_path, rows, storage, version):
    bag = write_bag(tmp_path / "bag", rows, storage=storage, version=max(version, 8))
    if version < 8:
        make_older(bag, version)
    (bag / "metadata.yaml").unlink()
    found = recover_bag(bag, tmp_path / "rescued")
    assert (found.messages, found.topics) == (600, {"/r0/odom": 300, "/r0/cmd_vel": 300})
    with AnyReader([tmp_path / "rescued"]) as reader:
        assert sorted((c.topic, t) for c, t, _ in reader.messages()) == sorted((row[0], row[2]) for row in rows)
        (profile,) = reader.connections[0].ext.offered_qos_profiles
        assert profile.reliability.name == "BEST_EFFORT"  # whether the old bag wrote a number or a word
        assert profile.depth == 10
    facts = yaml.safe_load((tmp_path / "rescued" / "metadata.yaml").read_text())["rosbag2_bagfile_information"]
    qos = facts["topics_with_message_count"][0]["topic_metadata"]["offered_qos_profiles"][0]
    assert (facts["version"], qos["reliability"]) == (9, "best_effort")
    damage = []
    text = "{topic: /r0/odom, robot: r0, role: odometry}"
    read = read_bags([tmp_path / "rescued"], mapping(text), lambda _: None, damage)
    np.testing.assert_array_equal(read.robots["r0"].find("odometry").values[:, :7], drive(300)[2])
    assert not damage


def test_what_the_recorder_wrote_and_what_is_left_are_counted(tmp_path, rows):
    bag = write_bag(tmp_path / "bag", rows, storage="sqlite3")
    base = bag / "bag.db3"
    base.write_bytes(base.read_bytes()[: int(base.stat().st_size * 0.7)])
    found = recover_bag(bag, tmp_path / "rescued")
    assert found.expected == 600
    assert 300 < found.messages < 600
    assert any("the database is damaged" in text for text in found.lost)
    assert found.last_ns < START_NS + 6 * NANO


def test_nothing_is_ever_written_over(tmp_path, rows, capsys):
    bag = write_bag(tmp_path / "bag", rows[:10])
    with pytest.raises(BagError, match="exists already and is never overwritten"):
        recover_bag(bag, bag)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("mine")
    assert main(["recover", str(bag), str(tmp_path / "there")]) == 2
    assert "exists already and is never overwritten; give a new folder" in " ".join(capsys.readouterr().err.split())
    assert [file.name for file in (tmp_path / "there").iterdir()] == ["mine.txt"]
    with pytest.raises(BagError, match="no such file or folder"):
        recover_bag(tmp_path / "nothing", tmp_path / "new")
    (bag / "bag.mcap").write_bytes(b"")
    with pytest.raises(BagError, match="no message can be read"):
        recover_bag(bag, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bag", "there"]


def test_an_enclosed_file_cannot_lead_out_of_the_folder(tmp_path, rows):
    from mcap.writer import Writer

    file = tmp_path / "evil.mcap"
    with file.open("wb") as stream:
        writer = Writer(stream)
        writer.start(profile="ros2", library="test")
        for name in ("../out.json", "sub/out.json", ".hidden", "metadata.yaml", "good.json"):
            writer.add_attachment(0, 0, name, "application/json", b"{}")
        channel = writer.register_channel("/x", "cdr", writer.register_schema("std_msgs/msg/Empty", "ros2msg", b""))
        writer.add_message(channel, 1, b"\0\1\0\0\0", 1)
        writer.finish()
    found = recover_bag(file, tmp_path / "rescued")
    assert found.files == ("good.json",)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["evil.mcap", "rescued"]


def test_a_recorder_that_is_killed_loses_half_a_second_at_most(tmp_path):
    """What is on the disk while the recorder still runs is what a kill leaves."""
    fleet = make_tiny_fleet(tmp_path, 2, "gritsbot_x")
    messages = RunMessages(fleet)
    with RunWriter(tmp_path / "run", messages.topics, fleet) as writer:
        for k in range(TICKS):
            stamp_s = writer._start_s + PERIOD_S * k
            for topic, data in messages.at(stamp_s, k):
                writer.write(topic, data, stamp_s)
        shutil.copytree(tmp_path / "run", tmp_path / "killed")
        written, last_ns = writer.message_count, writer._start_wall_ns + round(PERIOD_S * (TICKS - 1) * NANO)
    found = recover_bag(tmp_path / "killed", tmp_path / "rescued")
    assert 0 < found.messages <= written
    assert last_ns - found.last_ns < 0.6 * NANO
    assert any("was not closed" in text or "cannot be read" in text for text in found.lost)
    assert found.expected is None  # the recorder notes the count when it closes
    run = read_run(tmp_path / "rescued")
    assert run.complete
    assert run.info["recovered"]["messages"] == found.messages


def test_an_imported_run_that_was_cut_comes_back(tmp_path, rows):
    bag, text = write_bag(tmp_path / "bag", rows), "{topic: /r0/odom, robot: r0, role: odometry}"
    write_recording(read_bags([bag], mapping(text), lambda _: None, []), tmp_path / "run", {"note": "mine"})
    file = tmp_path / "run" / "run_0.mcap"
    file.write_bytes(file.read_bytes()[:-3000])
    found = recover_bag(tmp_path / "run", tmp_path / "rescued")
    recording = load_recording(tmp_path / "rescued")
    assert recording.complete
    assert recording.info["note"] == "mine"
    assert recording.info["recovered"]["messages"] == found.messages == len(recording.robots["r0"].find("odometry"))
    assert not found.missing
