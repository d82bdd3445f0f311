"""Open-loop replay of imported runs, which have no artefact: by poses, or by odometry where nobody saw the robots."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from testudo_analysis.commands.replay import replay
from testudo_analysis.gap.replayed_robots import open_loop_recording
from testudo_bench.synthetic_data.synthetic_runs import synthetic_recording
from testudo_deploy.cli import main
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_runs.alignment import prepare
from testudo_runs.recording.write import write_recording

SPEC = load_robot("gritsbot_x")


@pytest.fixture(scope="module")
def recording():
    return synthetic_recording(SPEC, seconds=30.0, robots=2)


@pytest.fixture(scope="module")
def run(recording, tmp_path_factory):
    folder = tmp_path_factory.mktemp("imported") / "run"
    write_recording(recording, folder)
    return folder


def with_odometry_alone(recording):
    return replace(
        recording,
        robots={
            name: replace(
                robot,
                series={
                    "command": robot.series["command"],
                    "odometry": replace(
                        robot.series["pose"], values=np.pad(robot.series["pose"].values, ((0, 0), (0, 6)))
                    ),
                },
            )
            for name, robot in recording.robots.items()
        },
    )


@pytest.mark.parametrize(("mode", "told"), [("open-loop", False), ("all", True)])
def test_an_imported_run_is_replayed_and_what_is_left_out_is_said(run, tmp_path, mode, told, capsys):
    assert main(["replay", str(run), "--mode", mode, "--json", str(tmp_path / "x.json")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Open-loop error against pose" in said
    assert ("re-inference skipped" in said) == told
    found = json.loads((tmp_path / "x.json").read_text())
    assert found["robots"] == ["robot1", "robot2"]
    rows = [row for row in found["open_loop"]["rows"] if row["channel"] == "position" and row["horizon_s"] == 1.0]
    assert {row["robot"] for row in rows} == {"robot1", "robot2", "all"}
    assert all(row["errors"]["median"] < 0.01 * row["travel_m"] for row in rows)  # the model itself drove


def test_a_robot_that_is_slower_than_its_file_is_off_by_as_much():
    (gap,), left_out = open_loop_recording(
        prepare(synthetic_recording(SPEC, truth={"all": {"speed_scale": 0.9}}, seconds=30.0, robots=1))
    )
    row = gap.find("position", 2.0)
    assert row.errors.median == pytest.approx(row.travel_m / 9, rel=0.25)
    assert not left_out


def test_odometry_is_the_reference_where_nobody_saw_the_robots_or_if_asked(recording):
    for options, run in (
        ({}, with_odometry_alone(recording)),
        (
            {"seen": "odometry"},
            replace(
                recording,
                robots={
                    name: replace(robot, series={**robot.series, **with_odometry_alone(recording).robots[name].series})
                    for name, robot in recording.robots.items()
                },
            ),
        ),
    ):
        (gap,), _ = open_loop_recording(prepare(run, **options))
        assert gap.reference == "odometry"
        assert gap.find("position", 1.0).errors.median < 0.01 * gap.find("position", 1.0).travel_m
    with pytest.raises(TestudoError, match="no robot can be replayed: robot1: neither pose nor odometry is recorded"):
        open_loop_recording(prepare(recording, seen="odometry"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "reinference"}, "was imported: .* replay with --mode open-loop or counterfactual work on it"),
        ({"policy": Path("p.onnx")}, "was imported: --policy needs recorded"),
        ({"alter": True}, "--alter needs recorded"),
    ],
)
def test_what_needs_the_artefact_is_refused(run, options, says):
    with pytest.raises(TestudoError, match=says):
        replay(run, **options)
