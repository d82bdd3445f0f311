"""Logs become run folders: what was read, what was chosen, what is refused; real recordings where they are there."""

import json

import numpy as np
import pytest
from tests.runs.importing.bag_maker import drive
from tests.runs.importing.made_logs import START_S, block_log, ground_text, write_team
from tests.sim.real_data import crazyflie_folder, utias_folder

from testudo_analysis.commands.import_run import import_verb
from testudo_deploy.cli import main
from testudo_deploy.files.bag_writer import METADATA_FILE
from testudo_hardware.errors import TestudoError
from testudo_runs.importing.inspection import inspect_recording
from testudo_runs.importing.mapping.mapping_file import load_map, parse_map
from testudo_runs.importing.run_import import REPORT_FILE, ImportRequest, import_run, parse_robot_types
from testudo_runs.recording.load import load_recording
from testudo_runs.recording.recording import RecordingError

OWN = """
schema: testudo/map/1
name: own
about: a log in degrees, g and millimetres, with velocity and acceleration in the world
text:
  - files: "{robot}/log.csv"
    delimiter: ";"
    header: line
    time: {column: stamp, unit: ms, clock: boot}
    roles:
      odometry:
        velocity: world
        channels: {x: {column: px, unit: mm}, y: {column: py, unit: cm}, yaw: {column: heading, unit: deg},
                   vx: vx, vy: vy, wz: {column: turn, unit: deg/s}}
      imu:
        acceleration: world_without_gravity
        channels: {ax: {column: ax, unit: g}, ay: {column: ay, unit: g}, az: {column: az, unit: g},
                   wx: zero, wy: zero, wz: {column: turn, unit: deg/s}, yaw: {column: heading, unit: deg}}
"""


def test_a_team_is_imported_and_reads_back(tmp_path):
    source = write_team(tmp_path / "logs")
    result = import_run(ImportRequest((source,)), tmp_path / "run")
    found = load_recording(tmp_path / "run")
    assert found.complete
    assert found.start_ns == int(START_S * 1e9)
    assert {name: robot.robot_type for name, robot in found.robots.items()} == dict.fromkeys(
        ("r1", "r2"), "irobot_create"
    )
    pose, command = found.robots["r2"].find("pose"), found.robots["r2"].find("command")
    np.testing.assert_allclose(pose.stamp_s, 0.02 * np.arange(200), atol=1e-9)
    yaw = 0.2 * pose.stamp_s
    np.testing.assert_allclose(pose.values[:, 0], 2 + 0.4 * np.sin(yaw), atol=1e-7)
    np.testing.assert_allclose(2 * np.arctan2(pose.values[:, 5], pose.values[:, 6]), yaw, atol=1e-7)
    np.testing.assert_allclose(command.values[:, [0, 5]], [[0.08, 0.2]] * 200)
    assert command.frame == "r2/base_link"
    report = json.loads((tmp_path / "run" / REPORT_FILE).read_text())
    assert found.info["import"] == {key: value for key, value in report.items() if key != "messages"}
    assert report["messages"] == result.messages == 800
    assert {source["name"]: len(source["sha256"]) for source in report["sources"]} == {
        f"Robot{k}_{kind}.dat": 64 for k in (1, 2) for kind in ("Odometry", "Groundtruth")
    }
    assert report["maps"][0]["text"] == load_map("utias").raw
    assert report["robots"]["r1"]["roles"]["pose"]["origin"]["columns"]["yaw"] == "4"


def test_units_and_frames_of_an_own_mapping(tmp_path):
    (tmp_path / "Bot-7").mkdir()
    # it heads along y: velocity of the world along y is forward, acceleration of the world along x is to the right
    (tmp_path / "Bot-7" / "log.csv").write_text(
        "stamp;px;py;heading;vx;vy;turn;ax;ay;az;zero;label\r\n1000;500;20;90;0;1.5;90;0.1;0;0;0;go\r\n"
        "1020;500;20;90;0;1.5;90;0.1;0;0;0;go\r\n"
    )
    result = import_run(ImportRequest((tmp_path,), parse_map(OWN, "own.yaml"), {"": "turtlebot4"}), tmp_path / "run")
    robot = result.recording.robots["bot_7"]
    assert robot.robot_type == "turtlebot4"
    half = np.sqrt(0.5)
    np.testing.assert_allclose(
        robot.find("odometry").values[0], [0.5, 0.2, 0, 0, 0, half, half, 1.5, 0, 0, 0, 0, np.pi / 2], atol=1e-12
    )
    np.testing.assert_allclose(robot.find("imu").values[0], [0, -0.980665, 9.80665, 0, 0, np.pi / 2], atol=1e-12)
    assert result.recording.start_ns == 1_000_000_000


