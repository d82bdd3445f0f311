"""Mapping files: the shipped ones hold, and each mistake is named with file, key, found and expected."""

from pathlib import Path

import pytest

from testudo_runs.importing.mapping.mapping_file import MapError, load_map, parse_map, shipped_maps

GOOD = """
schema: testudo/map/1
name: own
about: an example
text:
  - files: "{robot}.csv"
    delimiter: ","
    header: line
    time: {column: t, unit: s, clock: unix}
    roles:
      pose:
        channels: {x: {column: x, unit: mm}, y: y, yaw: {column: heading, unit: deg, scale: -1}}
"""


def test_shipped_maps_hold_and_know_their_files():
    for name, file in shipped_maps().items():
        found = load_map(name)
        assert found.name == name
        assert found.raw == file.read_text()
        assert found.logs


def test_the_example_of_the_documentation_holds():
    text = (Path(__file__).parents[4] / "docs" / "replay.md").read_text(encoding="utf-8")
    begin = text.index("    schema: testudo/map/1")
    lines = text[begin : text.index("A column is a name", begin)].splitlines()
    found = parse_map("\n".join(line.removeprefix("    ") for line in lines), "docs/replay.md")
    assert list(found.text[0].roles) == ["pose", "odometry", "imu"]


def test_short_forms_are_written_out():
    (way,) = parse_map(GOOD, "own.yaml").text[0].roles["pose"]
    assert way.channels["y"].column == "y"
    assert way.channels["yaw"].scale == -1.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("testudo/map/1", "testudo/map/9", "own.yaml: schema: found 'testudo/map/9', expected 'testudo/map/1'"),
        ("about: an example", "abuot: x", "own.yaml: map.about: missing"),
        ("about: an example", "about: a\ncolour: red", "own.yaml: map.colour: unknown key"),
        ("about: an example", "about: a\nfile: x", "own.yaml: map.file: unknown key"),
        ("name: own", "name: own\nname: own", "own.yaml: not a YAML file: the key 'name' occurs twice"),
        ("unit: s,", "unit: h,", "own.yaml: map.text[0].time.unit: found 'h', expected one of s, ms, us, ns"),
        ("pose:", "post:", "own.yaml: text[0].roles.post: unknown role; known are pose"),
        ("y: y,", "u: y,", "own.yaml: text[0].roles.pose.channels.u: unknown channel; a pose has x, y"),
        ("y: y,", "", "own.yaml: text[0].roles.pose.channels.y: missing"),
        (
            "unit: mm",
            "unit: inch",
            "own.yaml: text[0].roles.pose.channels.x.unit: found 'inch', expected one of m, cm, mm",
        ),
        ("header: line", "header: none", "time.column: found the name 't', but `header: none` has no names"),
        ("y: y,", "y: 0,", "channels.y.column: found 0, expected a number from 1"),
        ("{robot}.csv", "{robot}{robot}.csv", "text[0].files: found '{robot}{robot}.csv'"),
        (
            "{robot}.csv",
            "{who}.csv",
            "text[0].files: found '{who}.csv', expected a name in which {robot} and {run} may",
        ),
        ('delimiter: ","', "delimiter: tab", "text[0].delimiter: found 'tab', expected 'whitespace' or one character"),
        ("header: line", "header: line\n    columns: 0", "text[0].columns: found 0, expected at least 1"),
        (
            "yaw: {column: heading, unit: deg, scale: -1}",
            "qx: qx",
            "channels: found qx, expected all of qx, qy, qz, qw",
        ),
        (", yaw: {column: heading, unit: deg, scale: -1}", "", "roles.pose.channels: no attitude"),
        (
            "      pose:",
            "      pose:\n        velocity: world",
            "roles.pose.velocity: found 'world', but a pose has none",
        ),
        ("header: line", "header: comment", "text[0].comment: missing"),
        ("text:", "notes:", "own.yaml: map.notes: unknown key"),
    ],
    ids=str,
)
def test_a_mistake_is_one_sentence_with_its_place(old, new, message):
    assert old in GOOD
    with pytest.raises(MapError) as error:
        parse_map(GOOD.replace(old, new), "own.yaml")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", "3", "{", "schema: testudo/map/1", "a: &x [*x]", "\x00"])
def test_what_is_no_map_is_refused(text):
    with pytest.raises(MapError):
        parse_map(text, "own.yaml")


def test_unknown_name_and_missing_file_are_refused(tmp_path):
    with pytest.raises(MapError, match="'kitti' is not known; known are crazyflie_csv"):
        load_map("kitti")
    with pytest.raises(MapError, match="no such mapping file"):
        load_map(tmp_path / "own.yaml")
    (tmp_path / "own.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(MapError, match=r"own\.yaml: is not a text file; expected a mapping"):
        load_map(tmp_path / "own.yaml")
