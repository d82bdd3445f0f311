"""Every row of the fault matrix over real DDS against the MuJoCo plant: the robot does what the row requires.

Times are measured and judged by `testudo bench faults`, on a machine that does nothing else; here a brake only has to
come within a second. On a stalled machine robots brake before the injection: then the row is repeated.
"""

import math
from contextlib import contextmanager
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.supervision.robot import Robot
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.link_profile import TWIST

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.timeout(900),
]

if find_spec("rclpy") is not None:
    from testudo_bench.fault_matrix import fault_matrix
    from testudo_bench.fault_matrix.bench_faults import bench_faults
    from testudo_bench.fault_matrix.fault_matrix import ROWS, TRIES, once, run_matrix
    from testudo_bench.fault_matrix.faults.guard_faults import walled
    from testudo_bench.fault_matrix.faults.robot_faults import commanded_while_blocked_m_s
    from testudo_bench.fault_matrix.harness.fault_case import FaultFinding, brake_begins, keeps_driving
    from testudo_bench.fault_matrix.harness.fleet_bed import OWN_BED, FleetBed, vendor_bed
    from testudo_bench.fault_matrix.harness.fleet_harness import FleetHarness, HarnessError, StalledError, write_fleet
else:
    ROWS = ()

NUMBERS = set(range(1, 40))
LONG = {8, 9, 15, 18, 21, 24, 26, 27, 28, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39}
"""Rows that take long, need a separate fleet, or resemble a shorter row."""
ALIKE = {
    "repeating": "silent",
    "flip": "jump",
    "no_quaternion": "other_frame",
    "clock_behind": "clock_ahead",
    "policy_ended": "policy_killed",
    "second_publisher": "intruding_commands",
    "estop_service": "estop_topic",
    "newer_format": "other_robot",
}
"""Injections that differ from another one of the same kind, which `make test` keeps, in a parameter only."""
BRAKE_S = 1.0
SLOWER = 4.0
"""Control at 12.5 Hz. At the 50 Hz of the bench three robots take 1.6 of two cores, and a slow machine brakes them."""


def case(row):
    """Return a row with a name, and marked as slow if it is."""
    marks = [pytest.mark.slow] if row.number in LONG or row.inject.__name__ in ALIKE else []
    return pytest.param(row, id=f"{row.number}-{row.inject.__name__}", marks=marks)


@pytest.fixture(scope="module")
def driving(tmp_path_factory):
    """Three robots that drive, for all rows that need no other fleet."""
    folder = tmp_path_factory.mktemp("driving")
    with FleetHarness(folder, write_fleet(folder, slower=SLOWER)) as harness:
        yield harness


def test_no_row_of_the_matrix_is_missing():
    assert {row.number for row in ROWS} == NUMBERS


@pytest.mark.parametrize("name", ["turtlebot4", "turtlebot3", "nav2"])
def test_robots_that_localise_themselves_are_pursued_without_tracking(name, tmp_path):
    """A fleet file with both is refused, which ended the whole command at row 27."""
    assert not write_fleet(tmp_path, bed=vendor_bed(name), tracking=True, keyed=False).tracking


def test_of_rows_that_are_alike_one_is_in_every_run():
    numbers = {row.inject.__name__: row.number for row in ROWS}
    for left_out, kept in ALIKE.items():
        assert left_out in numbers, left_out
        assert kept not in ALIKE, kept
        assert numbers[kept] not in LONG, kept


@pytest.mark.parametrize(("error", "found"), [("StalledError", None), ("HarnessError", False), ("ValueError", False)])
def test_a_stalled_machine_is_distinguished_from_a_fault(error, found):
    kinds = {"StalledError": StalledError, "HarnessError": HarnessError, "ValueError": ValueError}

    class Standing:
        def wait_until_all_drive(self):
            raise kinds[error]("it stands")

    outcome = once(ROWS[0], Standing())
    assert outcome is None if found is None else outcome.passed is found


@pytest.mark.parametrize(("code", "renewed"), [("brakes_weak", ["r0"]), ("no_response", ["r0"]), ("stale_pose", [])])
def test_a_latched_reason_code_is_cleared_by_a_new_process(code, renewed):
    """By design nothing else clears it, and all following rows need driving robots."""
    asked = []
    harness = SimpleNamespace(
        observer=SimpleNamespace(robots={"r0": SimpleNamespace(code=code, mode="active")}),
        fleet=SimpleNamespace(task=None),
        restart_policy=asked.append,
        request_next=lambda _: False,
        wait=lambda condition, *_, **__: condition(),
    )
    FleetHarness.bring_up(harness, "r0")
    assert asked == renewed


def test_a_policy_that_ended_fails_its_row_at_once():
    """Ten fleets one after the other would wait two minutes each for it."""
    lines = [SimpleNamespace(kind="error_line", values={"text": "refused: fleet.yaml: robots.r0.goal"})]
    harness = SimpleNamespace(
        processes=SimpleNamespace(exit_status={"r0/policy": 2, "r1/policy": None}.get), events=lambda: lines
    )
    with pytest.raises(HarnessError, match="r0 ended with status 2: refused: fleet") as caught:
        FleetHarness._ended(harness, "r0")
    assert not isinstance(caught.value, StalledError)
    assert FleetHarness._ended(harness, "r1") is False


