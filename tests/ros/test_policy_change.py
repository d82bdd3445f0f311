"""A fleet of two over real DDS that drives one policy, stands, and drives another one, without a restart."""

import re
import time
from importlib.util import find_spec

import pytest
from tests.ros.order_stage import DRIVES, OrderStage, write_order_fleet
from tests.sim.online_task.task_fleet import write_policy

from testudo_analysis.replay import reinfer
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_runs.run_reader import read_run

pytestmark = [
    pytest.mark.ros,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(1800),
]
ROBOTS = ("r0", "r1")


def test_a_fleet_that_stands_gets_another_policy_and_a_run_of_its_own(tmp_path, capsys):
    from testudo_nodes.station.arm import arm, pause
    from testudo_nodes.station.goal import Reach, goal
    from testudo_nodes.station.policy import policy

    fleet = write_order_fleet(tmp_path, {"r0": (-1.2, 0.4), "r1": (-1.2, -0.4)})
    other, arena = tmp_path / "other.onnx", PolicyArtefact.load(fleet.policy).contract.arena
    write_policy(other, "swap", fleet.robots[0].spec, arena=arena, speed_share=0.6)
    with OrderStage(fleet, tmp_path / "run") as stage:
        stage.take_events(lambda state: state.started)
        here = {"domain": stage.domain, "local": True}
        slow = here | {"wait": 200.0}  # the task node compiles the other scenario
        reach = Reach(wait=20.0, **here)
        assert stage.modes_become(ROBOTS, DRIVES), stage.seen
        assert goal(fleet.file, "r0", (1.2, 0.4), reach=reach) == 0
        assert goal(fleet.file, "r1", (1.2, -0.4), reach=reach) == 0
        capsys.readouterr()

        assert policy(fleet.file, other, **slow) == 1  # nobody changes robots that drive
        shown = " ".join(capsys.readouterr().out.split())
        assert re.search("found the robot (active|holding), expected it idle or armed", shown)
        assert "refused: nothing was changed" in shown
        assert stage.modes_become(ROBOTS, DRIVES), stage.seen

        assert pause(ROBOTS, **here) == 0
        status = policy(fleet.file, other, **slow)
        shown = capsys.readouterr().out
        assert status == 0, shown
        assert stage.modes_become(ROBOTS, ("idle",)), stage.seen
        time.sleep(3.0)
        assert stage.modes_become(ROBOTS, ("idle",)), stage.seen  # nothing starts by itself
        assert arm(ROBOTS, start=True, wait=60.0, **here) == 0
        state = stage.finish()

    assert (state.outcome, state.contacts) == ("arrived", 0)
    assert list(state.later_runs) == [str(tmp_path / "run_2")]
    for folder, file, wrong in (("run", fleet.policy, other), ("run_2", other, fleet.policy)):
        found = read_run(tmp_path / folder)
        assert found.warnings == ()
        used = PolicyArtefact.load(found.policy_path)
        assert used.sha256 == PolicyArtefact.load(file).sha256
        result = reinfer(found, used)
        assert result.error <= 1e-12
        assert all(robot.unverified == 0 for robot in result.robots)
        assert max(abs(tick.sent_command[0]) for tick in found.ticks["r0"]) > 0.02
        # the control: the other file does not explain the run
        assert reinfer(found, PolicyArtefact.load(wrong)).error > 0.01
    assert found.truth["r0"].position_world[-1] == pytest.approx((1.2, 0.4), abs=0.1)
