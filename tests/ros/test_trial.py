"""`testudo trial` over real DDS: on the plant in lock-step, and as the station of robots that run already."""

import json
from dataclasses import replace
from importlib.util import find_spec

import pytest
from tests.sim.online_task.task_fleet import make_task_fleet

from testudo_deploy.cli import main
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan
from testudo_runs.run_reader import read_run

pytestmark = [
    pytest.mark.ros,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(600),
]


@pytest.fixture
def fleet(tmp_path):
    made = make_task_fleet(tmp_path, "navigation", 2)
    save_fleet(replace(made, orders=True), made.file)
    return load_fleet(made.file)


def trial(fleet, folder, *words):
    """Run the verb; return its exit status and figures."""
    file = folder / "figures.json"
    status = main(["trial", str(fleet.file), "--out", str(folder / "out"), "--json", str(file), *map(str, words)])
    return status, json.loads(file.read_text())


def test_trials_in_lock_step_begin_where_the_last_one_ended_and_are_not_repeated(fleet, tmp_path, quick):
    status, found = trial(fleet, tmp_path, "--repeat", 2, "--lock-step", "--seed", 3)
    assert (status, found["scored"], found["contacts"]["fleet"]) == (0, 2, 0), found
    first, second = found["runs"]
    runs = [read_run(one["run"]) for one in (first, second)]
    assert all(run.complete for run in runs)
    for name, (place, _) in zip(fleet.names, first["ends"], strict=True):
        assert runs[1].fleet.robot(name).initial_position_world == pytest.approx(place, abs=1e-3)
        begin = runs[1].truth[name].position_world[0]
        assert begin == pytest.approx(place, abs=0.02)
    waits = [line for score in runs[1].task_scores for line in score.get("waits_for", ())]
    assert any("m from its start" in line for line in waits)  # it drove there
    again = trial(fleet, tmp_path, "--repeat", 2, "--lock-step", "--seed", 3)
    assert again == (status, found)
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == ["run_001", "run_002"]


def test_a_trial_as_the_station_of_robots_that_run_already(fleet, tmp_path, quick):
    """In place of real robots: the plant, guards and policies, whose station is the verb."""
    planned = plan(fleet, run_folder=None, duration_s=3600.0)
    robots = [process for process in planned if process.namespace or process.name == "plant"]
    with FleetProcesses(robots) as processes:
        reach = ("--domain", processes.domain_id, "--local")
        status, found = trial(fleet, tmp_path, "--repeat", 1, "--backend", "hw", "--patience", 150, *reach)
    assert (status, found["scored"]) == (0, 1), found
    assert found["runs"][0]["success"]
