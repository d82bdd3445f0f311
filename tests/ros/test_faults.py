"""Stale or broken odometry, a policy that raises, hangs or dies: each ends in a brake.

150 ms may pass from the fault to the brake command that the driver gets, or to the driver's own
brake. A machine that is busy with other tests can be late: the best of some repetitions counts, and
every repetition must brake and stop.
"""

import math
import signal
import time
from dataclasses import dataclass
from importlib.util import find_spec

import pytest

pytestmark = [
    pytest.mark.ros,
    pytest.mark.skipif(find_spec("rclpy") is None, reason="ROS 2 (rclpy) is not installed"),
    pytest.mark.xdist_group("ros-faults"),  # one worker, and so one start of the processes
    pytest.mark.timeout(240),
]

BRAKE_S = 0.15
REPETITIONS = 4
WORST_ACTUATORS = 1.2
"""The plant's lag, delay and scale are up to 20 % beyond the description."""


@pytest.fixture(scope="module")
def bench(make_bench):
    made = make_bench(module="tests.ros.faulty_policy")
    made.observer.wait_until_driving()
    return made


def drive_again(bench):
    bench.observer.change = lambda message: message
    bench.observer.wait_until_driving()


@dataclass(frozen=True)
class Braked:
    """One repetition of a fault, in which the robot came to rest."""

    delay_s: float
    """From the fault to the brake command."""
    way_m: float
    """Driven from the brake on."""
    allowed_m: float


def inject_once(bench, inject, series):
    """Inject one fault; return what came of it, or None if the robot did not drive just then.

    A machine that stalls can brake the robot before its fault: that repetition tells nothing.
    """
    spec = bench.observer.robot.spec
    drive_again(bench)
    fault_s = inject()
    heard = bench.observer.heard
    brake_s = bench.observer.braked_after(fault_s, getattr(heard, series))
    acting_s = bench.observer.braked_after(fault_s, heard.applied)
    bench.observer.wait_until_at_rest(acting_s)
    if not bench.observer.was_driving(fault_s - 0.2, fault_s):
        return None
    speed = max(abs(r.velocity[0]) for at, r in heard.truth if at >= fault_s - 0.2)
    # truth comes once per tick, so that the first one may be that much older
    slack_m = speed * spec.control_period_s + 0.002
    stopping_m = speed * WORST_ACTUATORS * spec.velocity_lag_s
    return Braked(brake_s - fault_s, bench.observer.way_since(acting_s), stopping_m + slack_m)


def check(bench, inject, *, series="sent", recover=lambda: None):
    """Inject a fault some times and check brake and stop; ``inject`` returns when it was."""
    found = []
    for _ in range(2 * REPETITIONS):
        braked = inject_once(bench, inject, series)
        recover()
        if braked is not None:
            found.append(braked)
            assert braked.way_m <= braked.allowed_m
            assert braked.delay_s <= 1.0
        if len(found) == REPETITIONS or (found and found[-1].delay_s <= BRAKE_S):
            break
    assert found, "the machine stalled at every repetition"
    assert min(braked.delay_s for braked in found) <= BRAKE_S, found


def nan_position(message):
    message.pose.pose.position.x = math.nan
    return message


def nan_quaternion(message):
    message.pose.pose.orientation.w = math.nan
    return message


def foreign_frame(message):
    message.header.frame_id = "odom"
    return message


class Repeated:
    """Sends the first message again and again."""

    def __init__(self):
        self._first = None

    def __call__(self, message):
        self._first = self._first or message
        return self._first


@pytest.mark.parametrize(
    "make_change",
    [
        lambda: lambda _: None,
        lambda: nan_position,
        lambda: nan_quaternion,
        lambda: foreign_frame,
        Repeated,
    ],
    ids=["silence", "nan position", "nan quaternion", "foreign frame", "one message repeated"],
)
def test_odometry_that_cannot_be_used_ends_in_a_brake(bench, make_change):
    def inject():
        bench.observer.change = make_change()
        return time.monotonic()

    check(bench, inject)
    bench.observer.change = lambda message: message
    assert bench.processes.exit_status("r0/policy") is None


def fault_time(bench):
    """Return the time that the faulty policy tells."""
    end_s = time.monotonic() + 5
    while time.monotonic() < end_s:
        event = bench.processes.next_event(0.1)
        if event is not None and event.kind == "fault":
            return event.values["stamp_s"]
    pytest.fail("the policy was never run")


def test_a_policy_that_raises_ends_in_a_brake(bench):
    def inject():
        bench.processes.signal("r0/policy", signal.SIGUSR1)
        return fault_time(bench)

    check_pulse(bench, inject)


def test_a_policy_that_hangs_is_braked_by_the_driver(bench):
    def inject():
        bench.processes.signal("r0/policy", signal.SIGUSR2)
        return fault_time(bench)

    check(bench, inject, series="applied")


def check_pulse(bench, inject):
    """Check a fault that lasts one tick: the robot brakes, and then drives on."""
    delays = []
    for _ in range(REPETITIONS):
        drive_again(bench)
        fault_s = inject()
        brake_s = bench.observer.braked_after(fault_s, bench.observer.heard.sent)
        delays.append(brake_s - fault_s)
        if delays[-1] <= BRAKE_S:
            break
    assert min(delays) <= BRAKE_S, delays
    drive_again(bench)


def test_a_killed_policy_is_braked_by_the_driver_and_may_come_back(bench):
    def inject():
        now_s = time.monotonic()
        bench.processes.signal("r0/policy", signal.SIGKILL)
        return now_s

    def recover():
        """It comes back inactive, and stays so until somebody arms and starts it."""
        bench.processes.start(bench.policy)
        bench.observer.wait(lambda: bench.observer.heard.mode == "idle", "it did not come back")
        bench.observer.bring_up()

    check(bench, inject, series="applied", recover=recover)
    bench.observer.wait_until_driving()


def test_a_terminated_policy_brakes_as_its_last_word(bench):
    drive_again(bench)
    fault_s = time.monotonic()
    bench.processes.signal("r0/policy", signal.SIGTERM)
    bench.observer.wait(lambda: bench.processes.exit_status("r0/policy") is not None, "it lives on")
    assert bench.processes.exit_status("r0/policy") == 0
    brake_s = bench.observer.braked_after(fault_s, bench.observer.heard.sent)
    assert not any(any(r.command) for at, r in bench.observer.heard.sent if at >= brake_s)
    bench.observer.wait_until_at_rest()