def test_a_binary_log_goes_before_the_text_made_of_it(tmp_path):
    (tmp_path / "flight_cf3.usddeck.bin").write_bytes(block_log())
    (tmp_path / "flight_cf3.csv").write_text(
        "# time[ms],x[m],y[m],z[m],vx[m/s],qx,qy,qz,qw\n0,9,9,9,0,0,0,0,1\n10000,9,9,9,0,0,0,0,1\n"
    )
    result = import_run(ImportRequest((tmp_path,)), tmp_path / "run")
    robot = result.recording.robots["cf3"]
    np.testing.assert_allclose(robot.find("pose").values[7, :3], [0.1, -0.2, 0.007])
    np.testing.assert_allclose(robot.find("setpoint").values[7, :3], [0.11, -0.21, 0.012])
    np.testing.assert_allclose(robot.find("battery").values[0], [3.8])
    assert any(
        "series that are also in flight_cf3.csv are taken from flight_cf3.usddeck.bin" in note for note in result.notes
    )
    assert any("odometry: the column 'vy[m/s]' is missing" in str(loss) for loss in result.losses)


@pytest.mark.parametrize(
    ("name", "robot"),
    [("swap_cf7.bin", "cf7"), ("swap_cf7.usddeck.bin", "cf7"), ("LOG 00.BIN", "log_00"), ("07", "r07")],
)
def test_a_binary_log_is_known_by_its_beginning_whatever_its_name(name, robot, tmp_path):
    (tmp_path / name).write_bytes(block_log())
    assert list(import_run(ImportRequest((tmp_path / name,)), tmp_path / "run").recording.robots) == [robot]


def test_files_of_several_runs_are_not_mixed(tmp_path):
    for run in ("a", "b"):
        (tmp_path / f"{run}_cf1.usddeck.bin").write_bytes(block_log())
    with pytest.raises(TestudoError, match="the files belong to 2 runs: a, b; choose one with --pick a"):
        import_run(ImportRequest((tmp_path,)), tmp_path / "run")
    with pytest.raises(TestudoError, match="--pick: found 'c', expected one of a, b"):
        import_run(ImportRequest((tmp_path,), pick="c"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert list(import_run(ImportRequest((tmp_path,), pick="b"), tmp_path / "run").report["choices"]) == [
        "b_cf1.usddeck.bin"
    ]


def test_two_logs_of_the_same_time_are_refused_and_two_halves_joined(tmp_path):
    whole = ground_text("Groundtruth").splitlines(keepends=True)
    first, second = tmp_path / "one" / "Robot1_Groundtruth.dat", tmp_path / "two" / "Robot1_Groundtruth.dat"
    for file, lines in ((first, whole[:102]), (second, whole[:2] + whole[102:])):
        file.parent.mkdir()
        file.write_bytes(b"".join(lines))
    joined = import_run(ImportRequest((tmp_path,)), tmp_path / "run").recording.robots["r1"].find("pose")
    np.testing.assert_allclose(joined.stamp_s, 0.02 * np.arange(200), atol=1e-9)
    second.write_bytes(b"".join(whole))
    with pytest.raises(TestudoError, match=r"r1: found pose in .* at the same time"):
        import_run(ImportRequest((first.parent, second.parent)), tmp_path / "other")


def test_a_run_is_never_written_over_and_none_is_left_half(tmp_path, monkeypatch):
    source = write_team(tmp_path / "logs", count=20)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "note").write_text("mine")
    with pytest.raises(TestudoError, match="exists already; give a new folder"):
        import_run(ImportRequest((source,)), tmp_path / "taken")

    def stop(*_):
        raise KeyboardInterrupt

    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr("testudo_runs.importing.run_import.write_recording", stop)
    with pytest.raises(KeyboardInterrupt):
        import_run(ImportRequest((source,)), tmp_path / "run")
    assert sorted(tmp_path.rglob("*")) == before
    monkeypatch.undo()
    (tmp_path / "run").mkdir()  # empty
    import_run(ImportRequest((source,)), tmp_path / "run")
    assert (tmp_path / "run" / METADATA_FILE).is_file()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["r2d2"], "--robot-type: robot 'r2d2' is not known"),
        (["turtlebot4", "gritsbot_x"], "the type of all robots is given twice"),
        (["r9=turtlebot4"], "--robot-type: found the robot 'r9', expected one of r1, r2"),
    ],
)
def test_wrong_robot_types_are_refused(texts, message, tmp_path):
    with pytest.raises(TestudoError) as error:
        import_run(
            ImportRequest((write_team(tmp_path / "logs", count=5),), None, parse_robot_types(texts)), tmp_path / "run"
        )
    assert message in str(error.value)


