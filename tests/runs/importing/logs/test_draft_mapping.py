"""A log that no mapping knows is shown with its columns and a mapping to begin with, which then imports it."""

import numpy as np
import pytest
from tests.sim.real_data import crazyflie_folder

from testudo_hardware.errors import TestudoError
from testudo_runs.importing.inspection import inspect_recording
from testudo_runs.importing.logs.draft_mapping import draft_of
from testudo_runs.importing.mapping.mapping_file import parse_map
from testudo_runs.importing.run_import import ImportRequest, import_run

LOGS = {
    "unix seconds, comma": (
        "time [s],x [m],y [m],theta [rad],v [m/s],omega [rad/s],mode\n",
        ",",
        [1.7e9, 0.1, 0.2, 0.3, 0.4, 0.5],
        0.02,
        {"pose", "odometry"},
        ("s", "unix"),
    ),
    "milliseconds since boot, semicolon": (
        "t;cmd_vx;cmd_wz;vbat;state\n",
        ";",
        [100.0, 0.1, 0.2, 3.9],
        20,
        {"command", "battery"},
        ("ms", "boot"),
    ),
    "decimal commas": ("t;pos_x;pos_y;heading\n", ";", [100.0, 1.5, 2.5, 0.1], 0.02, {"pose"}, ("s", "boot")),
    "nanoseconds, spaces, comment": (
        "# note\n# stamp ax ay az gyro.x gyro.y gyro.z m1 m2 m3 m4\n",
        " ",
        [1.7e18, 0.5, 0.5, 9.81, *[0.5] * 7],
        1e7,
        {"imu", "motors"},
        ("ns", "unix"),
    ),
}


@pytest.mark.parametrize("kind", LOGS)
def test_a_draft_imports_the_log_that_it_was_made_of(kind, tmp_path):
    header, delimiter, first, step, roles, time = LOGS[kind]
    words = header.strip().split("\n")[-1].lstrip("# ").split(delimiter)
    rows = [[f"{first[0] + k * step:.6f}", *(f"{value:.3f}" for value in first[1:])] for k in range(30)]
    file = tmp_path / "bot1.log"
    lines = [delimiter.join(row + ["go"] * (len(words) - len(row))) for row in rows]
    lines = [line.replace(".", ",") for line in lines] if kind == "decimal commas" else lines
    file.write_text(header + "".join(line + "\n" for line in lines))
    report = inspect_recording(file)
    assert [column["name"] for column in report.values["columns"]["bot1.log"]] == words
    mapping = parse_map(report.values["drafts"][0], "draft.yaml")
    assert (mapping.text[0].time.unit, mapping.text[0].time.clock) == time
    assert set(mapping.text[0].roles) == roles
    robot = import_run(ImportRequest((file,), mapping), tmp_path / "run").recording.robots["bot1"]
    assert set(robot.series) == roles
    found = robot.find(next(iter(roles)))
    np.testing.assert_allclose(np.diff(found.stamp_s), 0.02 if time[0] != "ns" else 0.01, atol=1e-6)


def test_what_is_no_table_has_no_draft(tmp_path):
    for name, data in {
        "prose.txt": b"It was a day\nlike any other, and\nmore so, said he\nto her\n" * 5,
        "noise": bytes(range(256)) * 20,
        "empty": b"",
        "two.csv": b"1,2\n3,4\n",
    }.items():
        (tmp_path / name).write_bytes(data)
        assert draft_of(tmp_path / name) is None


def test_columns_of_unusual_names_have_no_draft_and_the_next_step_is_said(tmp_path, capsys):
    (tmp_path / "own.csv").write_text("t_s,ost_cm,nord_cm\n" + "".join(f"{0.02 * k},{k},{k}\n" for k in range(30)))
    inspect_recording(tmp_path).show(None)
    said = capsys.readouterr().out
    assert "nord_cm" in said
    assert "No mapping is proposed" in said


def test_the_draft_of_a_real_flight_has_the_roles_of_the_shipped_mapping(tmp_path):
    draft = draft_of(crazyflie_folder() / "swap_sss_00_cf50.csv")
    (kind,) = parse_map(draft.text, "draft.yaml").text
    assert {"pose", "odometry", "imu", "battery"} <= set(kind.roles)
    assert (kind.time.column, kind.time.unit, kind.header) == ("time[ms]", "us", "comment")  # headed ms


def test_several_logs_of_one_kind_have_one_draft_and_its_guesses_are_marked(tmp_path, capsys):
    """The heading reaches 170, so it is in deg; that the positions are in m nothing says."""
    for robot in ("r0", "r1"):
        rows = "".join(f"{1700000000000 + 50 * k};{90 * k};{k};{170 - 10 * (k % 30)};0.1;0.2\n" for k in range(60))
        (tmp_path / f"{robot}.csv").write_text("stamp;px;py;heading;v;w\n" + rows)
    report = inspect_recording(tmp_path)
    (draft,) = report.values["drafts"]
    assert parse_map(draft, "draft.yaml").text[0].roles["pose"][0].channels["yaw"].unit == "deg"
    assert "# guessed: heading is in deg, as it reaches 170\n" in draft
    assert "# guessed: in m, though the log does not state it: px (reaches 5220), py (reaches 58)\n" in draft
    report.show(None)
    said = capsys.readouterr().out
    assert said.count("schema: testudo/map/1") == 1
    assert "Draft of a mapping for r0.csv, r1.csv: check" in said


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("empty.mcap", "empty.mcap: 0 bytes, expected a bag"),
        ("empty.db3", "empty.db3: 0 bytes, expected a bag"),
        ("empty.bin", r"found empty.bin \(0 bytes\)"),
    ],
)
def test_an_empty_file_is_said_to_be_empty(tmp_path, name, says):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(TestudoError, match=says):
        inspect_recording(tmp_path / name)
