"""The unmodified `cflib` flies the simulated Crazyflie; the rows that take longer are in `testudo bench radio`."""

import subprocess
import sys

import pytest

from testudo_hardware.links.crazyflie.cflib_client import RadioError
from testudo_hardware.links.crazyflie.radio_link import CrazyflieRadio
from testudo_hardware.links.crazyflie.vehicle_messages import LinkPhase
from testudo_hardware.links.flight_link import FlightAct
from testudo_hardware.links.wire import CommandReading, WireError
from testudo_hardware.spec import load_robot

cflib = pytest.importorskip("cflib", reason="the extra crazyflie is not installed")


_STALL_S = 0.25  # half of the silence after which the vehicle stops following set-points
_ATTEMPTS = 3


def test_it_connects_streams_flies_and_lands():
    """In real time: repeated where the machine stalled."""
    from testudo_crazyflie.cflib_flight import fly_with_cflib

    for attempts_left in reversed(range(_ATTEMPTS)):
        with fly_with_cflib() as flight:
            try:
                _fly_and_land(flight)
                break
            except AssertionError as error:
                if flight.longest_stall_s < _STALL_S or not attempts_left:
                    stall = f"longest stall {flight.longest_stall_s:.2f} s"
                    raise AssertionError(f"{stall}, states {sorted(flight.states)}, {flight.codes}") from error


def _fly_and_land(flight):
    from testudo_crazyflie.firmware.firmware_supervisor import State

    flight.climb()
    before, start = flight.set_points, flight.position
    flight.command = (0.4, 0.0, 0.0)
    flight.wait(lambda: False, 2.0)
    assert len(flight.stamps) > 20, "log packets"
    assert flight.set_points - before > 10, "set-points"
    assert 0.4 < (flight.position - start)[0] < 1.2
    assert flight.codes == {""}
    with pytest.raises(WireError, match="expected 3 finite numbers"):
        flight.radio.send(CommandReading(0.0, (float("nan"), 0.0, 0.0)))
    assert not flight.ask(FlightAct.LAND, 0.04, 1.5)
    assert flight.lands()
    assert State.LEVEL_OUT not in flight.states
    assert flight.wait(lambda: flight.phase == LinkPhase.GROUND, 3.0) is not None


def test_an_emergency_reaches_the_motors():
    from testudo_bench.crazyflie_radio.radio_cases import emergency

    row = emergency(0.0)
    assert row.found.startswith("off after")
    assert "never" not in row.found
    assert row.said.startswith("emergency stop")


def test_nothing_that_answers_is_told_in_time():
    radio = CrazyflieRadio("cf1", load_robot("crazyflie_2x"), "udp://127.0.0.1:1")
    with pytest.raises(RadioError, match=r"cf1: udp://127\.0\.0\.1:1: "):
        radio.open(within_s=1.0)


def test_a_controller_that_follows_no_velocities_is_refused():
    from testudo_bench.crazyflie_radio.radio_cases import wrong_controller

    row = wrong_controller()
    assert row.holds, row
    assert "found 2 (mellinger), expected 1 (pid)" in row.said


WITHOUT = """
import sys
sys.modules["cflib"] = None
from testudo_hardware.links.crazyflie.radio_link import CrazyflieRadio
from testudo_hardware.spec import load_robot
try:
    CrazyflieRadio("cf1", load_robot("crazyflie_2x"), "radio://0/80/2M").open()
except Exception as error:
    print(type(error).__name__, error)
"""


def test_without_cflib_the_error_names_the_extra():
    result = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60, check=False)
    assert result.stdout.startswith("RadioError a link by radio needs cflib"), result.stderr
    assert "pip install 'testudo[crazyflie]'" in result.stdout
