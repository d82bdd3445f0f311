"""Flies a simulated vehicle with the real `cflib` and commands at 50 Hz, for benchmark and tests."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from testudo_crazyflie.simulated_crazyflie import SimulatedCrazyflieSettings
from testudo_crazyflie.udp_server import CrazyflieServer, RadioConditions
from testudo_deploy.launch.child_processes import CpuKeepAwake
from testudo_hardware.links.crazyflie.radio_link import CrazyflieRadio
from testudo_hardware.links.crazyflie.vehicle_messages import LinkPhase, RadioSample
from testudo_hardware.links.flight_link import FlightAct, FlightRequest
from testudo_hardware.links.wire import CommandReading, WireError

HEIGHT_M, CLIMB_S = 0.8, 1.5
_ASK_WITHIN_S, _LOOK_S = 8.0, 0.004


@dataclass
class CflibFlight:
    """One vehicle with its link, and the observations of both."""

    server: CrazyflieServer
    radio: CrazyflieRadio
    command: tuple[float, float, float] | None = None  # [m/s], sent at 50 Hz; None for no commands
    stamps: list[tuple[float, float]] = field(default_factory=list)
    """Times of measurement and arrival of each sample [s]."""
    codes: set[str] = field(default_factory=set)  # all faults seen
    states: set[int] = field(default_factory=set)  # states of the vehicle's supervisor that were seen
    stall_s: float = 0.0  # longest gap between two observations since the start, a measure of machine load
    _ends: threading.Event = field(default_factory=threading.Event)

    def wait(self, until: Callable[[], bool], within_s: float, every_s: float = _LOOK_S) -> float | None:
        """Return the time [s] until a condition is true; None if it is not in time."""
        begin_s = looked_s = time.monotonic()
        while (passed_s := time.monotonic() - begin_s) < within_s:
            self.stall_s, looked_s = max(self.stall_s, time.monotonic() - looked_s - every_s), time.monotonic()
            self.look()
            if until():
                return passed_s
            time.sleep(every_s)
        return None

    @property
    def longest_stall_s(self) -> float:
        """Return for how long the process or the stream of samples stood still at most [s]."""
        received_s = [received_s for _, received_s in self.stamps]
        return max([self.stall_s, *(later - earlier for earlier, later in pairwise(received_s))])

    def look(self) -> None:
        """Record faults and the state of the vehicle."""
        self.codes.add(self.radio.standing.code)
        with self.server.craft() as craft:
            self.states.add(int(craft.supervisor.state))

    def ask(self, act: FlightAct, height_m: float = HEIGHT_M, duration_s: float = CLIMB_S) -> str:
        """Send a request; return the reason of a refusal, else an empty text."""
        try:
            self.radio.ask(FlightRequest(act, height_m, duration_s))
        except WireError as error:
            return str(error)
        return ""

    def climb(self) -> "CflibFlight":
        """Arm, take off and hold, until commands pass.

        Raises:
            AssertionError: it is not in the air after some seconds.
        """
        with self.server.craft() as craft:
            arms_itself = craft.supervisor.auto_arm
        if not arms_itself:
            self.ask(FlightAct.ARM)
            self.wait(lambda: bool(self.radio.vehicle and self.radio.vehicle.armed), _ASK_WITHIN_S)
        refusal = self.ask(FlightAct.TAKE_OFF)
        if refusal or self.wait(lambda: self.phase == LinkPhase.HOVERING, _ASK_WITHIN_S) is None:
            raise AssertionError(f"it does not fly: {refusal or self.radio.standing}")
        self.command = (0.0, 0.0, 0.0)
        self.wait(lambda: False, 1.3)
        self.codes.clear()
        self.states.clear()
        self.stamps.clear()
        return self

    def lands(self, within_s: float = 12.0) -> bool:
        """Return whether it stands on the ground, motors off, within some time."""
        return self.wait(lambda: self.height_m < 0.01 and not self.motors_on, within_s) is not None

    @property
    def phase(self) -> LinkPhase:
        """Return the state of the flight."""
        return self.radio.standing.phase

    @property
    def height_m(self) -> float:
        """Return the true height."""
        with self.server.craft() as craft:
            return float(craft.vehicle.position[2])

    @property
    def position(self) -> np.ndarray:
        """Return the true position (3,) [m]."""
        with self.server.craft() as craft:
            return craft.vehicle.position.copy()

    @property
    def speed_m_s(self) -> float:
        """Return the true speed."""
        with self.server.craft() as craft:
            return float(np.linalg.norm(craft.vehicle.velocity))

    @property
    def motors_on(self) -> bool:
        """Return whether the motors turn."""
        with self.server.craft() as craft:
            return craft.vehicle.motors_on

    @property
    def set_points(self) -> int:
        """Return the number of received set-points."""
        with self.server.craft() as craft:
            return craft.set_points

    def command_on(self) -> None:
        """Command at 50 Hz until the end, as a guard does."""
        next_s = time.monotonic()
        while not self._ends.wait(max(0.0, next_s - time.monotonic())):
            next_s += self.radio.spec.control_period_s
            if self.command is not None:
                self.radio.send(CommandReading(time.monotonic(), self.command))

    def end(self) -> None:
        """Stop commanding."""
        self._ends.set()


@contextlib.contextmanager
def fly_with_cflib(
    air: RadioConditions | None = None,
    *,
    seed: int = 0,
    prepare: Callable[[CrazyflieServer], None] | None = None,
    **settings: Any,
) -> Iterator[CflibFlight]:
    """Start a vehicle, connect to it, and close the link at the end without waiting for a landing.

    ``air`` is the quality of the connection, from the first packet on, ``seed`` that of the losses; ``prepare`` is
    called with the server before the link is opened.
    """
    craft = SimulatedCrazyflieSettings.create(**settings)
    with CpuKeepAwake(), CrazyflieServer(craft, seed=seed) as server:
        server.set_air(air or RadioConditions())
        if prepare is not None:
            prepare(server)
        flights: list[CflibFlight] = []

        def take(sample: RadioSample) -> None:
            for flight in flights:
                flight.stamps.append((sample.stamp_s, sample.received_s))

        radio = CrazyflieRadio("cf1", craft.spec, server.uri, on_sample=take)
        radio.open()
        flight = CflibFlight(server, radio)
        flights.append(flight)
        thread = threading.Thread(target=flight.command_on, daemon=True)
        thread.start()
        try:
            yield flight
        finally:
            flight.end()
            thread.join(timeout=1.0)
            radio.close(land=False)