@pytest.mark.parametrize(("status", "error"), [(None, "StalledError"), (2, "HarnessError")])
def test_a_policy_that_restarts_for_too_long_stalls_and_one_that_ends_fails(status, error):
    """At a load of 20 its imports took more than two minutes, which was the verdict FAILED of row 28."""
    harness = SimpleNamespace(
        observer=SimpleNamespace(epochs={"r0": "1"}, failure=None),
        processes=SimpleNamespace(exit_status=lambda _: status),
        events=list,
        _modes=str,
    )
    harness._ended = lambda name: FleetHarness._ended(harness, name)
    harness.wait = lambda condition, what, _, kind: FleetHarness.wait(harness, condition, what, 0.0, kind)
    with pytest.raises(HarnessError) as caught:
        FleetHarness.wait_until_restarted(harness, "r0", "1")
    assert type(caught.value).__name__ == error
    FleetHarness.wait_until_restarted(harness, "r0", "0")


@pytest.mark.parametrize("bed", ["our own", "turtlebot4", "turtlebot3", "nav2"])
def test_robots_that_drive_at_a_wall_are_not_refused(bed, tmp_path):
    """Row 33: their goals are where their bodies touch it."""
    bed = OWN_BED if bed == "our own" else vendor_bed(bed)
    fleet = write_fleet(tmp_path, bed=bed, arena=(arena := walled(bed)))
    for robot in fleet.robots:
        Robot(fleet, robot.name, str(fleet.policy), epoch="1", now_s=0.0)
    assert robot.goal_world[0] + robot.spec.body_radius_m == pytest.approx(arena.high_world[0], abs=0.01)


@pytest.mark.parametrize(
    ("drove", "codes", "guard", "passed"),
    [
        (True, {""}, {""}, True),
        (False, {"", "stale_pose"}, {""}, None),
        (False, {"guard_brakes", "stale_pose"}, {"silence"}, None),
        (False, {"guard_brakes"}, {"silence", ""}, None),
        (False, {"guard_brakes"}, {"foreign_motion"}, False),
        (False, {"guard_brakes"}, {"silence", "limits"}, False),
        (False, {"stale_pose", "pose_jump"}, {""}, False),
        (False, {""}, {""}, False),
    ],
)
def test_a_robot_that_must_drive_on_may_hold_only_for_late_messages(drove, codes, guard, passed):
    """On a stalled machine a robot can hold at any time, also directly after the fault."""
    observer = SimpleNamespace(
        drives=lambda *_: drove, codes_since=lambda *_: codes, guard_codes_since=lambda *_: guard
    )
    found = keeps_driving(SimpleNamespace(observer=observer), 0.0, 0.01)
    assert found is None if passed is None else found.passed is passed


def ramp(*speeds, period_s=0.05):
    """Return commands of these forward speeds, the last of them zero, and the time of that."""
    return [(k * period_s, (speed, 0.0)) for k, speed in enumerate(speeds)], period_s * (len(speeds) - 1)


def test_a_robot_that_cannot_stop_within_its_lag_brakes_from_the_first_command_of_its_ramp():
    """turtlebot4: 0.9 m/s^2, so that its speed falls by 0.045 m/s in a tick; the speeds are measured ones."""
    spec = vendor_bed("turtlebot4").spec
    sent, zero_s = ramp(0.303, 0.303, 0.193, 0.148, 0.113, 0.08, 0.037, 0.005, 0.0)
    assert brake_begins(sent, 0.06, zero_s, spec) == pytest.approx(0.1)
    assert brake_begins(sent, 0.16, zero_s, spec) == pytest.approx(0.2)  # not before the fault
    assert brake_begins(sent, 0.06, zero_s, OWN_BED.spec) == zero_s  # control: its brake is the zero


@pytest.mark.parametrize(
    ("speeds", "begin_s"),
    [
        ((0.3, 0.3, 0.3, 0.2, 0.1, 0.0), 0.15),  # it drove on for two ticks
        ((0.3, 0.2, 0.2, 0.15, 0.1, 0.0), 0.15),  # it slowed down once, and braked later
        ((0.3, 0.29, 0.28, 0.27, 0.26, 0.0), 0.25),  # it slowed down at a fifth of its limit
    ],
)
def test_a_robot_that_only_slows_down_does_not_brake(speeds, begin_s):
    sent, zero_s = ramp(*speeds)
    assert brake_begins(sent, 0.01, zero_s, vendor_bed("turtlebot4").spec) == pytest.approx(begin_s)


@pytest.mark.parametrize("row", [case(row) for row in ROWS if row.fleet == "driving"])
def test_fault_in_the_shared_driving_fleet(row, driving):
    for _ in range(TRIES):
        found = once(row, driving)
        if found is not None:
            break
    assert found is not None, "the machine stalled at every repetition"
    assert found.passed, found.note
    limit_s = row.limit_s(FleetBed(driving.fleet.robots[0].spec))
    assert limit_s is None or found.time_s <= max(BRAKE_S, 2 * limit_s)


