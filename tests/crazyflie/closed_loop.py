"""A pilot and a simulated Crazyflie with a radio channel between them, on a clock of their own: no sockets or cflib."""

import math
import struct

from testudo_crazyflie.firmware import crtp_packets
from testudo_crazyflie.firmware.crtp_packets import Packet, decode, encode
from testudo_crazyflie.simulated_crazyflie import SimulatedCrazyflie, SimulatedCrazyflieSettings
from testudo_crazyflie.udp_server import DOWN, UP, RadioChannel, RadioConditions
from testudo_hardware.links.crazyflie.flight_sequencer import FlightSequencer
from testudo_hardware.links.crazyflie.vehicle_messages import (
    VARIABLES,
    LinkPhase,
    VehicleAction,
    VehicleClock,
    read_block,
)
from testudo_hardware.links.flight_link import FlightAct, FlightRequest

STEP_S, TICK_S = 0.02, 0.01
TYPES = {
    "uint8_t": (1, "B"),
    "uint16_t": (2, "H"),
    "uint32_t": (3, "I"),
    "int8_t": (4, "b"),
    "int16_t": (5, "h"),
    "int32_t": (6, "i"),
    "float": (7, "f"),
}


def order_packet(order):
    """Return an order as cflib sends it."""
    if order.act == VehicleAction.SET_POINT:
        return Packet(
            crtp_packets.GENERIC, 0, struct.pack("<Bffff", 8, *order.velocity_world, math.degrees(order.yaw_rate))
        )
    if order.act in (VehicleAction.TAKE_OFF, VehicleAction.LAND):
        kind = 7 if order.act == VehicleAction.TAKE_OFF else 8
        return Packet(
            crtp_packets.HIGH_LEVEL, 0, struct.pack("<BBff?f", kind, 0, order.height_m, 0.0, True, order.duration_s)
        )
    if order.act == VehicleAction.NOTIFY:
        return Packet(crtp_packets.GENERIC, 1, struct.pack("<BI", 0, 0))
    if order.act == VehicleAction.EMERGENCY:
        return Packet(crtp_packets.SUPERVISOR, 1, b"\x03")
    return Packet(crtp_packets.SUPERVISOR, 1, bytes([1, order.act == VehicleAction.ARM]))


class Loop:
    """Everything at 10 ms; the pilot at 20 ms."""

    def __init__(self, air=None, seed=0, start_s=1000.0, **settings):
        self.now_s = start_s
        self.craft = SimulatedCrazyflie(SimulatedCrazyflieSettings.create(**{"as_point": True} | settings), start_s)
        self.pilot = FlightSequencer(dead_man_s=0.1, speed_limit_m_s=1.0)
        self.channel, self.clock = RadioChannel(seed), VehicleClock()
        self.channel.air = air or RadioConditions()
        self.command = None
        """Given at each step of the pilot; None: nobody commands."""
        self.yaw_rate = 0.0
        self.orders, self.states, self.codes, self.ages = [], [], [], []
        self._start_log()

    def _start_log(self):
        contents = self.craft.logs.contents
        settings = [struct.pack("<BH", TYPES[kind][0], contents.ids[name]) for name, kind in VARIABLES]
        for data in (b"\6\1" + b"".join(settings[:9]), b"\7\1" + b"".join(settings[9:]), b"\3\1\1"):
            (answer,) = self.craft.receive(encode(Packet(crtp_packets.LOG, 1, data)), self.now_s)
            assert decode(answer).data[2] == 0, "the block of the link fits into one packet"

    def run(self, duration_s, until=None):
        """Let time pass; return when a condition came true, measured from now, or None."""
        begin_s = self.now_s
        while self.now_s < begin_s + duration_s - 1e-9:
            self._tick()
            if until is not None and until():
                return self.now_s - begin_s
        return None

    def ask(self, act, height_m=1.0, duration_s=2.0):
        return self.pilot.ask(FlightRequest(FlightAct(act), height_m, duration_s), self.now_s)

    def fly(self, command=(0.0, 0.0, 0.0)):
        """Bring it into the air and let a command pass."""
        self.run(0.5)
        if not self.pilot.watch.info.armed:
            assert not self.ask("arm")
            self.run(0.5)
        assert not self.ask("take_off"), self.pilot.refusal
        assert self.run(6.0, lambda: self.pilot.phase == LinkPhase.HOVERING), self.pilot.sentence
        self.command = command
        self.run(1.5)
        return self

    @property
    def supervisor(self):
        return self.craft.supervisor

    @property
    def height_m(self):
        return float(self.craft.vehicle.position[2])

    def _tick(self):
        self.now_s += TICK_S
        for raw in self.craft.advance(self.now_s):
            self.channel.send(DOWN, raw, self.now_s)
        if round(self.now_s / TICK_S) % 10 == 0:  # cflib asks for an echo ten times a second
            self.channel.send(UP, encode(Packet(crtp_packets.LINK, 0, struct.pack("<d", self.now_s))), self.now_s)
        if round(self.now_s / TICK_S) % 2 == 0:
            if self.command is not None:
                self.pilot.command(self.command, self.now_s, self.yaw_rate)
            for order in self.pilot.step(self.now_s):
                self.orders.append((self.now_s, order))
                self.channel.send(UP, encode(order_packet(order)), self.now_s)
        while arrived := self.channel.arrived(self.now_s):
            for towards, raw in arrived:
                if towards == UP:
                    for answer in self.craft.receive(raw, self.now_s):
                        self.channel.send(DOWN, answer, self.now_s)
                else:
                    self._hear(decode(raw))
        self.states.append(self.supervisor.state)
        self.codes.append(self.pilot.code)

    def _hear(self, packet):
        self.pilot.watch.hear(self.now_s)
        if packet.port == crtp_packets.LINK:
            self.clock.hear_trip(self.now_s - struct.unpack("<d", packet.data)[0], self.now_s)
        if packet.port != crtp_packets.LOG or packet.channel != 2:
            return
        stamp = int.from_bytes(packet.data[1:4], "little")
        stamp_s = self.clock.stamp(stamp, self.now_s)
        self.pilot.watch.restarted |= self.clock.restarted
        if stamp_s is None:
            return
        values = struct.unpack("<" + "".join(TYPES[kind][1] for _, kind in VARIABLES), packet.data[4:])
        names = [name for name, _ in VARIABLES]
        self.ages.append(self.now_s - stamp_s)
        self.pilot.see(read_block(dict(zip(names, values, strict=True)), stamp_s, self.now_s))
