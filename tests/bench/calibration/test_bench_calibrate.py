"""The calibration of an emulated robot with hidden parameters, end to end in lock-step."""

import json
from importlib.util import find_spec

import pytest

from testudo_bench.calibration import bench_calibrate as bench
from testudo_bench.calibration.emulated_robot import EMULATIONS, HIDDEN, NAME, emulated_robot
from testudo_deploy.calibration.area import Area
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_policies.calibrating.calibration_fleet import write_calibration_fleet
from testudo_runs.run_reader import read_run


def test_a_hidden_robot_is_within_the_intervals_of_the_known_one(tmp_path):
    hidden = emulated_robot(EMULATIONS["tracked"], 3, tmp_path)
    known, true = load_robot(tmp_path / "known.toml"), load_robot(tmp_path / "hidden.toml")
    assert hidden.fleet.robot(NAME).spec == known
    for key in HIDDEN:
        assert true.quantities[key].value == pytest.approx(hidden.truth[key])
        assert true.quantities[key].low == true.quantities[key].high
    for key in HIDDEN[:4]:
        assert known.quantities[key].low <= hidden.truth[key] <= known.quantities[key].high
    # a robot that brakes worse than its file says is stopped by the brake monitor, not calibrated
    assert all(hidden.truth[key] >= known.quantities[key].value for key in HIDDEN[4:])


def test_results_of_other_settings_are_refused(tmp_path):
    file = tmp_path / "saved.json"
    file.write_text(json.dumps({"settings": {"longest_s": 1.0}, "robots": {"tracked": [], "odometry": []}}))
    with pytest.raises(TestudoError, match="settings: found"):
        bench.bench_calibrate(repeats=0, saved=file)
    file.write_text("[]")
    with pytest.raises(TestudoError, match="found no robots to go on from"):
        bench.bench_calibrate(repeats=0, saved=file)


@pytest.mark.ros
@pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed")
@pytest.mark.xdist_group("ros-nodes")
@pytest.mark.timeout(180)
def test_a_short_drive_stays_inside_and_brakes_by_itself(tmp_path):
    """Through policy, guard and plant: in silence the robot stops with zeros, from full speed."""
    hidden = emulated_robot(EMULATIONS["tracked"], 0, tmp_path)
    area = Area.parse("2x2", (0.0, 0.0))
    alone = write_calibration_fleet(hidden.fleet, NAME, area, tmp_path / "drive")
    result = bench.drive(hidden, alone, tmp_path / "run", 20.0)
    assert result.is_complete, result
    assert result.done[:1] == ["straight and brake"]
    run = read_run(tmp_path / "run")
    spec = alone.robot(NAME).spec
    assert abs(run.truth[NAME].position_world).max() < 1.0 - spec.body_radius_m - 0.2
    silent = [tick for tick in run.ticks[NAME] if tick.reason.startswith("task_stale")]
    assert silent
    assert any(tick.estimate_velocity and tick.estimate_velocity[0] > 0.25 for tick in silent)
    assert not any(any(tick.sent_command) for tick in silent)
    assert json.loads((tmp_path / "run" / "calibration.json").read_text())["done"] == result.done
