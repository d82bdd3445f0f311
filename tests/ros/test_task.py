"""A task that is more than goals over real DDS in lock-step: the task node sends, robots drive, the run is exact."""

from importlib.util import find_spec

import pytest
from tests.sim.online_task.task_fleet import make_task_fleet

from testudo_analysis.replay import reinfer
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.control.task_receiver import OLDEST_TASK_S
from testudo_deploy.launch.fleet_run import run_fleet
from testudo_runs.run_reader import read_run

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(240),
]


def test_foraging_runs_on_the_fleet(tmp_path):
    """Three seconds: every decision rests on a recorded message of the task node, and is inferred again exactly."""
    fleet = make_task_fleet(tmp_path)
    state = run_fleet(fleet, run_folder=tmp_path / "run", duration_s=3.0, lock_step=True)
    assert (state.outcome, state.contacts, state.lines) == ("timeout", 0, [])
    run = read_run(tmp_path / "run")
    assert run.fleet.task == fleet.task
    policy = PolicyArtefact.load(run.policy_path)
    result = reinfer(run, policy)
    assert result.error <= 1e-12
    for robot in result.robots:
        assert robot.decisions >= 2
        assert (robot.lost, robot.unverified) == (0, 0)
        assert {check.name: check.compared for check in robot.fields}["task"] > 50
    for name, ticks in run.ticks.items():
        driven = [record for record in ticks if not record.reason]
        assert driven[-1].task_contract == policy.contract.task_hash
        assert max(record.task_age_s for record in driven) < OLDEST_TASK_S
        assert len(run.task_messages[name]) > 20
