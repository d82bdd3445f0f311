"""`CrazyflieRadio`: the link to one Crazyflie through `cflib`, which is imported when the link is opened.

Threads: `cflib` calls back from its own threads; one thread of this module asks the sequencer what to send. Every fault
of the vehicle or the radio leads to a sentence from the sequencer, and to standstill, a landing, or motors off.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from testudo_hardware.frames import PlanarTransform
from testudo_hardware.links.crazyflie.cflib_client import CflibClient, RadioError
from testudo_hardware.links.crazyflie.flight_sequencer import (
    BATTERY_V,
    LANDING_HEIGHT_M,
    LANDING_SPEED_M_S,
    FlightSequencer,
)
from testudo_hardware.links.crazyflie.vehicle_messages import PERIOD_MS, LinkPhase, RadioSample
from testudo_hardware.links.flight_link import FlightAct, FlightRequest, VehicleState
from testudo_hardware.links.wire import CommandReading, OdometryReading, WireError
from testudo_hardware.spec import RobotSpec

CONTROLLERS = {1: "pid", 2: "mellinger", 3: "indi", 4: "brescianini", 5: "lee"}
ESTIMATORS = {1: "complementary", 2: "kalman", 3: "ukf"}
CONTROLLER, ESTIMATOR = "stabilizer.controller", "stabilizer.estimator"
_RATE_SHARE = 0.8
MOST_TRIP_S = 0.1  # longest round trip by radio that leaves the shield enough time
OPEN_WITHIN_S = 30.0
"""Real drones have some hundred parameters and log variables, each of which takes a round trip or two."""
_MEASURE_S = 1.0
_LAND_WITHIN_S = 8.0
_STALE_S = 0.5  # age beyond which the state in a packet of the log block is treated as unknown
_PATIENCE = 1.5  # periods after which a set-point is sent without a new command
_ROUNDING_S, _ROUNDING_RAD_S = 0.001, 1e-6
_CLOCK_TOLERANCE_S = 0.002  # rounding of stamps: a stamp less far in the future is accepted


@dataclass(frozen=True)
class MeasuredSettings:
    """Quality of the radio, measured before the first flight."""

    rate_hz: float  # at which packets of the log block arrive
    least_trip_s: float | None  # the shortest round trip; None if no echo came back


@dataclass(frozen=True)
class LinkState:
    """State of a link at one moment."""

    phase: LinkPhase
    code: str  # of the fault; empty without one
    sentence: str
    refusal: str  # why the last request was refused; empty if it was accepted


def parameter_faults(values: Mapping[str, float]) -> list[str]:
    """Return the faults of a vehicle's parameters, each as one sentence that says what to change."""
    found: list[str] = []
    for name, expected, known, why in (
        (CONTROLLER, 1, CONTROLLERS, "other controllers do not follow velocity set-points as the robot file describes"),
        (ESTIMATOR, 2, ESTIMATORS, "other estimators do not know the position of the drone"),
    ):
        value = int(values.get(name, 0))
        if value != expected:
            kind = known.get(value, "unknown")
            found.append(f"{name}: found {value} ({kind}), expected {expected} ({known[expected]}): {why}")
    return found


def radio_faults(measured: MeasuredSettings) -> list[str]:
    """Return the faults of the radio, each as one sentence that says what to change."""
    found: list[str] = []
    expected_hz = 1000 / PERIOD_MS
    if measured.rate_hz < _RATE_SHARE * expected_hz:
        found.append(
            f"log block: found {measured.rate_hz:.0f} Hz, expected {_RATE_SHARE * expected_hz:.0f} to "
            f"{expected_hz:.0f} Hz: use a separate channel at 2M, or fewer drones on one Crazyradio"
        )
    if measured.least_trip_s is None or measured.least_trip_s > MOST_TRIP_S:
        trip = "no echo" if measured.least_trip_s is None else f"{1000 * measured.least_trip_s:.0f} ms"
        found.append(f"radio: found {trip} for a round trip, expected at most {1000 * MOST_TRIP_S:.0f} ms")
    return found


