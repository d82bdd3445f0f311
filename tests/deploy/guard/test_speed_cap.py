"""A robot whose file holds estimates is slow on hardware, in the shield and once more in the guard, and says so."""

import math
from dataclasses import replace

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.contract.policy_archive import read_policy_contract
from testudo_deploy.guard.speed_cap import CALIBRATION, CAP_SHARE, capped_share, estimates_in, speed_cap_m_s
from testudo_deploy.monitoring.diagnostics import Level
from testudo_deploy.shield.caution import Caution, stricter
from testudo_deploy.supervision.modes import Event
from testudo_deploy.supervision.robot import Robot
from testudo_deploy.supervision.supervisor import GuardReport
from testudo_hardware.spec import load_robot

SPEC = load_robot("turtlebot4")
DYNAMICS = ("velocity_lag", "command_delay", "speed_scale", "turn_scale")


def measured(spec, source, keys=DYNAMICS):
    changes = {f"dynamics.{key}": replace(spec.quantities[f"dynamics.{key}"], source=source) for key in keys}
    return replace(spec, quantities={**spec.quantities, **changes})


def test_what_counts_as_measured_is_the_origin_of_all_dynamics():
    assert estimates_in(SPEC) == tuple(f"dynamics.{key}" for key in DYNAMICS)
    for source in ("testudo calibrate 0.1, run a", "testudo identify 0.1, run a", "Measured with a stop watch"):
        assert estimates_in(measured(SPEC, source)) == ()
    assert estimates_in(measured(SPEC, "estimate, to be replaced by testudo identify")) != ()
    assert estimates_in(measured(SPEC, "testudo calibrate 0.1", DYNAMICS[:3])) == ("dynamics.turn_scale",)


def test_the_cap_is_for_robots_on_the_ground_outside_of_their_calibration():
    cap_m_s = CAP_SHARE * SPEC.speed_limit_m_s
    assert speed_cap_m_s(SPEC, "navigation", on_hardware=True) == cap_m_s
    assert speed_cap_m_s(SPEC, "navigation", on_hardware=False) == math.inf
    assert speed_cap_m_s(SPEC, CALIBRATION, on_hardware=True) == math.inf
    assert speed_cap_m_s(measured(SPEC, "testudo calibrate"), "navigation", on_hardware=True) == cap_m_s  # no version
    assert speed_cap_m_s(measured(SPEC, "testudo calibrate 0.1"), "navigation", on_hardware=True) == math.inf
    assert speed_cap_m_s(load_robot("crazyflie_2x"), "navigation", on_hardware=True) == math.inf


@pytest.mark.parametrize("command", [(0.3, 0.0), (0.05, 1.9), (-0.3, 1.0), (0.0, 0.0)])
def test_the_guard_shortens_both_channels(command):
    cap_m_s = CAP_SHARE * SPEC.speed_limit_m_s
    share = capped_share(SPEC, cap_m_s, command)
    speed = math.hypot(share * command[0], share * SPEC.look_ahead_m * command[1])
    assert speed <= cap_m_s * (1 + 1e-9)
    assert share == 1.0 or speed == pytest.approx(cap_m_s)
    assert capped_share(SPEC, math.inf, command) == 1.0


def test_the_stricter_of_two_cautions_holds():
    assert stricter(None, None) is None
    assert stricter(Caution(0.1, 0.0), None) == stricter(None, Caution(0.1, 0.0)) == Caution(0.1, 0.0)
    assert stricter(Caution(0.1, 0.0), Caution(0.2, 0.3)) == Caution(0.1, 0.3)


def driven(robot, fleet, seconds):
    """Return the highest speed that is sent on the way to the goal, with the robot where it would be."""
    spec, now_s, x, fastest = robot.spec, 50.0, fleet.robots[0].initial_position_world[0], 0.0
    speed = 0.0
    for _ in range(round(seconds / spec.control_period_s)):
        now_s += spec.control_period_s
        robot.hear_guard(GuardReport(now_s, ""))
        robot.loop.on_odometry(now_s - 0.01, now_s, (x, 0.0), 0.0, (speed, 0.0))
        record = robot.tick(now_s).record
        if robot.supervisor.mode in ("idle", "armed"):
            robot.request(Event.ARM if robot.supervisor.mode == "idle" else Event.START, now_s)
        speed = spec.speed_scale * record.sent_command[0]
        x += speed * spec.control_period_s
        fastest = max(fastest, speed)
    return fastest


def test_an_uncalibrated_robot_is_slow_and_says_so(tmp_path):
    """Negative control: the same robot drives faster on the plant, which moves as the file says."""
    fleet = make_tiny_fleet(tmp_path, 1, walls=False, start_x=0.0, goal_x=50.0)
    spec, policy = fleet.robots[0].spec, str(fleet.policy)
    cap_m_s = CAP_SHARE * spec.speed_limit_m_s
    slow, free = (
        Robot(fleet, "r0", policy, epoch="a", now_s=50.0, on_hardware=on_hardware) for on_hardware in (True, False)
    )
    assert driven(slow, fleet, 6.0) <= cap_m_s * 1.001 < driven(free, fleet, 6.0)
    status = slow.status(60.0)
    assert status.level is Level.WARN
    assert "uncalibrated: dynamics.velocity_lag" in status.message
    assert "testudo calibrate" in status.values["warning"]
    assert not free.status(60.0).values["warning"]
    for on_hardware, expected in ((True, cap_m_s), (False, math.inf)):
        found = speed_cap_m_s(
            spec, read_policy_contract(fleet.policy, fleet.policy_sha256).scenario, on_hardware=on_hardware
        )
        assert found == pytest.approx(expected)
