"""Motion that leaves the intervals of the robot file is named, and slows the robot; motion within them is not.

Each case has the same drive without the change as its control.
"""

import numpy as np
import pytest
from tests.deploy.monitoring.wandering import Wanderer

from testudo_deploy.monitoring.assumption_monitor import LEAST_SHARE, SPEED_SHARE
from testudo_deploy.monitoring.response_estimator import CommandHistory
from testudo_deploy.shield.caution import Caution, slower, wider
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import load_robot

CHANGES = {
    "lag": {"lag_share": 2.0},
    "delay": {"more_delay_s": 0.1},
    "scale": {"scale_share": 0.7},
    "twist": {"twist_share": 0.6},
    "pose": {"noise_share": 3.0},
}


def codes(finding):
    """Return what a finding names: the first code and the others."""
    head, _, rest = finding.partition(": ")
    more = rest.partition(" (and ")[2].partition(")")[0]
    return {head.removeprefix("assumption_"), *filter(None, more.split(", "))}


@pytest.mark.parametrize("name", ["gritsbot_x", "crazyflie_2x"])
@pytest.mark.parametrize("what", CHANGES)
def test_what_leaves_its_interval_is_named(name, what):
    wanderer = Wanderer(name, seed=3)
    assert wanderer.drive(15.0) == ""
    wanderer.change(**CHANGES[what])
    finding = wanderer.drive(50.0)
    assert codes(finding) & {what, f"turn_{what}"}
    assert "the robot file says " in finding
    caution, top = wanderer.watch.caution, wanderer.spec.control_point_speed_m_s
    assert LEAST_SHARE * top <= caution.speed_m_s <= SPEED_SHARE * top
    assert 0 < caution.margin_m <= wanderer.spec.keep_radius_m


CORNERS = ((0, 1, 0, 1), (1, 1, 1, 0), (1, 0, 0, 0), (0, 0, 1, 1))
NAMES = ("gritsbot_x", "irobot_create", "robomaster_s1", "crazyflie_2x")


# each robot at two ends, and each end by a robot with wheels and by one without; the rest takes half a minute
@pytest.mark.parametrize(
    ("corner", "name"),
    [
        pytest.param(corner, name, marks=[] if (i + j) % 2 == 0 else [pytest.mark.slow])
        for i, corner in enumerate(CORNERS)
        for j, name in enumerate(NAMES)
    ],
)
def test_nothing_is_said_of_a_robot_at_the_ends_of_its_intervals(name, corner):
    wanderer = Wanderer(name, seed=sum(corner), corner=corner)
    assert wanderer.drive(30.0) == ""
    assert wanderer.watch.caution is None


WIDE = {"along_share": 0.1, "across_share": 0.05, "correlation_s": 5.0}


def test_nothing_is_said_of_motion_that_the_file_announces():
    """Residual motion of `[motion_noise]` is no error of the twist; without the table in the file it would be one."""
    assert Wanderer("crazyflie_2x", seed=0, residual=WIDE).drive(20.0) == ""
    control = Wanderer("crazyflie_2x", seed=0, residual=WIDE, described=False)
    assert codes(control.drive(20.0)) == {"twist"}


def test_a_scale_outside_is_named_beside_residual_motion():
    shares = {"along_share": 0.05, "across_share": 0.05, "turn_share": 0.05, "correlation_s": 1.0}
    wanderer = Wanderer("gritsbot_x", seed=3, residual=shares)
    wanderer.change(**CHANGES["scale"])
    assert codes(wanderer.drive(50.0)) & {"scale", "turn_scale"}


def test_a_finding_ends_some_time_after_its_cause():
    """Hysteresis: it stays while the memory fades and for ten seconds more, and then the robot is as fast as before."""
    wanderer = Wanderer("gritsbot_x", seed=5)
    wanderer.change(noise_share=3.0)
    assert wanderer.drive(20.0).startswith("assumption_pose: ")
    wanderer.change(noise_share=1.0)
    assert wanderer.drive(5.0, to_the_end=True).startswith("assumption_pose: ")
    wanderer.drive(40.0, to_the_end=True)
    assert wanderer.watch.finding == ""
    assert wanderer.watch.caution is None


def test_a_robot_that_is_braked_by_others_is_not_compared():
    """Its commands do not act: nothing that it does tells of lag, delay or scale."""
    wanderer = Wanderer("gritsbot_x", seed=1)
    wanderer.braked = True
    assert wanderer.drive(30.0) == ""
    wanderer.braked = False
    wanderer.change(scale_share=0.5)
    assert codes(wanderer.drive(40.0)) & {"scale", "turn_scale"}


def test_a_constant_error_of_the_pose_is_not_seen():
    """What no comparison within one robot can show; docs/shield.md says so."""
    wanderer = Wanderer("gritsbot_x", seed=2)
    wanderer.bias_m = 10 * wanderer.spec.position_error_m
    assert wanderer.drive(30.0) == ""


def test_the_clock_may_be_set_back():
    wanderer = Wanderer("gritsbot_x", seed=4)
    wanderer.change(noise_share=3.0)
    assert wanderer.drive(20.0)
    wanderer.watch.forget()
    assert wanderer.watch.newest_s == -np.inf
    wanderer.restart()
    wanderer.drive(3.0, to_the_end=True)
    assert wanderer.watch.finding.startswith("assumption_pose: ")


def test_caution_shortens_the_wish_and_widens_layer_1_alone():
    spec = load_robot("gritsbot_x")
    shield = Shield(motion_model(spec), projection_parameters(spec), stop_tube_parameters(spec), None)
    caution = Caution(0.1, 0.02)
    assert slower(caution, np.array([0.3, 0.4])) == pytest.approx([0.06, 0.08])
    assert slower(caution, np.array([0.03, 0.04])) == pytest.approx([0.03, 0.04])
    after, before = wider(caution, shield).parameters, shield.parameters
    assert after.wall_m == pytest.approx(before.wall_m + 0.02)
    assert after.separation_m == pytest.approx(before.separation_m + 0.02 * before.direction_factor)
    assert wider(caution, shield).space == shield.space
    assert wider(None, shield) is shield


def test_the_history_integrates_what_acted():
    """Two commands, then silence beyond the dead-man time, then a third; three delays."""
    history = CommandHistory(np.array([0.0, 0.05, 0.2]), 0.1, 1)
    assert history.integral(5.0).tolist() == [[0.0]] * 3
    for time_s, value in ((1.0, 1.0), (1.05, 2.0), (2.0, -1.0)):
        history.add(time_s, np.array([value]))
    most = 0.05 * 1.0 + 0.1 * 2.0
    assert history.integral(1.07)[:, 0] == pytest.approx([0.05 + 0.04, 0.02, 0.0])
    assert history.integral(1.9)[:, 0] == pytest.approx([most] * 3)
    assert history.integral(2.06)[:, 0] == pytest.approx([most - 0.06, most - 0.01, most])
    for number in range(2000):  # longer than the buffer
        history.add(3.0 + 0.02 * number, np.array([1.0]))
    first, later = history.integral(42.0), history.integral(42.5)
    assert later - first == pytest.approx(0.5 * np.ones((3, 1)))
