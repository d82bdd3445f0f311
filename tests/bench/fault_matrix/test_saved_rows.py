"""`testudo bench faults` keeps each row as soon as it has its verdict, and goes on where it was stopped."""

import json
from importlib.util import find_spec

import pytest

from testudo_hardware.errors import TestudoError

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
]

if find_spec("rclpy") is not None:
    from testudo_bench.fault_matrix import bench_faults as bench
    from testudo_bench.fault_matrix import saved_rows
    from testudo_bench.fault_matrix.fault_matrix import ROWS
    from testudo_bench.fault_matrix.harness.fault_case import FaultFinding
    from testudo_bench.fault_matrix.row_outcome import RowOutcome


@pytest.fixture
def injected(monkeypatch):
    """No fleets: each row that is injected is noted, and has what `results` says of its number; default: held."""
    found, results = [], {}

    def run_matrix(rows, repetitions, _folder, say, bed):
        for row in rows:
            say(f"{row.number}: {row.fault}")
            result = results.get(row.number, FaultFinding(True, 0.01))
            if isinstance(result, BaseException):
                raise result
            found.append(row.number)
            yield RowOutcome(row, () if result is None else (result,) * repetitions, row.limit_s(bed))

    monkeypatch.setattr(bench, "run_matrix", run_matrix)
    monkeypatch.setattr(saved_rows, "matrix_hash", lambda: "1" * 12)
    return Injected(found, results)


class Injected:
    def __init__(self, rows, results):
        self.rows, self.results = rows, results

    def take(self):
        """Return the rows since the last call."""
        taken = list(self.rows)
        self.rows.clear()
        return taken


def run(saved=None, **options):
    return bench.bench_faults(saved=saved, quick=True, say=lambda _: None, **options)


def test_an_interrupted_matrix_keeps_its_rows_and_the_same_command_goes_on(injected, tmp_path):
    file = tmp_path / "faults.json"
    injected.results[20] = KeyboardInterrupt()
    first = run(file)
    assert "interrupted, the same command goes on" in first.title
    done = injected.take()
    assert [one["row"] for one in json.loads(file.read_text())["rows"]] == done == [one for one in done if one < 20]
    injected.results.clear()
    result = run(file)
    assert sorted(done + injected.take()) == sorted(row.number for row in ROWS)
    assert result.values["passed"] == result.values["numbers"] == 39
    run(file)
    assert injected.take() == []


def test_a_row_is_in_the_file_before_the_next_one_is_injected(injected, tmp_path):
    """A process that is killed has no time to write."""
    file, kept = tmp_path / "faults.json", []

    def say(_):
        kept.append(len(json.loads(file.read_text())["rows"]) if file.exists() else 0)

    bench.bench_faults(rows="1-4", quick=True, saved=file, say=say)
    assert kept == list(range(len(injected.take())))


def test_rows_without_a_result_or_with_fewer_repetitions_are_tried_again_and_failed_ones_are_kept(injected, tmp_path):
    file = tmp_path / "faults.json"
    injected.results |= {9: None, 25: FaultFinding(True, 0.2), 10: FaultFinding(False, None, "it stopped")}
    shown = {row[0]: (row[7], row[8]) for row in run(file, rows="9,10,25").rows}
    assert injected.take() == [9, 10, 25]
    assert shown["9"][0] == "stalled"
    assert (shown["10"], shown["25"][0]) == (("FAILED", "it stopped"), "LATE")
    injected.results.clear()
    assert run(file, rows="9,10,25").values["failed"] == [10, 25]
    assert injected.take() == [9]
    bench.bench_faults(rows="25", repeats=2, saved=file, say=lambda _: None)
    assert injected.take() == [25]
    again = {one["row"]: one for one in json.loads(file.read_text())["rows"]}
    assert (again[25]["times_s"], again[10]["passed"]) == ([0.01, 0.01], False)


@pytest.mark.parametrize("other", ["robot", "sources"])
def test_another_robot_or_source_begins_anew_says_so_and_keeps_the_file(injected, tmp_path, monkeypatch, other):
    file = tmp_path / "faults.json"
    run(file, rows="4", robot="turtlebot4")
    before = file.read_text()
    if other == "sources":
        monkeypatch.setattr(saved_rows, "matrix_hash", lambda: "2" * 12)
    result = run(file, rows="4", robot="turtlebot4" if other == "sources" else None)
    assert injected.take() == [4, 4]
    assert ("other sources (111111111111)" if other == "sources" else "robot turtlebot4") in result.title
    assert "begun anew" in result.title
    assert (tmp_path / "faults.json.before").read_text() == before


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("9,x", "--rows: found 'x'"),
        ("38-36", "found '38-36'"),
        ("9,77", "found 77, expected 1 to"),
        ("", "found ''"),
    ],
)
def test_rows_that_do_not_exist_are_refused(rows, message):
    with pytest.raises(TestudoError, match=message):
        run(rows=rows)


def test_a_file_of_another_benchmark_is_refused_and_stays(tmp_path):
    file = tmp_path / "other.json"
    file.write_text('{"rows": 3}')
    with pytest.raises(TestudoError, match="no output of `testudo bench faults`"):
        run(file)
    assert file.read_text() == '{"rows": 3}'


def test_the_hash_sees_sources_and_link_profiles(tmp_path):
    from testudo_deploy.files.package_hash import package_hash

    package = type("module", (), {"__file__": str(tmp_path / "__init__.py")})
    found = set()
    for name, text in (("a.py", "1"), ("profiles/b.toml", "1"), ("profiles/b.toml", "2"), ("c.md", "1")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        found.add(package_hash([package], (".py", ".toml")))
    assert len(found) == 3
