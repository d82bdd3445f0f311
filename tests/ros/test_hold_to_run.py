"""The hold-to-run switch over real DDS: held drives, released or silent stands, and nobody has to rearm."""

import time
from importlib.util import find_spec

import pytest

from testudo_deploy.fleet.hold_switch import SILENT_S

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy")
if find_spec("rclpy") is not None:
    from tests.ros.bench import start_bench

    from testudo_bench.fault_matrix.harness.joystick import Joystick

LATE_S = 0.3
"""Beyond the configured time: of a machine with other work. Times of the bench are in the fault matrix."""
STOPS_S = 0.5  # the robot comes to rest within it


def time_to_rest_s(observer, begin_s):
    """Return the time from a moment to the first truth at rest [s]."""
    observer.wait_until_at_rest(begin_s)
    truth = observer.heard.truth
    return next(at for at, reading in truth if at > begin_s and abs(reading.velocity[0]) < 0.003) - begin_s


@pytest.mark.slow
def test_held_drives_released_stands_held_again_goes_on_and_a_dead_joystick_stands(tmp_path):
    bench = start_bench(tmp_path, hold_to_run="/joy:1")
    observer = bench.observer
    try:
        environment = bench.processes.environment()
        observer.wait(lambda: observer.heard.sent, "the guard was not heard")
        time.sleep(1.0)
        assert observer.heard.mode != "active"  # never heard
        with Joystick(bench.processes.domain_id, environment) as joystick:
            joystick.set([1, 0])  # another button
            time.sleep(1.0)
            assert observer.heard.mode != "active"
            assert not any(any(reading.command) for _, reading in observer.heard.sent)
            joystick.set([0, 1])
            observer.bring_up()
            observer.wait_until_driving()

            released_s = time.monotonic()
            joystick.set([0, 0])
            assert observer.braked_after(released_s, observer.heard.sent) - released_s < SILENT_S
            assert time_to_rest_s(observer, released_s) < SILENT_S + STOPS_S
            joystick.set([0, 1])
            observer.wait_until_driving()  # by itself: no rearm, no start

            killed_s = time.monotonic()
            joystick.kill()
            assert observer.braked_after(killed_s, observer.heard.sent) - killed_s < SILENT_S + LATE_S
            assert time_to_rest_s(observer, killed_s) < SILENT_S + STOPS_S + LATE_S
        begin_s = time.monotonic()
        time.sleep(1.0)
        assert not any(any(reading.command) for at, reading in observer.heard.sent if at > begin_s)
    finally:
        bench.close()