def test_the_verb_tells_by_its_status_that_something_was_lost(tmp_path, capsys):
    source = write_team(tmp_path / "logs", count=20)
    assert import_verb((source, tmp_path / "run")) == 0
    with (source / "Robot1_Odometry.dat").open("ab") as stream:
        stream.write(b"1248444175.9 nan 0.2\n")
    assert import_verb((source, tmp_path / "other"), json=tmp_path / "import.json") == 1
    assert "Robot1_Odometry.dat: line 23: command: a value is no finite number" in capsys.readouterr().out
    assert json.loads((tmp_path / "import.json").read_text())["losses"][0]["places"] == "line 23"
    assert import_verb((source, tmp_path / "third"), allow_damage=True) == 0
    inspect_recording(tmp_path / "third").show(None)
    assert "command: a value is no finite number" in capsys.readouterr().out


def test_real_ground_robots_have_the_gaps_and_stamps_that_they_have(tmp_path):
    folder = utias_folder()
    files = [folder / f"Robot4_{kind}.dat" for kind in ("Odometry", "Groundtruth")]
    result = import_run(ImportRequest(tuple(files)), tmp_path / "run")
    assert result.losses == ()
    values = inspect_recording(tmp_path / "run").values["robots"]["r4"]["roles"]
    stamps = np.loadtxt(files[0])[:, 0]
    steps = np.diff(stamps)
    assert values["command"]["samples"] == len(stamps)
    assert values["command"]["duplicates"] == int((steps == 0).sum()) == 10
    assert values["command"]["gaps"] == int((steps > 0.1).sum()) == 506
    assert values["command"]["longest_gap_s"] == pytest.approx(steps.max(), abs=1e-6)
    assert values["pose"]["longest_gap_s"] == pytest.approx(2.03, abs=1e-6)


def test_real_flights_are_told_apart_by_run(tmp_path):
    folder = crazyflie_folder()
    runs = inspect_recording(folder).values["runs"]
    assert runs["swap_sss_00"]["robots"] == ["cf50", "cf51", "cf52"]
    result = import_run(ImportRequest((folder,), pick="swap_sss_00"), tmp_path / "run")
    assert result.losses == ()
    found = load_recording(tmp_path / "run")
    assert len(found.robots["cf50"].find("setpoint")) == 1895
    thrust = found.robots["cf51"].find("motors").values.sum(axis=1)
    force = found.robots["cf51"].find("imu").values[:, 2]
    assert np.median(thrust) / np.median(force) == pytest.approx(0.034, abs=0.002)  # its mass [kg]


