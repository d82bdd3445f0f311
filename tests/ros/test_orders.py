"""Goals given to a running fleet over real DDS: answered, driven to, recorded and inferred again exactly."""

import threading
import time
from dataclasses import replace
from importlib.util import find_spec

import pytest
from tests.sim.online_task.task_fleet import make_task_fleet

from testudo_analysis.replay import reinfer
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.fleet.fleet import load_fleet
from testudo_deploy.fleet.fleet_writer import save_fleet
from testudo_deploy.launch.fleet_run import run_fleet
from testudo_deploy.launch.launch_plan import with_until
from testudo_runs.run_reader import read_run

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(240),
]


def test_an_order_is_answered_and_driven(tmp_path, capsys):
    from testudo_nodes.station.goal import Reach, goal

    fleet = make_task_fleet(tmp_path, "navigation", 2)
    save_fleet(replace(fleet, orders=True, task={}), fleet.file)  # at their goals from the start: no job yet
    fleet, states = load_fleet(fleet.file), []
    run = threading.Thread(
        target=lambda: states.append(
            run_fleet(
                fleet,
                run_folder=tmp_path / "run",
                duration_s=80.0,
                lock_step=True,
                show=states.append,
                adapt=lambda plan: with_until(plan, "arrived", orders=True),
            )
        )
    )
    run.start()
    while not (states and states[-1].started) and run.is_alive():
        time.sleep(0.1)
    reach = Reach(wait=20.0, domain=states[-1].domain_id, local=True)
    assert goal(fleet.file, "r0", (9.0, 0.0), reach=reach) == 1
    assert "r0: goal (9.00, 0.00): found x = 9.00 m" in capsys.readouterr().out
    # half a metre from its start: each simulated second takes more than one of the processor
    assert goal(fleet.file, "r0", (-0.8, -0.7), reach=reach) == 0
    assert "r0: goes to (-0.80, -0.70)" in capsys.readouterr().out
    run.join()
    state = states[-1]
    assert (state.outcome, state.contacts, state.success) == ("arrived", 0, True)
    assert all("goal (9.00, 0.00)" in line for line in state.lines), state.lines
    found = read_run(tmp_path / "run")
    assert found.warnings == ()
    assert found.task_messages["r0"][-1].values["goal_world"] == pytest.approx((-0.8, -0.7))
    assert found.truth["r0"].position_world[-1] == pytest.approx((-0.8, -0.7), abs=0.1)
    assert {tick.holds for tick in found.ticks["r0"][-10:]} == {"arrived"}
    assert "" in {tick.holds for tick in found.ticks["r0"]}
    result = reinfer(found, PolicyArtefact.load(found.policy_path))
    assert result.error <= 1e-12
    assert all(robot.unverified == 0 for robot in result.robots)
