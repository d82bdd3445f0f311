"""The list of recorded runs: the verdict of the report, of the plant or of the task; none is called good unread."""

import json

import pytest

from testudo_deploy.files.bag_writer import BagWriter, RecordedTopic
from testudo_deploy.launch.run_folder import INFO_FILE
from testudo_deploy.launch.topic_names import EVENTS_TOPIC, SCORE_TOPIC
from testudo_deploy.station_page.run_list import REPORT_FILE, VERDICT_NAME, RunList

START_NS = 1_700_000_000_000_000_000


def string(values):
    """Return a `std_msgs/String` as CDR."""
    text = json.dumps(values).encode() + b"\0"
    return b"\0\1\0\0" + len(text).to_bytes(4, "little") + text


def record(folder, *messages, closed=True, started_ns=START_NS):
    """Write a run with (topic, values), one message each 0.1 s."""
    topics = [
        RecordedTopic(name, "std_msgs/msg/String", "string data", "", True, True, 10)
        for name in (EVENTS_TOPIC, SCORE_TOPIC)
    ]
    bag = BagWriter(folder, topics, started_ns, "test")
    folder.mkdir(parents=True)
    (folder / INFO_FILE).write_text(json.dumps({"start_wall_ns": started_ns}))
    bag.open()
    for count, (topic, values) in enumerate(messages):
        bag.write(topic, string(values), started_ns + 100_000_000 * count)
    if closed:
        bag.close()
    return bag


def finished(outcome, contacts=0):
    return EVENTS_TOPIC, {"event": "finished", "outcome": outcome, "contacts": contacts}


def verdict(folder):
    (run,) = RunList(folder).runs()
    return run.severity, run.verdict


BAGS = {
    "arrived": ([finished("arrived")], ("good", "arrived, no contact")),
    "contacts": ([finished("arrived", 2)], ("bad", "arrived, 2 contacts")),
    "not in time": ([finished("timeout")], ("doubt", "timeout, no contact")),
    "a contact after the end": (
        [finished("arrived"), (EVENTS_TOPIC, {"event": "state", "contacts": 1})],
        ("bad", "arrived, 1 contact"),
    ),
    "no end": (
        [(EVENTS_TOPIC, {"event": "state", "contacts": 0}), (SCORE_TOPIC, {"state": "running"})],
        ("note", "no contact; the recording tells no end"),
    ),
    "contacts without an end": (
        [(EVENTS_TOPIC, {"event": "state", "contacts": 2}), (EVENTS_TOPIC, {"event": "driver"})],
        ("bad", "2 contacts; the recording tells no end"),
    ),
    "a task on real robots": (
        [(SCORE_TOPIC, {"state": "running"}), (SCORE_TOPIC, {"state": "success"})],
        ("note", "task: success; contacts are not measured"),
    ),
    "nothing told": ([], ("note", "not judged")),
}


@pytest.mark.parametrize(("messages", "expected"), BAGS.values(), ids=BAGS)
def test_without_a_report_the_recording_tells(tmp_path, messages, expected):
    record(tmp_path / "one", *messages)
    assert verdict(tmp_path) == expected
    (run,) = RunList(tmp_path).runs()
    assert (run.has_report, run.advice) == (False, f"testudo report {tmp_path / 'one'}")


def test_a_run_that_is_not_closed_or_is_damaged_is_in_doubt(tmp_path):
    bag, runs = record(tmp_path / "open", finished("arrived"), closed=False), RunList(tmp_path)
    assert runs.runs()[0].severity == "doubt"
    assert "not closed" in runs.runs()[0].verdict
    bag.close()
    assert runs.runs()[0].severity == "good"
    record(tmp_path / "broken", finished("arrived"))
    (tmp_path / "broken" / "run_0.mcap").write_bytes(b"no bag")
    found = {run.name: run for run in RunList(tmp_path).runs()}
    assert found["broken"].severity == "doubt"
    assert "cannot be read" in found["broken"].verdict


def test_a_report_has_the_last_word_and_the_newest_run_comes_first(tmp_path):
    record(tmp_path / "old", finished("arrived"))
    record(tmp_path / "trials" / "today" / "trial_001", finished("arrived"), started_ns=START_NS + 10**12)
    report = tmp_path / "old" / REPORT_FILE
    report.write_text(f'<head><meta name="{VERDICT_NAME}" content="bad:1 fault"></head>')
    runs = RunList(tmp_path)
    assert [run.name for run in runs.runs()] == ["trials/today/trial_001", "old"]
    assert (runs.runs()[1].severity, runs.runs()[1].verdict, runs.runs()[1].advice) == ("bad", "1 fault", "")
    assert runs.report("old") == report
    report.write_text("<head></head>")
    assert runs.runs()[1].severity == "note"


@pytest.mark.parametrize("name", ["..", "../other", "", "old/../old", "/", "nothing"])
def test_only_reports_of_runs_in_the_folder_are_given(tmp_path, name):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / REPORT_FILE).write_text("secret")
    record(tmp_path / "runs" / "old", finished("arrived"))
    assert RunList(tmp_path / "runs").report(name) is None
    assert RunList(tmp_path / "nowhere").runs() == []
