"""What a vehicle says of itself before a flight and in it, as the firmware's supervisor tells it."""

from types import SimpleNamespace

import pytest

from testudo_deploy.supervision.flight_phases import BATTERY_LOW_S, LATENCY_S, BatteryLimits, FlightSupervisor
from testudo_deploy.supervision.modes import Mode, Reaction, watchdog_of
from testudo_hardware.links.crazyflie.radio_link import CrazyflieRadio
from testudo_hardware.links.crazyflie.vehicle_messages import Info, RadioSample
from testudo_hardware.links.crazyswarm2 import read_status
from testudo_hardware.spec import load_robot

FOOT, TOP = (0.0, 0.0, 0.02), (0.0, 0.0, 1.0)
CAN_BE_ARMED, ARMED, CAN_FLY, FLYING, TUMBLED, LOCKED, CRASHED = 1, 2, 8, 16, 32, 64, 128


def flight():
    return FlightSupervisor(TOP, BatteryLimits(3.4, 3.2), controller="pid", estimator="kalman", latency_s=0.03)


def status(bits, now_s, volts=4.0, latency_ms=5):
    message = SimpleNamespace(supervisor_info=bits, battery_voltage=volts, latency_unicast=latency_ms)
    return read_status(message, now_s)


def by_radio(bits, now_s, monkeypatch):
    radio = CrazyflieRadio("cf1", load_robot("crazyflie_2x"), "udp://127.0.0.1:1")
    monkeypatch.setattr("testudo_hardware.links.crazyflie.radio_link.time.monotonic", lambda: now_s)
    still = (0.0, 0.0, 0.0)
    radio._take(RadioSample(now_s, now_s, FOOT, still, (0.0, 0.0, 0.0, 1.0), Info.from_bits(bits), 4.0, still))
    return radio.vehicle


def check_list(state):
    on_ground = flight()
    on_ground.hear_vehicle(state, 1.0)
    on_ground.hear_pose(FOOT, 0.0, 1.0, valid=True)
    return [reason.partition(":")[0] for reason in on_ground.reasons(Mode.DISARMED, 0.0, 1.0, FOOT, "ground")]


@pytest.mark.parametrize(
    ("bits", "found"),
    [
        (CAN_BE_ARMED, []),
        (ARMED | CAN_FLY, []),
        (CRASHED, ["vehicle_tumbled"]),
        (CRASHED | CAN_BE_ARMED, ["vehicle_tumbled"]),
        (LOCKED, ["vehicle_tumbled"]),
        (TUMBLED, ["vehicle_tumbled"]),
        (0, ["vehicle_not_ready"]),
        (ARMED, ["vehicle_not_ready"]),
        (ARMED | CAN_FLY | FLYING, ["in_the_air"]),
    ],
)
def test_what_cannot_be_armed_or_has_crashed_is_not_armed(bits, found, monkeypatch):
    assert check_list(status(bits, 1.0)) == found
    assert check_list(by_radio(bits, 1.0, monkeypatch)) == found


def in_air(flying, states, step_s=0.2, begin_s=10.0):
    """Hear states, one each step; return all that spoke against the flight after each."""
    found, now_s = [], begin_s
    for state in states:
        now_s += step_s
        flying.hear_vehicle(state(now_s), now_s)
        flying.hear_pose(TOP, 0.0, now_s, valid=True)
        found.append(flying.reasons(Mode.ACTIVE, begin_s, now_s, TOP, "fly"))
    return found


def test_a_crash_in_flight_is_seen():
    assert in_air(flight(), [lambda now_s: status(CRASHED, now_s)]) == [("vehicle_tumbled",)]


def test_a_radio_that_becomes_slow_in_flight_holds_the_drone_until_it_is_fast_again():
    flying, steps = flight(), round(LATENCY_S / 0.2)

    def slow(now_s):
        return status(ARMED | CAN_FLY | FLYING, now_s, latency_ms=80)

    def fast(now_s):
        return status(ARMED | CAN_FLY | FLYING, now_s)

    assert in_air(flying, [slow, fast] * 20) == [()] * 40, "a value now and then is none"
    found = in_air(flying, [slow] * (steps + 2), begin_s=30.0)
    assert found[: steps - 1] == [()] * (steps - 1)
    assert found[-1] == ("radio_late: found 80 ms, expected 30 ms",)
    assert watchdog_of(found[-1][0]).reaction is Reaction.HOLD
    assert in_air(flying, [fast], begin_s=40.0) == [()]


@pytest.mark.parametrize("gap_v", [0.0, float("nan")])
def test_readings_without_a_voltage_do_not_keep_a_low_battery_in_the_air(gap_v):
    flying = flight()
    states = [
        lambda now_s, k=k: status(ARMED | CAN_FLY | FLYING, now_s, volts=3.0 if k % 4 else gap_v) for k in range(1, 40)
    ]
    found = in_air(flying, states)
    low = [k for k, reasons in enumerate(found) if reasons]
    assert low
    assert 0.2 * low[0] == pytest.approx(BATTERY_LOW_S, abs=0.3)
    assert all("battery_low" in reasons[0] for reasons in found[low[0] :])
    good = in_air(flying, [lambda now_s: status(ARMED | CAN_FLY | FLYING, now_s)], begin_s=30.0)
    assert good == [()], "but a good one does"