class CrazyflieRadio:
    """A `RobotLink` and a `FlightLink` to one Crazyflie; as a context manager it lands a drone that still flies."""

    def __init__(
        self, robot: str, spec: RobotSpec, uri: str, *, on_sample: Callable[[RadioSample], None] | None = None
    ) -> None:
        """Prepare a link that `open` connects.

        Args:
            robot: its name, for errors.
            spec: rate of set-points, dead-man time, speed limit.
            uri: in the form of `cflib`: `radio://0/80/2M/E7E7E7E701`, `usb://0`, `udp://127.0.0.1:19850`.
            on_sample: called from a thread of `cflib` for each packet of the log block.
        """
        self.robot, self.spec, self.uri = robot, spec, uri
        self.console: deque[str] = deque(maxlen=200)
        """The last texts of the vehicle's console."""
        battery_v = BATTERY_V
        if spec.power:
            battery_v = (spec.power["power.arm"].value, spec.power["power.land"].value)
        self._pilot = FlightSequencer(
            dead_man_s=spec.dead_man_s, speed_limit_m_s=spec.speed_limit_m_s, battery_v=battery_v
        )
        self._lock = threading.Lock()
        self._on_sample = on_sample
        self._sample: RadioSample | None = None
        self._samples = 0
        self._client = CflibClient(robot, uri)
        self._values: dict[str, float] = {}
        self._ends, self._wakes = threading.Event(), threading.Event()
        self._holds_until_s = -math.inf
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Open the link."""
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        """Land if it flies, and close."""
        self.close()

    def open(self, within_s: float = OPEN_WITHIN_S) -> None:
        """Connect, check parameters, start the log block, measure the radio, and start sending.

        Raises:
            RadioError: `cflib` is not installed, nothing answers, or a check fails.
        """
        try:
            self._client.connect(within_s, self._hear, self._lose, self._say)
            self._values = self._client.parameters((CONTROLLER, ESTIMATOR))
            self._refuse(parameter_faults(self._values))
            self._client.start_log(self._take)
            self._refuse(radio_faults(self._measure()))
        except BaseException:
            self._client.close()
            raise
        self._thread = threading.Thread(target=self._pump, name=f"{self.robot} set-points", daemon=True)
        self._thread.start()

    def close(self, *, land: bool = True) -> None:
        """Land a flying drone if ``land`` is true, wait for it, and end the link; never raises.

        A landing in progress continues without the radio. The closing set-point of `cflib`, zero thrust, would drop a
        flying drone: it is not sent.
        """
        if self._thread is not None:
            if land:
                self._land_and_wait()
            self._ends.set()
            self._wakes.set()
            self._thread.join(timeout=1.0)
        self._client.close()

    def send(self, reading: CommandReading, at: PlanarTransform | None = None) -> None:
        """Take a velocity in the world as the command, sent at the next step; see `RobotLink.send`.

        A stamp in the future is refused: such a command would outlast its sender.
        """
        if len(reading.command) != 3 or not all(map(math.isfinite, (*reading.command, reading.yaw_rate))):
            raise WireError(
                f"{self.robot}: found the command {reading.command} and the yaw rate {reading.yaw_rate}, "
                "expected 3 finite numbers and one"
            )
        if abs(reading.yaw_rate) > self.spec.yaw_rate_limit_rad_s + _ROUNDING_RAD_S:
            raise WireError(
                f"{self.robot}: found a yaw rate of {reading.yaw_rate:g} rad/s, {self.spec.name} takes at "
                f"most {self.spec.yaw_rate_limit_rad_s:g}"
            )
        if not reading.stamp_s <= time.monotonic() + _CLOCK_TOLERANCE_S:
            raise WireError(f"{self.robot}: found a command with a stamp in the future, expected the steady clock")
        with self._lock:
            self._pilot.command(reading.command, reading.stamp_s, reading.yaw_rate)
        self._holds_until_s = reading.stamp_s + self.spec.dead_man_s + _ROUNDING_S
        self._wakes.set()  # waiting for the next period would cost half a period on average

    def take(self, sample: RadioSample) -> OdometryReading:
        """Return the odometry of a sample; see `RobotLink.take`."""
        return sample.odometry

    def ask(self, request: FlightRequest) -> None:
        """Send a request to the vehicle; see `FlightLink.ask`.

        Raises:
            WireError: it is refused now; the text says why.
        """
        with self._lock:
            refusal = self._pilot.ask(request, time.monotonic())
        if request.act == FlightAct.EMERGENCY:
            self._client.stop_motors()  # immediately, without waiting for the other thread
        if refusal:
            raise WireError(f"{self.robot}: {refusal}")

    def send_pose(self, position_world: tuple[float, float, float], quaternion_xyzw: tuple[float, ...]) -> None:
        """Send a pose from motion capture to the vehicle's estimator; NaN is not sent."""
        if all(map(math.isfinite, (*position_world, *quaternion_xyzw))):
            self._client.send_pose(position_world, quaternion_xyzw)

    @property
    def standing(self) -> LinkState:
        """Return the state of the link now; does not wait for the sending thread."""
        with self._lock:
            pilot = self._pilot
            pilot.look(time.monotonic())
            return LinkState(pilot.phase, pilot.code, pilot.sentence, pilot.refusal)

    @property
    def latest(self) -> RadioSample | None:
        """Return the newest packet of the log block."""
        return self._sample

    @property
    def samples(self) -> int:
        """Return the number of packets of the log block."""
        return self._samples

    @property
    def holds(self) -> str:
        """Return why standstill is sent in place of commands; empty if commands pass."""
        with self._lock:
            return self._pilot.holds(time.monotonic())

    @property
    def vehicle(self) -> VehicleState | None:
        """Return the state that the vehicle reports; None before its first packet.

        After half a second of silence only the time of the last packet and the driver's state are known.
        """
        sample = self._sample
        if sample is None:
            return None
        if time.monotonic() - sample.stamp_s > _STALE_S:
            return VehicleState(sample.stamp_s, holds=self.holds)
        info = sample.info
        can_fly = info.can_fly if info.armed else info.can_be_armed
        return VehicleState(
            sample.stamp_s,
            sample.battery_v,
            info.armed,
            can_fly,
            info.flying,
            info.tumbled,
            info.locked or info.crashed,
            CONTROLLERS.get(int(self._values.get(CONTROLLER, 0)), ""),
            ESTIMATORS.get(int(self._values.get(ESTIMATOR, 0)), ""),
            self._client.clock.trip_s,
            self.holds,
        )

    def _refuse(self, faults: list[str]) -> None:
        if faults:
            raise RadioError(f"{self.robot}: {self.uri}: {faults[0]}")

    def _measure(self) -> MeasuredSettings:
        """Wait for the log block and measure its rate."""
        end_s = time.monotonic() + 2 * _MEASURE_S
        while not self._samples and time.monotonic() < end_s:
            time.sleep(0.01)
        before, begin_s = self._samples, time.monotonic()
        time.sleep(_MEASURE_S)
        rate_hz = (self._samples - before) / (time.monotonic() - begin_s)
        return MeasuredSettings(rate_hz, self._client.clock.least_trip_s)

    def _pump(self) -> None:
        """Send what is due: whenever a command arrives, and without one at the rate of set-points."""
        while not self._ends.is_set():
            self._wakes.wait(self._pause_s())
            self._wakes.clear()
            try:
                self._send_what_is_due()
            except Exception as error:  # noqa: BLE001 -- without this thread the drone would fall without a report
                self._lose(f"{type(error).__name__}: {error}")

    def _send_what_is_due(self) -> None:
        with self._lock:
            orders = self._pilot.step(time.monotonic())
        for order in orders:
            self._client.send(order)

    def _pause_s(self) -> float:
        """Return how long to wait for a command: at most until the dead-man time of the last one ends."""
        holds_s = self._holds_until_s - time.monotonic()
        pause_s = _PATIENCE * self.spec.control_period_s
        return min(pause_s, holds_s) if holds_s > 0 else pause_s

    def _take(self, sample: RadioSample) -> None:
        with self._lock:
            self._sample, self._samples = sample, self._samples + 1
            self._pilot.see(sample)
        if self._on_sample is not None:
            self._on_sample(sample)

    def _hear(self, now_s: float) -> None:
        with self._lock:
            self._pilot.watch.hear(now_s)
            self._pilot.watch.restarted |= self._client.clock.restarted

    def _lose(self, reason: str) -> None:
        with self._lock:
            self._pilot.watch.lose(reason)

    def _say(self, text: str) -> None:
        self.console.append(text)

    def _land_and_wait(self) -> None:
        with self._lock:
            now_s, height_m = time.monotonic(), self._pilot.watch.height_m
            duration_s = max(1.0, (height_m - LANDING_HEIGHT_M) / LANDING_SPEED_M_S)
            self._pilot.ask(FlightRequest(FlightAct.LAND, LANDING_HEIGHT_M, duration_s), now_s)
        end_s = now_s + duration_s + _LAND_WITHIN_S
        while time.monotonic() < end_s:
            with self._lock:
                if self._pilot.phase in (LinkPhase.GROUND, LinkPhase.STOPPED):
                    return
            if self._client.is_lost:
                return
            time.sleep(0.05)