def test_clocks_since_boot_begin_with_those_that_know_the_time_of_day(tmp_path):
    source = write_team(tmp_path / "logs", 1, 50)
    (source / "a_cf1.usddeck.bin").write_bytes(block_log(50, first=5_000_000))
    result = import_run(ImportRequest((source,), robot_types=parse_robot_types(["r1=turtlebot4"])), tmp_path / "run")
    assert result.recording.start_ns == int(START_S * 1e9)
    found = load_recording(tmp_path / "run")
    np.testing.assert_allclose(found.robots["cf1"].find("pose").stamp_s, 0.01 * np.arange(50), atol=1e-9)
    assert {name: robot.robot_type for name, robot in found.robots.items()} == {
        "cf1": "crazyflie_2x",
        "r1": "turtlebot4",
    }
    assert any("clocks since boot are moved to begin with the others" in note for note in result.notes)


def two_clocks(folder, boot_s, moves=True):
    """Write the pose of r0 by the time of day, and the odometry of the same way by a clock since boot, offset so."""
    times, _, poses, _ = drive(3000, seed=4)
    if not moves:
        poses = np.tile([0.0, 0, 0, 0, 0, 0, 1], (3000, 1))
    yaw = 2 * np.arctan2(poses[:, 5], poses[:, 6])
    folder.mkdir()
    for name, start_s, kept in (("seen_r0.csv", START_S, slice(0, None)), ("boot_r0.csv", -boot_s, slice(500, None))):
        rows = np.column_stack([start_s + times, poses[:, :2], yaw])[kept]
        np.savetxt(folder / name, rows, delimiter=",", header="t,x,y,yaw", comments="", fmt="%.6f")
    parts = [
        f"""
  - files: "{kind}_{{robot}}.csv"
    delimiter: ","
    header: line
    time: {{column: t, unit: s, clock: {clock}}}
    roles: {{{role}: {{channels: {{x: x, y: y, yaw: yaw}}}}}}"""
        for kind, clock, role in (("seen", "unix", "pose"), ("boot", "boot", "odometry"))
    ]
    return parse_map(
        'schema: testudo/map/1\nname: two\nabout: test\nrobot_name: "{robot}"\ntext:' + "".join(parts), "two.yaml"
    )


def test_a_clock_since_boot_is_laid_by_a_motion_that_stands_in_both_logs(tmp_path):
    """Its log begins ten seconds after the other one, which nothing but the motion tells."""
    request = ImportRequest((tmp_path / "logs",), two_clocks(tmp_path / "logs", -77.0))
    result = import_run(request, tmp_path / "run")
    odometry = result.recording.robots["r0"].find("odometry")
    np.testing.assert_allclose(odometry.stamp_s, 0.02 * np.arange(500, 3000), atol=0.01)
    assert any("r0: its clock since boot is related to the time of day within" in note for note in result.notes)
    assert not any("not checked" in note for note in result.notes)


def test_a_clock_that_nothing_tells_is_said_to_be_not_checked_and_can_be_given(tmp_path):
    mapping = two_clocks(tmp_path / "logs", -77.0, moves=False)
    result = import_run(ImportRequest((tmp_path / "logs",), mapping), tmp_path / "run")
    assert result.recording.robots["r0"].find("odometry").stamp_s[0] == pytest.approx(0, abs=1e-6)
    assert any("begin with the others, which is not checked" in note for note in result.notes)


def test_offsets_of_robots_are_applied_to_their_logs(tmp_path, capsys):
    for name, first in (("a_cf1", 0), ("a_cf2", 300_000)):
        (tmp_path / "logs").mkdir(exist_ok=True)
        (tmp_path / "logs" / f"{name}.usddeck.bin").write_bytes(block_log(50, first=first))
    plain = import_run(ImportRequest((tmp_path / "logs",)), tmp_path / "plain")
    assert any("cf1, cf2: clocks since boot are treated as one, which is not checked" in note for note in plain.notes)
    assert plain.recording.robots["cf2"].find("pose").stamp_s[0] == pytest.approx(0.3)
    line = ["import", str(tmp_path / "logs"), str(tmp_path / "run"), "--offset"]
    assert main([*line, "cf2=-0.3"]) == 0
    assert "cf2: put back by 0.300 s, as given" in " ".join(capsys.readouterr().out.split())
    found = load_recording(tmp_path / "run")
    for name in ("cf1", "cf2"):
        np.testing.assert_allclose(found.robots[name].find("pose").stamp_s, 0.01 * np.arange(50), atol=1e-9)
    with pytest.raises(RecordingError, match="--offset cf7: no such robot; there are cf1, cf2"):
        import_run(ImportRequest((tmp_path / "logs",), offsets={"cf7": 1.0}), tmp_path / "none")


