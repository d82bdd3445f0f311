"""Quoted fields of text logs mean what the csv module says; a stray quote costs its own line and nothing else."""

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from testudo_hardware.errors import TestudoError
from testudo_runs.importing.logs import text_log
from testudo_runs.importing.logs.text_log import fields_of, is_open, read_text, without_comment
from testudo_runs.importing.mapping.column_conversion import FileLosses
from testudo_runs.importing.mapping.mapping_file import parse_map

MAP = """schema: testudo/map/1
name: lab
about: test
text:
  - files: "{{robot}}.csv"
    delimiter: "{delimiter}"
    comment: "{comment}"
    header: line
    time: {{column: t, unit: s, clock: boot}}
    roles: {{pose: {{channels: {{x: x, y: y, yaw: yaw}}}}}}
"""
WITH_COMMAS = MAP.format(delimiter=";", comment="").replace("header:", 'decimal: ","\n    header:')


def read(path, text, delimiter=",", comment="", decimal="."):
    """Return the columns by name, the lines they stand in, and the losses."""
    path.write_bytes(text.encode())
    mapping = MAP.format(delimiter=delimiter, comment=comment) if decimal == "." else WITH_COMMAS
    (kind,) = parse_map(mapping, "map.yaml").text
    losses = FileLosses(path)
    table = read_text(path, kind, losses)
    return {table.names[k]: values for k, values in table.columns.items()}, table.places.tolist(), losses.all()


def rows_of(count=6, note=lambda k: f"step {k}"):
    return [(0.1 * k, 1.0 + k, 2.0 * k, 0.01 * k, note(k)) for k in range(count)]


def written(path, rows, quoting, **options):
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, quoting=quoting, lineterminator="\n", **options)
        writer.writerows([("t", "x", "y", "yaw", "note"), *rows])
    return path.read_text()


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC, csv.QUOTE_ALL])
@pytest.mark.parametrize("note", ["go", "left, then; right", 'he said "stop"', 'two\nlines, "more"\n', ""])
def test_what_csv_wrote_is_read(tmp_path, delimiter, quoting, note):
    rows = rows_of(note=lambda k: f"{note}{k}" if note else "")
    text = written(tmp_path / "r0.csv", rows, quoting, delimiter=delimiter)
    found, _, lost = read(tmp_path / "r0.csv", text, delimiter)
    assert not lost
    np.testing.assert_array_equal([found[name] for name in ("t", "x", "y", "yaw")], list(zip(*rows, strict=True))[:4])


@pytest.mark.parametrize("size", [32, 60, 100])
def test_records_over_several_lines_and_blocks(tmp_path, monkeypatch, size):
    monkeypatch.setattr(text_log, "BLOCK_BYTES", size)
    rows = rows_of(20, lambda k: "a\nb, c\nd" if k % 3 == 0 else "plain")
    text = written(tmp_path / "r0.csv", rows, csv.QUOTE_MINIMAL)
    found, lines, lost = read(tmp_path / "r0.csv", text)
    assert not lost
    np.testing.assert_array_equal(found["x"], [row[1] for row in rows])
    assert lines == [k + 1 for k, line in enumerate(text.split("\n")) if line[:1] in "012" and k and line]


@pytest.mark.parametrize("bad", ['0.25,1,"2,0.1,go', '0.25,"1,2,0.1,go', '0.25,1,2,0.1,"go', '0.25,1,2,0.1,go,"'])
@pytest.mark.parametrize("count", [6, 60])
def test_a_stray_quote_costs_its_line_alone(tmp_path, bad, count):
    rows = rows_of(count)
    lines = written(tmp_path / "r0.csv", rows, csv.QUOTE_MINIMAL).split("\n")
    lines.insert(4, bad)
    found, places, lost = read(tmp_path / "r0.csv", "\n".join(lines))
    np.testing.assert_array_equal(found["x"][np.array(places) != 5], [row[1] for row in rows])
    assert [loss.places for loss in lost] == ([] if 5 in places else ["line 5"])


def test_a_comment_sign_within_quotes_begins_no_comment(tmp_path):
    text = 't,x,y,yaw,note\n0.0,1,2,0.1,"#1, go"\n0.1,é,2,0.1,"x"\n# "a\n0.2,3,2,0.1,"#""3""" # done\n'
    found, places, lost = read(tmp_path / "r0.csv", text, comment="#")
    assert (found["x"].tolist(), places) == ([1.0, 3.0], [2, 5])
    assert [loss.places for loss in lost] == ["line 3"]
    assert without_comment(b'1,"# 2",3 # "4', b"#", ",") == b'1,"# 2",3 '


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.text(st.sampled_from('a1",; \n#é'), max_size=6), min_size=1, max_size=5))
def test_fields_are_those_of_csv(tmp_path_factory, fields):
    file = tmp_path_factory.getbasetemp() / "one.csv"
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerow(fields)
    line = file.read_bytes().removesuffix(b"\n")
    if line:
        assert [part.decode() for part in fields_of(line, ",")] == fields
    assert not is_open(line, ",")
    if '"' in line.decode() and line.endswith(b'"') and not line.endswith(b'""'):
        assert is_open(line.removesuffix(b'"'), ",")


COMMAS = "t;x;y;yaw\n" + "".join(f"0,{k};1,5;-2,25e-1;0,5\n" for k in range(5))


def test_decimal_commas_are_read_where_the_mapping_says_so_and_named_where_not(tmp_path):
    found, _, lost = read(tmp_path / "r0.csv", COMMAS, decimal=",")
    assert not lost
    np.testing.assert_array_equal(found["y"], [-0.225] * 5)
    _, places, lost = read(tmp_path / "r0.csv", COMMAS, ";")
    assert not places
    assert any('give `decimal: ","`' in loss.why for loss in lost)
    with pytest.raises(TestudoError, match="which is the delimiter, too"):
        parse_map(MAP.format(delimiter=",", comment="").replace("header:", 'decimal: ","\n    header:'), "map.yaml")
