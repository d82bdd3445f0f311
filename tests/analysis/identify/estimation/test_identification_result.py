"""An identification round-trips through JSON, and a robot file through what was identified."""

import json
import tomllib

import numpy as np
import pytest

from testudo_analysis.identify import Estimate, HeldOut, Identification, Quantiles, write_identified
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot

LAG = Estimate("dynamics.velocity_lag", 0.12, 0.11, 0.13, "s", by_robot={"r0": (0.14, 0.12, 0.16)})
SLIP = Estimate("dynamics.turn_slip", 1.1, 1.0, 1.2, "s/rad")
LIMIT = Estimate("limits.acceleration", 0.9, 0.05, 200.0, "m/s^2", False, "never reached: start and stop hard")
BASE = Estimate("wheel base equivalent", 0.24, 0.23, 0.25, "m")
ROWS = tuple(
    HeldOut(
        robot,
        2.0,
        "position",
        "m",
        Quantiles(0.011, 0.037, 10),
        Quantiles(0.01, 0.03, 10),
        Quantiles(0.005, share, 10),
        "half",
    )
    for robot, share in (("r0", 0.0185), ("r1", 0.0037))
)
FOUND = Identification(
    "irobot_create",
    ("r0", "r1"),
    (LAG, SLIP, LIMIT, BASE),
    ROWS,
    {"run": "mrclam6", "run_sha256": "0123abcd", "version": "0.1.0", "recorded": "2008-09-18"},
)


def test_json_and_back_is_the_same():
    assert Identification.from_dict(json.loads(json.dumps(FOUND.to_dict()))) == FOUND
    with pytest.raises(TestudoError, match=r"mine.json: not an identification: KeyError"):
        Identification.from_dict({}, "mine.json")


def test_reductions_are_medians_over_robots():
    median, p90 = FOUND.reductions("position", 2.0, "half")
    assert np.isclose(median, 1 - 5 / 11)
    assert np.isclose(p90, (0.5 + 0.9) / 2)
    with pytest.raises(TestudoError, match="no held-out yaw at 2 s"):
        FOUND.reductions("yaw", 2.0, "half")


def test_the_robot_file_has_what_was_determined_with_provenance(tmp_path):
    write_identified("irobot_create", FOUND, tmp_path / "found.toml")
    before, after = load_robot("irobot_create"), load_robot(tmp_path / "found.toml")
    lag = after.quantities["dynamics.velocity_lag"]
    assert (lag.value, lag.low, lag.high) == (0.12, 0.11, 0.16)  # single robots are in it, too
    for word in ("mrclam6", "0123abcd", "0.1.0", "2008-09-18"):
        assert word in lag.source
    assert after.turn_slip_s_rad == 1.1
    same = set(before.quantities) - {"dynamics.velocity_lag"}
    assert all(before.quantities[key] == after.quantities[key] for key in same)
    text = (tmp_path / "found.toml").read_text()
    assert "limits.acceleration: not determined by this run" in text
    assert "wheel base equivalent: 0.24 in [0.23, 0.25] m" in text
    tomllib.loads(text)


def test_a_file_that_cannot_be_is_refused(tmp_path):
    with pytest.raises(TestudoError, match=r"ends in \.toml"):
        write_identified("irobot_create", FOUND, tmp_path / "found.json")
    wrong = Identification("irobot_create", (), (Estimate("dynamics.velocity_lag", 1, 1, 1, "ms"),), ())
    with pytest.raises(TestudoError, match="found unit 'ms', expected 's'"):
        write_identified("irobot_create", wrong, tmp_path / "found.toml")
