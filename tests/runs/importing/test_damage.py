"""Damage of every kind: never a traceback, what is sound is kept unchanged, what is lost is told with its place."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.runs.importing.made_logs import block_log, event_log, ground_text, write_team

from testudo_hardware.errors import TestudoError
from testudo_runs.importing.mapping.mapping_file import MapError, load_map, parse_map
from testudo_runs.importing.run_import import ImportRequest, import_run, read_sources
from testudo_runs.recording.load import load_recording
from testudo_runs.recording.recording import RecordingError

LINES = 200
_HEAD = 2
"""Lines of comment."""


def line_changed(change, at=100):
    """Return a damage of one line."""

    def damaged(data, rng):
        lines = data.split(b"\n")
        lines[at] = change(lines[at], rng)
        return b"\n".join(lines)

    return damaged


def field_changed(column, text):
    """Return a damage of one number."""

    def change(line, _):
        fields = line.split()
        fields[column] = text
        return b" ".join(fields)

    return line_changed(change)


def lines_moved(data, _):
    lines = data.split(b"\n")
    lines[60:70], lines[120:130] = lines[120:130], lines[60:70]
    return b"\n".join(lines)


def garbage(data, rng):
    at = len(data) // 2
    return data[:at] + rng.integers(0, 256, 600, np.uint8).tobytes() + data[at + 600 :]


# damage: (of the bytes, samples that may be lost, whether anything is lost)
TEXT = {
    "last line cut": (lambda data, _: data[:-9], 1, True),
    "cut in the middle": (lambda data, _: data[: len(data) // 2], 105, True),
    "no end of the last line": (lambda data, _: data[:-1], 1, True),
    "NaN": (field_changed(2, b"nan"), 1, True),
    "infinite": (field_changed(1, b"-inf"), 1, True),
    "huge": (field_changed(1, b"1e300"), 1, True),
    "too large to be true": (field_changed(2, b"4.2e9"), 1, True),
    "overflows a double": (field_changed(2, b"1e999"), 1, True),
    "a word": (field_changed(3, b"lost"), 1, True),
    "a number with a letter": (field_changed(3, b"0.1x7"), 1, True),
    "underscores": (field_changed(3, b"1_000"), 1, True),
    "hexadecimal": (field_changed(3, b"0x1p3"), 1, True),
    "decimal comma": (field_changed(3, b"0,17"), 1, True),
    "field missing": (line_changed(lambda line, _: line.rpartition(b"\t")[0]), 1, True),
    "field too many": (line_changed(lambda line, _: line + b" 7.0"), 1, True),
    "two lines in one": (
        lambda data, _: data[: data.index(b"\n", 3000)] + data[data.index(b"\n", 3000) + 1 :],
        2,
        True,
    ),
    "binary line": (line_changed(lambda _, rng: rng.integers(11, 256, 60, np.uint8).tobytes()), 1, True),
    "binary block": (garbage, 25, True),
    "no UTF-8": (field_changed(2, b"\xc3\x28\xff"), 1, True),
    "zero bytes": (line_changed(lambda line, _: b"\0" * len(line)), 1, True),
    "a page of zero bytes": (lambda data, _: data[:4000] + b"\0" * 1500 + data[5500:], 45, True),
    "a million bytes without an end": (line_changed(lambda _, rng: b"x" * 2_500_000), 1, True),
    "stamp goes back": (field_changed(0, b"1248444175.001"), 1, True),
    "stamp jumps ahead and back": (field_changed(0, b"1248449999.000"), 1, True),
    "stamp is zero": (field_changed(0, b"0"), 1, True),
    "stamp is negative": (field_changed(0, b"-1248444175.5"), 1, True),
    "stamp is no number": (field_changed(0, b"nan"), 1, True),
    "stamp of another century": (field_changed(0, b"9e18"), 1, True),
    "stamp lost its last digits": (field_changed(0, b"1248444"), 1, True),
    "lines in another order": (lines_moved, 80, True),
    "empty file": (lambda *_: b"", LINES, True),
    "only comments": (lambda data, _: b"\n".join(data.split(b"\n")[:_HEAD]) + b"\n", LINES, True),
    "UTF-16": (lambda data, _: data.decode().encode("utf-16"), LINES, True),
    "a column less everywhere": (
        lambda data, _: b"\n".join(line.rpartition(b"\t")[0] or line for line in data.split(b"\n")),
        LINES,
        True,
    ),
    "all of it noise": (lambda data, rng: rng.integers(0, 256, len(data), np.uint8).tobytes(), LINES, True),
    "blank lines": (lambda data, _: data.replace(b"\n", b"\n\n  \n"), 0, False),
    "Windows line ends": (lambda data, _: data.replace(b"\n", b"\r\n"), 0, False),
    "byte order mark": (lambda data, _: b"\xef\xbb\xbf" + data, 0, False),
    "no comments": (lambda data, _: b"\n".join(data.split(b"\n")[_HEAD:]), 0, False),
    "comments in between": (line_changed(lambda line, _: b"# pause\n" + line), 0, False),
}

CUT = 25
USD = {
    "empty": (lambda *_: b"", CUT * 4, True),
    "one byte": (lambda data, _: data[:1], CUT * 4, True),
    "header cut": (lambda data, _: data[:60], CUT * 4, True),
    "header changed": (lambda data, _: data[:20] + b"?" + data[21:], CUT * 4, True),
    "type changed": (lambda data, _: data.replace(b"stateEstimateZ.z(h)", b"stateEstimateZ.z(b)"), CUT * 4, True),
    "unknown type": (lambda data, _: data.replace(b"(I)", b"(w)", 1), CUT * 4, True),
    "cut within a block": (lambda data, _: data[: len(data) * 3 // 4], 32, True),
    "checksum cut": (lambda data, _: data[:-2], 7, True),
    "a bit": (lambda data, _: flipped(data, len(data) // 2), 7, True),
    "count of a block": (lambda data, _: flipped(data, first_block(data)), 7, True),
    "bytes missing": (lambda data, _: data[: len(data) // 2] + data[len(data) // 2 + 11 :], 14, True),
    "bytes inserted": (lambda data, _: data[: len(data) // 2] + b"\7" * 31 + data[len(data) // 2 :], 7, True),
    "a page of zero bytes": (lambda data, _: data[:1500] + b"\0" * 512 + data[2012:], 40, True),
    "a page of ones": (lambda data, _: data[:1500] + b"\xff" * 512 + data[2012:], 40, True),
    "zero bytes behind": (lambda data, _: data + b"\0" * 512, 0, True),
    "noise behind": (lambda data, rng: data + rng.integers(0, 256, 512, np.uint8).tobytes(), 0, True),
    "a block twice": (lambda data, _: data + data[-(len(data) - first_block(data)) :][:220], 2, True),
}


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def first_block(data):
    """Return where the first block of `block_log` begins."""
    return data.index(b"),", data.index(b"vbatMV")) + 2 + 4


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """Return what is read of undamaged logs."""
    folder = tmp_path_factory.mktemp("clean")
    (folder / "a_cf1.usddeck.bin").write_bytes(block_log(CUT * 4))
    return (
        read_sources(ImportRequest((write_team(folder / "text", 2, LINES),)))[0].recording,
        read_sources(ImportRequest((folder / "a_cf1.usddeck.bin",)))[0].recording,
    )


def check_kept(recording, other, robot, role, most_lost):
    """Check that samples are those of the other, whole recording, no value changed, and enough of them."""
    found, whole = recording.robots[robot].find(role), other.robots[robot].find(role)
    times = np.rint(whole.stamp_s * 1e6)
    mine = np.rint(found.stamp_s * 1e6 + (recording.start_ns - other.start_ns) / 1000)
    at = np.searchsorted(times, mine)
    np.testing.assert_array_equal(times[at], mine)
    np.testing.assert_array_equal(found.values, whole.values[at])
    assert len(found) >= len(whole) - most_lost


@pytest.mark.parametrize("kind", TEXT)
def test_damaged_text_keeps_what_is_sound(kind, clean, tmp_path):
    damage, most_lost, lost = TEXT[kind]
    source = write_team(tmp_path / "logs", 2, LINES)
    file = source / "Robot1_Groundtruth.dat"
    file.write_bytes(damage(file.read_bytes(), np.random.default_rng(0)))
    result = import_run(ImportRequest((source,)), tmp_path / "run")
    assert bool(result.losses) == lost
    assert all(loss.file == file.name for loss in result.losses)
    found, whole = load_recording(tmp_path / "run"), clean[0]
    assert found.complete  # the run folder is whole, whatever the source was
    assert found.start_ns == whole.start_ns
    for robot, role in (("r1", "command"), ("r2", "command"), ("r2", "pose")):
        check_kept(found, whole, robot, role, 0)
    if most_lost < LINES:
        check_kept(found, whole, "r1", "pose", most_lost)
    else:
        assert "pose" not in found.robots["r1"].series


@pytest.mark.parametrize("kind", USD)
def test_a_damaged_card_keeps_what_is_sound(kind, clean, tmp_path):
    damage, most_lost, _ = USD[kind]
    file = tmp_path / "a_cf1.usddeck.bin"
    file.write_bytes(damage(block_log(CUT * 4), np.random.default_rng(0)))
    if most_lost == CUT * 4:
        with pytest.raises(TestudoError, match="nothing in the source can be used; a_cf1"):
            import_run(ImportRequest((file,)), tmp_path / "run")
        assert [path.name for path in tmp_path.iterdir()] == [file.name]
        return
    result = import_run(ImportRequest((file,)), tmp_path / "run")
    assert result.losses
    for role in ("pose", "setpoint", "battery"):
        check_kept(result.recording, clean[1], "cf1", role, most_lost)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "checksum at the end is wrong or cut off"),
        (lambda data: data[: len(data) // 2], "checksum at the end is wrong or cut off"),
        (lambda data: data[:3000] + b"\xee\xee" + data[3002:], "checksum at the end is wrong or cut off"),
        (lambda data: b"\xbc\x02\0\xff\xff" + data[5:], "the header is damaged"),
        (lambda data: data[:40], "the header is damaged"),
        (lambda data: data.replace(b"(f)\0", b"(?)?", 1), "the header is damaged"),
        (lambda data: b"\xbc\x03\0" + data[3:], "found version 3"),
    ],
)
def test_damaged_events_are_told(damage, message, tmp_path):
    file = tmp_path / "a_cf1.usddeck.bin"
    file.write_bytes(damage(event_log()))
    try:
        losses = [loss.why for loss in import_run(ImportRequest((file,)), tmp_path / "run").losses]
    except TestudoError as error:
        losses = [str(error)]
    assert any(message in loss for loss in losses)


CSV = "# time[ms],x[m],y[m],z[m],vx[m/s],vy[m/s],vz[m/s],qx,qy,qz,qw,wx[rad/s],wy[rad/s],wz[rad/s],Vbat[V]\n"


@pytest.mark.parametrize(
    ("text", "message", "roles"),
    [
        (CSV.replace(",Vbat[V]", "") + "0,1,1,1,0,0,0,0,0,0,1,0,0,0\n", "battery: the column 'Vbat[V]' is missing", 2),
        (CSV + "0,1,1,1,0,0,0,0,0,0,0,0,0,0,3.9\n", "pose: the quaternion has not the length 1", 1),
        (CSV + "0,1,1,,0,0,0,0,0,0,1,0,0,0,3.9\n", "pose: a value is no finite number", 1),
        (CSV + CSV[2:] + "0,1,1,1,0,0,0,0,0,0,1,0,0,0,3.9\n", "a field is no number, such as 'time[ms]'", 3),
        (
            CSV.replace("time[ms]", "at") + "0,1,1,1,0,0,0,0,0,0,1,0,0,0,3.9\n",
            "the time column 'time[ms]' is missing",
            0,
        ),
    ],
)
def test_a_damaged_table_tells_what_is_missing(text, message, roles, tmp_path):
    file = tmp_path / "a_cf1.csv"
    file.write_text(text)
    if roles == 0:
        with pytest.raises(TestudoError) as error:
            import_run(ImportRequest((file,)), tmp_path / "run")
        assert message in str(error.value)
        return
    result = import_run(ImportRequest((file,)), tmp_path / "run")
    assert any(message in str(loss) for loss in result.losses)
    assert len(result.recording.robots["cf1"].series) == roles


SOURCES = {
    "Robot1_Odometry.dat": ground_text("Odometry", 60),
    "Robot1_Groundtruth.dat": ground_text("Groundtruth", 60),
    "a_cf1.usddeck.bin": block_log(40),
    "b_cf1.usddeck.bin": event_log(1, 30),
}


@settings(
    max_examples=examples(100),
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    name=st.sampled_from(sorted(SOURCES)),
    changes=st.lists(
        st.tuples(
            st.sampled_from(["flip", "cut", "remove", "insert", "repeat"]),
            st.floats(0, 1),
            st.integers(1, 400),
            st.binary(min_size=1, max_size=40),
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_any_damage_gives_a_recording_or_one_sentence(name, changes, tmp_path_factory):
    data = SOURCES[name]
    for kind, share, length, other in changes:
        at = int(share * len(data))
        data = {
            "flip": data[:at] + other + data[at + len(other) :],
            "cut": data[:at],
            "remove": data[:at] + data[at + length :],
            "insert": data[:at] + other + data[at:],
            "repeat": data[: at + length] + data[at:],
        }[kind]
    file = tmp_path_factory.mktemp("fuzz") / name
    file.write_bytes(data)
    try:
        recording = read_sources(ImportRequest((file,)))[0].recording
    except TestudoError:
        return
    for robot in recording.robots.values():
        for series in robot.series.values():
            assert len(series) > 0
            assert np.isfinite(series.values).all()
            assert (np.diff(series.stamp_s) >= 0).all()


@pytest.mark.parametrize(("mapped", "fits"), [(",", ";"), ("whitespace", ","), (";", "\t")])
def test_a_wrong_delimiter_is_said_with_the_one_that_fits(tmp_path, mapped, fits):
    file = tmp_path / "a_r0.csv"
    rows = [("t", "v", "w"), *((f"{k}", "0.1", "0.2") for k in range(9))]
    file.write_text("".join(fits.join(row) + "\n" for row in rows))
    mapping = parse_map(
        f"""
schema: testudo/map/1
name: own
about: test
text:
  - files: "a_{{robot}}.csv"
    delimiter: "{mapped}"
    header: line
    time: {{column: t, unit: s, clock: boot}}
    roles: {{command: {{channels: {{vx: v, wz: w}}}}}}""",
        "own.yaml",
    )
    with pytest.raises(RecordingError) as error:
        import_run(ImportRequest((file,), mapping), tmp_path / "run")
    assert f"one field by the delimiter {mapped!r} of the mapping; by {fits!r} it has 3" in str(error.value)


def test_a_robot_type_of_a_mapping_that_nobody_knows_is_refused_with_file_and_key(tmp_path):
    source = write_team(tmp_path / "logs", 1, 50)
    (tmp_path / "own.yaml").write_text(load_map("utias").raw.replace("irobot_create", "turtlebot9"))
    mapping = load_map(tmp_path / "own.yaml")
    with pytest.raises(MapError, match=r"own.yaml: robot_type: robot 'turtlebot9' is not known"):
        import_run(ImportRequest((source,), mapping), tmp_path / "run")
    import_run(ImportRequest((source,), mapping, {"": "turtlebot4"}), tmp_path / "run")  # somebody says another one
