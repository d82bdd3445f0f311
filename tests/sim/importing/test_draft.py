"""A log that no mapping knows is shown with its columns and a mapping to begin with, which then imports it."""

import numpy as np
import pytest
from tests.sim.real_data import crazyflie_folder

from testudo_sim.importing.draft import draft_of
from testudo_sim.importing.inspection import inspect_recording
from testudo_sim.importing.map_file import parse_map
from testudo_sim.importing.run_import import Request, import_run

LOGS = {
    "unix seconds, comma": ("time [s],x [m],y [m],theta [rad],v [m/s],omega [rad/s],mode\n", ",",
                            [1.7e9, 0.1, 0.2, 0.3, 0.4, 0.5], 0.02, {"pose", "odometry"}, ("s", "unix")),
    "milliseconds since boot, semicolon": ("t;cmd_vx;cmd_wz;vbat;state\n", ";", [100.0, 0.1, 0.2, 3.9], 20,
                                           {"command", "battery"}, ("ms", "boot")),
    "nanoseconds, spaces, comment": ("# note\n# stamp ax ay az gyro.x gyro.y gyro.z m1 m2 m3 m4\n", " ",
                                     [1.7e18, *[0.5] * 10], 1e7, {"imu", "motors"}, ("ns", "unix")),
}


@pytest.mark.parametrize("kind", LOGS)
def test_a_draft_imports_the_log_that_it_was_made_of(kind, tmp_path):
    header, delimiter, first, step, roles, time = LOGS[kind]
    words = header.strip().split("\n")[-1].lstrip("# ").split(delimiter)
    rows = [[f"{first[0] + k * step:.6f}", *(f"{value:.3f}" for value in first[1:])] for k in range(30)]
    file = tmp_path / "bot1.log"
    file.write_text(header + "".join(delimiter.join(row + ["go"] * (len(words) - len(row))) + "\n" for row in rows))
    report = inspect_recording(file)
    assert [column["name"] for column in report.values["columns"]["bot1.log"]] == words
    mapping = parse_map(report.values["drafts"][0], "draft.yaml")
    assert (mapping.text[0].time.unit, mapping.text[0].time.clock) == time
    assert set(mapping.text[0].roles) == roles
    robot = import_run(Request((file,), mapping), tmp_path / "run").recording.robots["bot1"]
    assert set(robot.series) == roles
    found = robot.find(next(iter(roles)))
    np.testing.assert_allclose(np.diff(found.stamp_s), 0.02 if time[0] != "ns" else 0.01, atol=1e-6)


def test_what_is_no_table_has_no_draft(tmp_path):
    for name, data in {"prose.txt": b"It was a day\nlike any other, and\nmore so, said he\nto her\n" * 5,
                       "noise": bytes(range(256)) * 20, "empty": b"", "two.csv": b"1,2\n3,4\n"}.items():
        (tmp_path / name).write_bytes(data)
        assert draft_of(tmp_path / name) is None


def test_the_draft_of_a_real_flight_has_the_roles_of_the_shipped_mapping(tmp_path):
    draft = draft_of(crazyflie_folder() / "swap_sss_00_cf50.csv")
    (kind,) = parse_map(draft.text, "draft.yaml").text
    assert {"pose", "odometry", "imu", "battery"} <= set(kind.roles)
    assert (kind.time.column, kind.time.unit, kind.header) == ("time[ms]", "us", "comment")  # headed ms
