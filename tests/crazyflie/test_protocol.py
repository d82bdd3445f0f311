"""The simulated Crazyflie answers as the documentation of the firmware says, byte by byte."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from testudo_crazyflie.firmware import crtp_packets
from testudo_crazyflie.firmware.commanders import Planner, decode_set_point
from testudo_crazyflie.firmware.crtp_packets import Packet, decode, encode
from testudo_crazyflie.firmware.firmware_supervisor import FirmwareSupervisor, State
from testudo_crazyflie.simulated_crazyflie import SimulatedCrazyflie, SimulatedCrazyflieSettings
from testudo_crazyflie.udp_server import DOWN, UP, RadioChannel, RadioConditions
from testudo_hardware.links.crazyflie.vehicle_messages import VehicleClock, compressed, decompressed


@pytest.fixture
def craft():
    return SimulatedCrazyflie(SimulatedCrazyflieSettings.create(), 100.0)


def ask(craft, port, channel, data, now_s=100.0):
    return [decode(raw) for raw in craft.receive(encode(Packet(port, channel, data)), now_s)]


def test_a_header_holds_port_and_channel_and_the_two_bits_between():
    assert encode(Packet(crtp_packets.LOG, 2, b"x")) == b"\x5ex"
    assert decode(b"\x5ex") == Packet(crtp_packets.LOG, 2, b"x")
    assert decode(b"\xff").is_null
    assert decode(b"") is None
    assert decode(bytes(32)) is None


def test_the_link_service_echoes_and_says_who_it_is(craft):
    assert ask(craft, crtp_packets.LINK, 0, b"abc")[0].data == b"abc"
    (source,) = ask(craft, crtp_packets.LINK, 1, b"")
    assert source.data[:18] == b"Bitcraze Crazyflie"
    assert len(source.data) == 30
    assert not ask(craft, crtp_packets.LINK, 2, b"sink")


def test_the_platform_service_tells_its_protocol(craft):
    assert ask(craft, crtp_packets.PLATFORM, 1, b"\0")[0].data == struct.pack("<BI", 0, 12)


def test_tables_of_contents_list_every_entry_once(craft):
    for port in (crtp_packets.LOG, crtp_packets.PARAMETERS):
        (about,) = ask(craft, port, 0, b"\x03")
        count = struct.unpack_from("<H", about.data, 1)[0]
        names = set()
        for number in range(count):
            (item,) = ask(craft, port, 0, struct.pack("<BH", 2, number))
            group, name, rest = item.data[4:].split(b"\0")
            assert not rest
            names.add((group, name))
        assert len(names) == count > 25
        assert ask(craft, port, 0, struct.pack("<BH", 2, count))[0].data == b"\x02"


def test_a_parameter_is_read_written_and_protected(craft):
    ids = craft.parameters.contents.ids
    number = struct.pack("<H", ids["pm.lowVoltage"])
    assert ask(craft, crtp_packets.PARAMETERS, 1, number)[0].data == number + b"\0" + struct.pack("<f", 3.2)
    write = number + struct.pack("<f", 3.5)
    assert ask(craft, crtp_packets.PARAMETERS, 2, write)[0].data == write
    assert craft.parameters["pm.lowVoltage"] == 3.5
    fixed = struct.pack("<H", ids["firmware.modified"])
    assert not ask(craft, crtp_packets.PARAMETERS, 2, fixed + b"\1")
    assert craft.parameters["firmware.modified"] == 0
    assert ask(craft, crtp_packets.PARAMETERS, 1, b"\xff\x00")[0].data == b"\xff\x00\x02"


def test_a_kept_parameter_says_so_and_is_stored_and_cleared(craft):
    number = struct.pack("<H", craft.parameters.contents.ids["ring.effect"])
    assert ask(craft, crtp_packets.PARAMETERS, 3, b"\x07" + number)[0].data[3:] == b"\0\1"
    assert ask(craft, crtp_packets.PARAMETERS, 3, b"\x04" + number)[0].data[3:] == b"\0\x06"
    ask(craft, crtp_packets.PARAMETERS, 2, number + b"\x09")
    assert ask(craft, crtp_packets.PARAMETERS, 3, b"\x03" + number)[0].data[3:] == b"\0"
    assert ask(craft, crtp_packets.PARAMETERS, 3, b"\x04" + number)[0].data[3:] == b"\1\x06\x09"
    ask(craft, crtp_packets.PARAMETERS, 3, b"\x05" + number)
    assert ask(craft, crtp_packets.PARAMETERS, 3, b"\x04" + number)[0].data[3] == 0
    set_by_name = b"\0ring\0effect\0\x08\x03"
    assert ask(craft, crtp_packets.PARAMETERS, 3, set_by_name)[0].data == b"\0ring\0effect\0\0"
    assert craft.parameters["ring.effect"] == 3


def test_a_log_block_is_made_started_stopped_and_deleted(craft):
    ids = craft.logs.contents.ids
    settings = struct.pack("<BHBH", 7, ids["pm.vbat"], 5, ids["stateEstimateZ.z"])
    assert ask(craft, crtp_packets.LOG, 1, b"\x06\x09" + settings)[0].data == b"\x06\x09\0"
    assert ask(craft, crtp_packets.LOG, 1, b"\x06\x09" + settings)[0].data[2] == 17, "it exists"
    assert ask(craft, crtp_packets.LOG, 1, b"\x03\x09\x02")[0].data == b"\x03\x09\0"
    sent = [decode(raw) for raw in craft.advance(100.5)]
    assert len(sent) == 25, "every 20 ms"
    stamps = [int.from_bytes(packet.data[1:4], "little") for packet in sent]
    assert set(np.diff(stamps)) == {20}
    assert struct.unpack("<fh", sent[0].data[4:]) == (pytest.approx(4.1), 0)
    assert ask(craft, crtp_packets.LOG, 1, b"\x04\x09", 100.5)[0].data[2] == 0
    assert not craft.advance(101.0)
    assert ask(craft, crtp_packets.LOG, 1, b"\x02\x09", 101.0)[0].data[2] == 0
    assert ask(craft, crtp_packets.LOG, 1, b"\x03\x09\x02", 101.0)[0].data[2] == 2, "no such block"


def test_a_block_that_is_too_large_or_of_an_unknown_variable_is_refused(craft):
    big = struct.pack("<BH", 7, 0) * 7
    assert ask(craft, crtp_packets.LOG, 1, b"\x06\x01" + big)[0].data[2] == 7
    assert ask(craft, crtp_packets.LOG, 1, b"\x06\x02" + struct.pack("<BH", 7, 9999))[0].data[2] == 2
    assert ask(craft, crtp_packets.LOG, 1, b"\x05")[0].data == b"\x05\0\0"
    assert not craft.logs.running


def test_a_silent_client_is_forgotten(craft):
    ids = craft.logs.contents.ids
    ask(craft, crtp_packets.LOG, 1, b"\x06\x01" + struct.pack("<BH", 7, ids["pm.vbat"]))
    ask(craft, crtp_packets.LOG, 1, b"\x03\x01\x01")
    assert 99 <= len(craft.advance(105.0)) <= 101, "one second"


def test_the_memory_is_read_as_it_was_written(craft):
    assert ask(craft, crtp_packets.MEMORY, 0, b"\x01")[0].data == b"\x01\x01"
    about = ask(craft, crtp_packets.MEMORY, 0, b"\x02\x00")[0].data
    assert (about[2], struct.unpack_from("<I", about, 3)[0], len(about)) == (0x12, 4096, 15)
    where = struct.pack("<BI", 0, 7)
    assert ask(craft, crtp_packets.MEMORY, 2, where + b"hello")[0].data == where + b"\0"
    assert ask(craft, crtp_packets.MEMORY, 1, where + b"\x05")[0].data == where + b"\0hello"
    assert ask(craft, crtp_packets.MEMORY, 1, struct.pack("<BIB", 0, 4095, 5))[0].data[5] == 5


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (struct.pack("<Bffff", 8, 1, 2, 3, 90), "velocity"),
        (struct.pack("<Bffff", 1, 1, 2, 3, -90), "velocity"),
        (struct.pack("<Bffff", 10, 1, 2, 90, 0.5), "hover"),
        (struct.pack("<Bffff", 7, 1, 2, 3, 90), "place"),
        (b"\0", "off"),
        (struct.pack("<Bffff", 9, 0, 0, 0, 1), "attitude"),
    ],
)
def test_set_points_are_read(data, kind):
    found = decode_set_point(Packet(crtp_packets.GENERIC, 0, data))
    assert found.kind == kind
    if kind in ("velocity", "hover"):
        assert found.velocity[:2] == (1, 2)
        assert found.yaw_rate == pytest.approx(np.pi / 2)


@pytest.mark.parametrize("data", [b"", b"\x08", b"\x08" + bytes(17), b"\x63" + bytes(16), b"\x06abc"])
def test_a_malformed_set_point_is_no_set_point(data):
    assert decode_set_point(Packet(crtp_packets.GENERIC, 0, data)) is None


@settings(max_examples=examples(40))
@given(data=st.binary(max_size=30), port=st.integers(0, 15), channel=st.integers(0, 3))
def test_no_packet_breaks_the_vehicle(data, port, channel):
    craft = SimulatedCrazyflie(SimulatedCrazyflieSettings.create(), 0.0)
    for raw in craft.receive(encode(Packet(port, channel, data)), 0.02):
        assert decode(raw) is not None
    craft.advance(0.1)


def test_a_take_off_is_smooth_and_ends_at_its_height():
    planner = Planner()
    planner.handle(
        Packet(crtp_packets.HIGH_LEVEL, 0, struct.pack("<BBff?f", 7, 0, 1.0, 0.0, True, 2.0)),
        np.array([0.0, 0.0, 0.0, 0.3]),
        10.0,
    )
    points = [planner.set_point(10.0 + 0.02 * k) for k in range(101)]
    heights = np.array([point.position_world[2] for point in points])
    speeds = np.array([point.velocity[2] for point in points])
    assert heights[0] == 0
    assert heights[-1] == pytest.approx(1.0)
    assert np.allclose(np.gradient(heights, 0.02)[1:-1], speeds[1:-1], atol=2e-3)
    assert speeds[-1] == pytest.approx(0.0, abs=1e-9)
    assert {round(point.yaw, 9) for point in points} == {0.3}
    assert planner.set_point(99.0).position_world[2] == pytest.approx(1.0), "it stays there"


def test_a_way_begun_in_motion_keeps_its_speed_at_the_beginning():
    planner = Planner()
    go = struct.pack("<BBBBfffff", 12, 0, 0, 0, 1.0, 0.0, 0.0, 0.0, 2.0)
    planner.handle(Packet(crtp_packets.HIGH_LEVEL, 0, go), np.zeros(4), 0.0)
    before = planner.set_point(1.0)
    planner.handle(
        Packet(crtp_packets.HIGH_LEVEL, 0, struct.pack("<BBBBfffff", 12, 0, 0, 0, 0.0, 1.0, 0.5, 0.0, 3.0)),
        np.zeros(4),
        1.0,
    )
    after = planner.set_point(1.0)
    assert np.allclose(after.velocity, before.velocity)
    end = planner.set_point(4.0)
    assert np.allclose(end.position_world, (0.0, 1.0, 0.5))
    assert np.allclose(end.velocity, 0.0, atol=1e-9)


def test_states_of_the_supervisor_from_the_ground_into_the_air_and_back():
    supervisor = FirmwareSupervisor(auto_arm=True)
    seen = []
    for tick in range(1200):
        now_s = tick * 0.01
        flies = 1.0 <= now_s < 3.0
        supervisor.update(0.0, now_s, motors_on=flies, up=1.0)
        seen.append(supervisor.state)
    order = [state for k, state in enumerate(seen) if k == 0 or state != seen[k - 1]]
    assert order[:5] == [State.CHECKS_NOT_PASSED, State.CHECKS_PASSED, State.ARMING, State.READY, State.FLYING]
    assert order[5:8] == [State.LANDED, State.RESET, State.CHECKS_NOT_PASSED]
    landed_s = 0.01 * seen.index(State.LANDED)
    assert landed_s == pytest.approx(5.0, abs=0.03), "two seconds after the motors"


def test_an_armed_vehicle_that_does_not_fly_is_disarmed_after_half_a_minute():
    supervisor = FirmwareSupervisor(auto_arm=False)
    for tick in range(4000):
        if tick == 10:
            assert supervisor.request_arming(True) == b"\1\1"
        supervisor.update(0.0, tick * 0.01, motors_on=False, up=1.0)
        if supervisor.state == State.CHECKS_NOT_PASSED and tick > 100:
            break
    assert tick == pytest.approx(3013, abs=3)
    assert not supervisor.armed


def test_the_watchdog_stops_the_motors_when_it_is_not_fed(craft):
    craft.advance(100.2)
    ask(craft, crtp_packets.SUPERVISOR, 1, b"\x04", 100.2)
    craft.advance(101.0)
    assert craft.supervisor.state == State.READY
    craft.advance(101.5)
    assert craft.supervisor.state == State.LOCKED


@given(st.tuples(*[st.floats(-1, 1)] * 4).filter(lambda q: np.linalg.norm(q) > 0.1))
def test_a_compressed_rotation_is_the_same_rotation(quaternion):
    unit = np.array(quaternion) / np.linalg.norm(quaternion)
    again = np.array(decompressed(compressed(unit)))
    assert abs(unit @ again) > 1 - 1e-5
    assert 0 <= compressed(unit) < 2**32


def test_repetition_keeps_order_and_loses_nothing():
    channel = RadioChannel(1)
    channel.air = RadioConditions(0.5, 0.003, jitter_s=0.01, repeats=True)
    for k in range(500):
        channel.send(UP, k, 0.001 * k)
    assert [load for _, load in channel.arrived(10.0)] == list(range(500))
    channel.air = RadioConditions(0.3)
    for k in range(2000):
        channel.send(DOWN, k, 20.0)
    assert 0.25 < channel.lost[DOWN] / 2000 < 0.35


def test_the_clock_of_the_vehicle_wraps_round_and_a_restart_is_noticed():
    clock = VehicleClock()
    assert clock.stamp(3, 4.9) is None, "no round trip is known"
    clock = VehicleClock()
    clock.hear_trip(0.004, 5.0)
    start = (1 << 24) - 30
    stamps = [clock.stamp((start + 10 * k) % (1 << 24), 5.0 + 0.01 * k + 0.002) for k in range(8)]
    assert np.allclose(np.diff(stamps), 0.01)
    assert stamps[0] == pytest.approx(4.998)
    assert clock.stamp(0, 6.0) is None, "overtaken"
    assert not clock.restarted
    clock = VehicleClock()
    clock.hear_trip(0.004, 5.0)
    clock.stamp(600_000, 5.0)
    clock.stamp(20, 5.1)
    assert clock.restarted