@pytest.mark.parametrize("row", [case(row) for row in ROWS if row.fleet != "driving"])
def test_fault_in_a_separate_fleet(row, tmp_path):
    [outcome] = run_matrix([row], 1, tmp_path, lambda _: None)
    assert outcome.found, outcome.note
    assert all(found.passed for found in outcome.found), outcome.note
    assert outcome.worst_s is None or outcome.worst_s <= max(BRAKE_S, 2 * outcome.limit_s)


def named(name):
    return next(row for row in ROWS if row.inject.__name__ == name)


@pytest.fixture
def injected(monkeypatch):
    """No fleets: every injection is noted, and passes."""
    found = []

    @contextmanager
    def harness(_kind, _folder, bed):
        yield bed

    def inject(row, *_):
        found.append(row)
        return FaultFinding(True, 0.01)

    monkeypatch.setattr(fault_matrix, "_harness", harness)
    monkeypatch.setattr(fault_matrix, "once", inject)
    monkeypatch.setattr(fault_matrix, "_alone", inject)
    return found


@pytest.mark.parametrize("name", [None, "turtlebot4", "turtlebot3", "nav2"])
def test_every_row_is_run_with_a_vendors_driver_or_says_why_not(injected, name):
    """Our own robots: all are run. None is left out silently, and one that is left out counts neither way."""
    result = bench_faults(robot=name, repeats=1, say=lambda _: None)
    rows = result.values["rows"]
    left_out = [row for row in rows if row["passed"] is None]
    assert len(rows) == len(ROWS) == len(injected) + len(left_out)
    assert all(row["note"] and not row["times_s"] for row in left_out)
    assert {row["row"] for row in left_out} == (set() if name is None else {15, 16, 17, 18, 23, 26, 27, 30, 31})
    assert result.values["passed"] == result.values["numbers"] == (39 if name is None else 31)
    assert {row[7] for row in result.rows} == ({"held"} if name is None else {"held", "not run"})


def test_a_vendors_robot_has_the_times_of_its_file_and_the_topics_of_its_driver(tmp_path):
    bed = vendor_bed("turtlebot4")
    found = [named(row).limit_s(bed) for row in ("silent", "guard_killed", "estop_topic")]
    assert found == pytest.approx([0.3, 0.5, 0.05])
    assert [named(row).limit_s(OWN_BED) for row in ("silent", "guard_killed")] == pytest.approx([0.1, 0.1])
    # 2 e / (least scale * top speed) + age + 1.5 periods: 0.03 / 0.16 + 0.08 + 0.03, and 0.1 / 0.2907 + 0.25 + 0.075
    both = [named("both_wheels").limit_s(one) for one in (OWN_BED, bed)]
    assert both == pytest.approx([0.2975, 0.669], abs=1e-3)
    fleet = write_fleet(tmp_path, bed=bed)
    robot = fleet.robots[0]
    assert (fleet.key_file, robot.pose.filter, robot.link.profile.command_type) == (None, "kalman", TWIST)
    assert robot.link.profile.emulation.dead_man.value == robot.spec.dead_man_s
    apart_m = math.dist(*(one.initial_position_world for one in fleet.robots[:2])) / math.sqrt(2)
    assert apart_m > stop_tube_parameters(robot.spec).clearance_m


@pytest.mark.parametrize(
    ("name", "speed_m_s", "limit_s"),
    [
        # nav2: 0.9 m/s^2 * (0.02 + 0.08 + 0.12) s, and 0.1 / (0.95 * 0.198) + 0.15 + 0.075
        ("nav2", 0.198, 0.757),
        ("turtlebot4", 0.306, 0.669),  # its poses are so old that the prediction reaches top speed
        ("turtlebot3", 0.22, 0.703),  # and it accelerates three times as fast
    ],
)
def test_a_blocked_robot_that_accelerates_slowly_asks_for_less_than_top_speed(name, speed_m_s, limit_s):
    """So its blockage takes longer to show: in simulated time 0.67 s for nav2, where 0.57 s were asked for."""
    bed = vendor_bed(name)
    assert commanded_while_blocked_m_s(bed) == pytest.approx(speed_m_s)
    assert named("both_wheels").limit_s(bed) == pytest.approx(limit_s, abs=1e-3)
    assert commanded_while_blocked_m_s(OWN_BED) == OWN_BED.spec.speed_limit_m_s


@pytest.mark.parametrize("name", ["roomba", "turtlebot4_", "robotarium", "crazyswarm2"])
def test_a_robot_without_a_matrix_is_refused(name):
    with pytest.raises(TestudoError, match=f"bench faults: --robot: found '{name}', expected"):
        vendor_bed(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["guard_killed", "jump"])
def test_fault_of_an_emulated_turtlebot_4(name, tmp_path):
    row, bed = named(name), vendor_bed("turtlebot4")
    [outcome] = run_matrix([row], 1, tmp_path, lambda _: None, bed)
    assert outcome.found, outcome.note
    assert all(found.passed for found in outcome.found), outcome.note
    assert outcome.worst_s <= max(BRAKE_S, 2 * outcome.limit_s)
