"""Draws of known parameters are saved one by one, and errors, bias and coverage are computed."""

import json

import pytest

from testudo_bench.accuracy.parameter_recovery import recoveries, recovery_table, saved_values
from testudo_hardware.errors import TestudoError

SETTINGS = {"robot": "r2", "duration_s": 10.0}


def draw(number):
    """Return a draw: the first is off by a tenth and not covered."""
    value = 1.1 if number == 0 else 1.01
    return {"lag": (1.0, value, value - 0.05, value + 0.05)}


def test_a_benchmark_resumes_from_its_file(tmp_path):
    file, made = tmp_path / "saved.json", []

    def recover(number):
        made.append(number)
        if len(made) == 3:
            raise KeyboardInterrupt
        return draw(number)

    with pytest.raises(KeyboardInterrupt):
        recoveries(4, recover, SETTINGS, file)
    assert recoveries(4, recover, SETTINGS, file) == [draw(k) for k in range(4)]
    assert made == [0, 1, 2, 2, 3]
    assert json.loads(file.read_text()) == saved_values(SETTINGS, [draw(k) for k in range(4)])
    assert len(recoveries(2, recover, SETTINGS, file)) == 2
    assert len(made) == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no json", "found no draws to resume"),
        ('{"settings": 3}', "found no draws to resume"),
        ('{"settings": {"robot": "c3"}, "draws": []}', "settings: found .*c3.*, expected .*r2"),
    ],
)
def test_a_file_with_other_contents_is_refused(tmp_path, text, words):
    (tmp_path / "saved.json").write_text(text)
    with pytest.raises(TestudoError, match=words):
        recoveries(1, draw, SETTINGS, tmp_path / "saved.json")


def test_errors_bias_and_coverage_are_counted():
    rows, values = recovery_table([draw(k) for k in range(4)], {"lag": "dynamics.lag"})
    assert values["lag"]["coverage"] == 0.75
    assert values["lag"]["within_bar"] == 0.75
    assert values["lag"]["error_largest"] == pytest.approx(0.1)
    assert values["lag"]["bias"] == pytest.approx(0.0325)
    assert rows[0][:4] == ("dynamics.lag", "1.00%", "10.00% (bar 5%)", "3 of 4 (bar 90%)")
