"""`testudo inspect` on runs of our own fleets, on damaged run folders, and on sources that nobody imported."""

import json
import shutil

import pytest
from tests.deploy.run_messages import record
from tests.deploy.tiny_fleet import make_tiny_fleet
from tests.runs.importing.made_logs import write_team

from testudo_deploy.cli import main
from testudo_deploy.files.bag_writer import BAG_FILE
from testudo_hardware.errors import TestudoError
from testudo_runs.importing.inspection import inspect_recording
from testudo_runs.importing.run_import import ImportRequest, import_run

TICKS = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a run of two robots as `testudo up` writes it; one second is missing in it."""
    base = tmp_path_factory.mktemp("run")
    fleet = make_tiny_fleet(base, 2, "gritsbot_x")
    return record(base / "run", fleet, TICKS, late_s=lambda k: 1.0 if k >= 60 else 0.0)


def test_a_fleet_run_shows_series_topics_and_its_gap(folder, capsys):
    report = inspect_recording(folder)
    report.show(None)
    shown = capsys.readouterr().out
    values = report.values
    assert values["kind"] == "recorded by testudo up"
    assert values["complete"]
    for robot in ("r0", "r1"):
        odometry = values["robots"][robot]["roles"]["odometry"]
        assert odometry["samples"] == TICKS
        assert odometry["gaps"] == 1
        assert odometry["longest_gap_s"] == pytest.approx(1.033, abs=1e-6)
        assert odometry["delay_median_s"] == pytest.approx(0.001, abs=1e-6)
    assert {"topic": "/r0/odom", "type": "nav_msgs/msg/Odometry", "messages": TICKS} in values["topics"]
    assert "/r0/odom" in shown
    assert "1.033 s" in shown


@pytest.mark.parametrize("imported", [True, False])
def test_a_damaged_run_is_shown_as_far_as_it_holds(imported, folder, tmp_path):
    run = tmp_path / "run"
    if imported:
        import_run(ImportRequest((write_team(tmp_path / "logs", 2, 3000),)), run)
    else:
        shutil.copytree(folder, run)
    data = (run / BAG_FILE).read_bytes()
    (run / BAG_FILE).write_bytes(data[: len(data) // 2])
    values = inspect_recording(run).values
    assert not values["complete"]
    assert values["damage"]
    assert 0 < values["robots"]["r1"]["roles"]["command"]["samples"] < (3000 if imported else TICKS)


@pytest.mark.parametrize("damage", ["run.json", "noise", "empty bag"])
def test_what_cannot_be_read_is_one_sentence(damage, tmp_path):
    run = tmp_path / "run"
    import_run(ImportRequest((write_team(tmp_path / "logs", 1, 20),)), run)
    if damage == "run.json":
        (run / "run.json").write_text('{"schema": "testudo/run/1", "kind": "imported"}')
    elif damage == "noise":
        (run / BAG_FILE).write_bytes(b"\x89MCAP0\r\n" + bytes(range(256)) * 8)
    else:
        (run / BAG_FILE).write_bytes(b"")
    with pytest.raises(TestudoError) as error:
        inspect_recording(run)
    assert "\n" not in str(error.value)


def test_the_program_shows_logs_that_are_not_imported(tmp_path, capsys):
    source = write_team(tmp_path / "logs", 2, 50)
    (source / "Landmark_Groundtruth.dat").write_text("# Landmark Groundtruth Data Fomat:\n6 1.2\n")
    assert main(["inspect", str(source), "--json", str(tmp_path / "inspect.json")]) == 0
    values = json.loads((tmp_path / "inspect.json").read_text())
    assert values["kind"] == "not imported yet; mapping utias"
    assert list(values["robots"]) == ["r1", "r2"]
    assert values["ignored"] == ["Landmark_Groundtruth.dat"]
    assert "irobot_create" in capsys.readouterr().out
    assert main(["inspect", str(source / "Robot1_Odometry.dat"), "--pick", "a"]) == 2
    assert "--pick: found 'a', expected one of none" in capsys.readouterr().err
