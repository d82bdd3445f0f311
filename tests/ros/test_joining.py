"""Over real DDS a robot joins a running fleet late, and another one leaves it and comes back: all drive, none touch."""

import time
from importlib.util import find_spec

import pytest
from tests.ros.order_stage import DRIVES, OrderStage, write_order_fleet

from testudo_runs.run_reader import read_run

pytestmark = [
    pytest.mark.ros,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-nodes"),
    pytest.mark.timeout(1800),
]
STARTS = {"r0": (-0.9, 0.0), "r1": (0.0, 0.0), "r2": (0.9, 0.0)}
LATE_S = 10.0


def test_a_late_robot_joins_and_one_comes_back(tmp_path, capsys):
    from testudo_nodes.station.arm import arm
    from testudo_nodes.station.goal import Reach, goal
    from testudo_nodes.station.lost import lost

    fleet = write_order_fleet(tmp_path, STARTS)
    with OrderStage(fleet, tmp_path / "run", late="r2") as stage:
        here = {"domain": stage.domain, "local": True}
        reach = Reach(wait=20.0, **here)
        assert stage.modes_become(("r0", "r1"), ("idle",)), stage.seen
        begun_s = time.monotonic()
        assert not stage.modes_become(("r0",), DRIVES, patience_s=2.0)  # nobody starts before a robot that is not there
        assert lost(fleet.file, "r2", at=STARTS["r2"], wait=20.0, **here) == 0
        assert stage.modes_become(("r0", "r1"), DRIVES), stage.seen
        for name in ("r0", "r1"):
            assert goal(fleet.file, name, (STARTS[name][0], 0.6), reach=reach) == 0
        assert goal(fleet.file, "r0", STARTS["r2"], reach=reach) == 1  # the robot that is not there stands there
        time.sleep(max(0.0, begun_s + LATE_S - time.monotonic()))
        stage.start("r2")
        assert stage.modes_become(("r2",), DRIVES), stage.seen  # the station starts it, once
        assert goal(fleet.file, "r2", (0.9, 0.6), reach=reach) == 0

        stage.end("r1")
        assert goal(fleet.file, "r0", (-0.9, -0.6), reach=reach) == 0
        assert stage.modes_become(("r0", "r2"), DRIVES), stage.seen  # a majority goes on
        stage.start("r1")
        assert stage.modes_become(("r1",), ("idle",)), stage.seen
        assert arm(("r1",), start=True, wait=60.0, **here) == 0  # nothing that was active starts by itself
        assert goal(fleet.file, "r1", (0.0, -0.6), reach=reach) == 0
        assert stage.come_to_goals(tuple(STARTS)), stage.seen
        state = stage.finish()  # all stood at their goals before, too, which ended the job
    assert (state.outcome, state.contacts) == ("arrived", 0), capsys.readouterr().out
    ends = {name: track.position_world[-1].tolist() for name, track in read_run(tmp_path / "run").truth.items()}
    wanted = {"r0": (-0.9, -0.6), "r1": (0.0, -0.6), "r2": (0.9, 0.6)}
    assert ends == {name: pytest.approx(place, abs=0.1) for name, place in wanted.items()}
