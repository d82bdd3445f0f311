import json
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from mcap.exceptions import McapError
from mcap.records import Attachment, Metadata
from mcap.stream_reader import StreamReader
from rosbags.highlevel import AnyReader
from tests.deploy.run_messages import RunMessages
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.files.bag_writer import RunWriteError
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.launch.run_folder import RunWriter


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return make_tiny_fleet(tmp_path_factory.mktemp("fleet"))


@pytest.fixture(scope="module")
def messages(fleet):
    return RunMessages(fleet)


def metadata(folder):
    return yaml.safe_load((folder / "metadata.yaml").read_text())["rosbag2_bagfile_information"]


def test_a_closed_run_is_a_bag_that_others_read(tmp_path, fleet, messages):
    with RunWriter(tmp_path / "run", messages.topics, fleet, facts={"seed": 3}) as writer:
        start_s = writer._start_s
        for k in range(400):
            for topic, data in messages.at(start_s + 0.033 * k, k):
                writer.write(topic, data, start_s + 0.033 * k)
        count = writer.message_count
    with AnyReader([tmp_path / "run"]) as reader:
        assert {connection.topic for connection in reader.connections} == {topic.name for topic in messages.topics}
        assert reader.message_count == count == sum(1 for _ in reader.messages())
        connection = next(item for item in reader.connections if item.topic == "/r0/odom")
        assert connection.msgtype == "nav_msgs/msg/Odometry"
        _, _, data = next(reader.messages([connection]))
        assert reader.deserialize(data, connection.msgtype).child_frame_id == "r0/base_link"
        assert reader.duration == pytest.approx(0.033 * 399 * 1e9, rel=1e-3)
    information = metadata(tmp_path / "run")
    assert information["version"] == 9
    assert information["storage_identifier"] == "mcap"
    assert information["message_count"] == count
    assert information["files"][0]["path"] == information["relative_file_paths"][0]


def test_the_folder_holds_fleet_policy_and_versions(tmp_path, fleet, messages):
    with RunWriter(tmp_path / "run", messages.topics, fleet, facts={"seed": 3}):
        pass
    copy = load_fleet(tmp_path / "run" / "fleet.yaml")
    assert copy.robots == fleet.robots
    assert copy.policy.parent == tmp_path / "run"
    assert copy.policy.read_bytes() == fleet.policy.read_bytes()
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["policy_sha256"] == fleet.policy_sha256
    assert info["seed"] == 3
    assert {"python", "numpy", "mcap"} <= set(info["versions"])


@pytest.mark.parametrize("closed", [True, False])
def test_the_bag_alone_says_which_policy_and_fleet_it_is_of(tmp_path, fleet, messages, closed):
    """Its file is often copied alone; and that of a run that was killed holds the same."""
    writer = RunWriter(tmp_path / "run", messages.topics, fleet, facts={"seed": 3})
    if closed:
        writer.close()
    found = {}
    with (tmp_path / "run/run_0.mcap").open("rb") as stream:
        for record in whole_records(stream):
            if isinstance(record, Attachment):
                found[record.name] = record.data
            elif isinstance(record, Metadata):
                found[record.name] = record.metadata
    writer.abandon()
    assert found["testudo"] == {"policy_sha256": fleet.policy_sha256}
    for name in ("fleet.yaml", "run.json"):
        assert found[name] == (tmp_path / "run" / name).read_bytes()


def whole_records(stream):
    """Yield the records of a file, which may end anywhere."""
    with suppress(McapError):
        yield from StreamReader(stream).records


def test_metadata_stand_there_before_the_first_message(tmp_path, fleet, messages):
    writer = RunWriter(tmp_path / "run", messages.topics, fleet)
    information = metadata(tmp_path / "run")
    assert information["message_count"] == 0
    assert information["custom_data"] == {"testudo_closed": "no"}
    writer.close()
    assert metadata(tmp_path / "run")["custom_data"] == {"testudo_closed": "yes", "testudo_chain": writer.chain_hash}
    writer.close()  # twice does no harm


def test_a_folder_that_holds_a_run_is_refused_and_other_files_stay(tmp_path, fleet, messages):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "report.html").write_text("mine")
    RunWriter(folder, messages.topics, fleet).close()
    assert (folder / "report.html").read_text() == "mine"
    with pytest.raises(RunWriteError, match="holds a run already"):
        RunWriter(folder, messages.topics, fleet)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path, fleet, messages):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunWriteError, match="cannot be written"):
        RunWriter(tmp_path / "file" / "run", messages.topics, fleet)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_told_at_once(tmp_path, fleet, messages):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run_0.mcap").symlink_to("/dev/full")
    with pytest.raises(RunWriteError, match="No space left on device"):
        RunWriter(folder, messages.topics, fleet)


def test_a_disk_that_fills_is_one_error_and_what_is_written_stays(tmp_path, fleet, messages):
    code = f"""
        import resource
        from tests.deploy.run_messages import RunMessages
        from testudo_deploy.fleet.fleet import load_fleet
        from testudo_deploy.files.bag_writer import RunWriteError
        from testudo_deploy.launch.run_folder import RunWriter
        fleet = load_fleet({str(fleet.file)!r})
        messages = RunMessages(fleet)
        writer = RunWriter({str(tmp_path / "run")!r}, messages.topics, fleet)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
        try:
            for k in range(3000):
                for topic, data in messages.at(writer._start_s + 0.033 * k, k):
                    writer.write(topic, data, writer._start_s + 0.033 * k)
        except RunWriteError as error:
            print(error)
        writer.abandon()
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        timeout=60,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "File too large; recording ends" in result.stdout

    from testudo_runs.run_reader import read_run

    run = read_run(tmp_path / "run")
    assert not run.complete
    assert len(run.ticks["r0"]) > 10


def test_what_was_written_half_a_second_ago_survives_a_kill(tmp_path, fleet):
    code = f"""
        import os, signal
        from tests.deploy.run_messages import RunMessages
        from testudo_deploy.fleet.fleet import load_fleet
        from testudo_deploy.launch.run_folder import RunWriter
        fleet = load_fleet({str(fleet.file)!r})
        messages = RunMessages(fleet)
        writer = RunWriter({str(tmp_path / "run")!r}, messages.topics, fleet)
        for k in range(300):
            for topic, data in messages.at(writer._start_s + 0.033 * k, k):
                writer.write(topic, data, writer._start_s + 0.033 * k)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=60, check=False)
    assert result.returncode == -signal.SIGKILL

    from testudo_runs.run_reader import read_run

    run = read_run(tmp_path / "run")
    assert not run.complete
    assert "not closed" in run.warnings[0]
    assert len(run.ticks["r0"]) > 300 - 0.6 / 0.033