def test_logs_of_one_robot_that_are_far_apart_are_two_runs(tmp_path):
    whole = ground_text("Groundtruth").splitlines(keepends=True)
    for name, later_s in (("set1", 0), ("set2", 7200)):
        (tmp_path / name).mkdir()
        lines = [
            line
            if line.startswith(b"#")
            else b" ".join([b"%.3f" % (float(line.split()[0]) + later_s), *line.split()[1:]]) + b"\n"
            for line in whole
        ]
        (tmp_path / name / "Robot1_Groundtruth.dat").write_bytes(b"".join(lines))
    with pytest.raises(RecordingError, match=r"set1/Robot1_.* and, 7196 s later, in set2/Robot1_.* two runs"):
        import_run(ImportRequest((tmp_path,)), tmp_path / "run")


CRAZYFLIE_HEAD = (
    "time[ms],x[m],y[m],z[m],vx[m/s],vy[m/s],vz[m/s],ax[m/s^2],ay[m/s^2],az[m/s^2],qx,qy,qz,qw,"
    "u1[N],u2[N],u3[N],u4[N],Vbat[V],wx[rad/s],wy[rad/s],wz[rad/s]"
)


def crazyflie_text(step, head):
    row = "0,0,1,0,0,0,0,0,9.81,0,0,0,1,0.08,0.08,0.08,0.08,3.9,0,0,0"
    return "\n".join([head, *(f"{9.0 + step * k},{row}" for k in range(200)), ""])


@pytest.mark.parametrize(
    ("step", "unit"), [(10_000, "us"), (2_000, "us"), (20_000, "us"), (10, "ms"), (2, "ms"), (0.02, "s")]
)
def test_a_column_headed_ms_tells_its_unit_by_its_steps(step, unit, tmp_path):
    log = tmp_path / "fly_00_cf7.csv"
    log.write_text(crazyflie_text(step, f"# {CRAZYFLIE_HEAD}"))
    result = import_run(ImportRequest((log,)), tmp_path / "run")
    factor = {"s": 1.0, "ms": 1e-3, "us": 1e-6}[unit]
    assert result.recording.duration_s == pytest.approx(199 * step * factor)
    assert any(f"taken as {unit}" in note for note in result.notes)
    assert not result.losses


def test_a_unit_that_cannot_be_is_told(tmp_path):
    (tmp_path / "r1").mkdir()
    rows = [f"{0.01 * k};0;0;0;0;0;0;0;0;0;0" for k in range(50)]
    (tmp_path / "r1" / "log.csv").write_text("\n".join(["stamp;px;py;heading;vx;vy;turn;ax;ay;az;zero", *rows, ""]))
    result = import_run(ImportRequest((tmp_path,), parse_map(OWN, "own.yaml"), {"": "gritsbot_x"}), tmp_path / "run")
    assert "by the unit ms of the mapping: it is another one" in str(result.losses[0])


def test_names_in_the_first_line_stand_for_those_in_a_comment(tmp_path):
    log = tmp_path / "fly_00_cf7.csv"
    log.write_text(crazyflie_text(10_000, CRAZYFLIE_HEAD))
    result = import_run(ImportRequest((log,)), tmp_path / "run")
    assert set(result.recording.robots["cf7"].series) == {"pose", "odometry", "imu", "motors", "battery"}
    assert not result.losses


@pytest.mark.parametrize(
    ("begin", "remedy"),
    [
        (b"PK\x03\x04", "unpack it first"),
        (b"PAR1", "write it as CSV"),
    ],
)
def test_a_format_that_is_not_read_is_named_with_what_converts_it(tmp_path, begin, remedy):
    file = tmp_path / "old.data"
    file.write_bytes(begin + bytes(50))
    for source in (file, tmp_path):
        with pytest.raises(RecordingError) as error:
            import_run(ImportRequest((source,)), tmp_path.parent / "never")
        assert remedy in str(error.value)
