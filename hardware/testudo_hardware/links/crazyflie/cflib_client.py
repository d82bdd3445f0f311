"""All calls of `cflib`: connection with a time limit, parameters, the log block, requests, and the end."""

import contextlib
import importlib
import logging
import math
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from testudo_hardware.errors import TestudoError
from testudo_hardware.links.crazyflie.vehicle_messages import (
    PERIOD_MS,
    VARIABLES,
    RadioSample,
    VehicleAction,
    VehicleClock,
    VehicleRequest,
    read_block,
)

_LINK_PORT, _ECHO = 0x0F, 0
_PING = struct.Struct("<Bd")
_CLOSE_WITHIN_S = 3.0
_STALLED_S = 1.5  # time without progress after which the connection is started again


class RadioError(TestudoError):
    """The link to a drone cannot be opened: the text says why and what to change."""


class CflibClient:
    """One connection of `cflib`."""

    def __init__(self, robot: str, uri: str) -> None:
        """Prepare a connection."""
        self.clock = VehicleClock()
        self.is_lost = False
        self._where = f"{robot}: {uri}"
        self._uri = uri
        self._craft: Any = None
        self._connected, self._failed = threading.Event(), ""
        self._progress_s = 0.0

    def connect(
        self, within_s: float, hear: Callable[[float], None], lose: Callable[[str], None], say: Callable[[str], None]
    ) -> None:
        """Connect and fetch tables of contents and parameters.

        `cflib` can wait forever after one lost packet: without progress the connection is started again.

        Args:
            within_s: time limit.
            hear: called with the time of each packet.
            lose: called once, with the reason, when a connection ends by itself.
            say: called with texts of the vehicle's console.

        Raises:
            RadioError: `cflib` is not installed, nothing answers, or the radio cannot be used.
        """
        crazyflie = _cflib()
        end_s = time.monotonic() + within_s
        while not self._failed and time.monotonic() < end_s:
            self._begin(crazyflie, hear, lose, say)
            if self._is_connected(end_s) and not self._failed:
                return
            self.close()
        raise RadioError(
            f"{self._where}: {self._failed or f'the drone did not answer within {within_s:g} s'}; "
            "check that it is switched on, and its address, channel and data rate against the URI"
        )

    def _is_connected(self, end_s: float) -> bool:
        """Wait until the connection is made or fails; return False if it stalls or the time is over."""
        while not self._connected.wait(0.02):
            now_s = time.monotonic()
            if now_s > end_s or now_s - self._progress_s > _STALLED_S:
                return False
        return True

    def parameters(self, names: Sequence[str]) -> dict[str, float]:
        """Return the values of parameters, without those that the vehicle lacks."""
        known = self._craft.param.values
        found: dict[str, float] = {}
        for name in names:
            group, _, key = name.partition(".")
            if key in known.get(group, {}):
                found[name] = float(known[group][key])
        return found

    def start_log(self, take: Callable[[RadioSample], None]) -> None:
        """Start the log block.

        Raises:
            RadioError: the firmware lacks a variable, or refuses the block.
        """
        block = importlib.import_module("cflib.crazyflie.log").LogConfig("testudo", PERIOD_MS)
        for name, kind in VARIABLES:
            block.add_variable(name, kind)

        def on_data(milliseconds: int, values: dict[str, float], _: Any) -> None:
            now_s = time.monotonic()
            stamp_s = self.clock.stamp(milliseconds, now_s)
            if stamp_s is not None:
                take(read_block(values, stamp_s, now_s))

        block.data_received_cb.add_callback(on_data)
        try:
            self._craft.log.add_config(block)
        except (KeyError, AttributeError) as error:
            raise RadioError(
                f"{self._where}: the log block is refused: {error.args[0]}; update the firmware to 2024 or later"
            ) from error
        block.start()

    def send(self, order: VehicleRequest) -> None:
        """Send one request; without a link nothing is sent, which telemetry shows."""
        craft = self._craft
        if craft is None or craft.link is None:
            return
        commander, planner, supervisor = craft.commander, craft.high_level_commander, craft.supervisor
        if order.act == VehicleAction.SET_POINT:
            # degrees/s; cflib changes the sign for firmware up to protocol 8, which counts clockwise
            commander.send_velocity_world_setpoint(*order.velocity_world, math.degrees(order.yaw_rate))
        elif order.act == VehicleAction.TAKE_OFF:
            planner.takeoff(order.height_m, order.duration_s, yaw=None)
        elif order.act == VehicleAction.LAND:
            planner.land(order.height_m, order.duration_s, yaw=None)
        elif order.act == VehicleAction.NOTIFY:
            commander.send_notify_setpoint_stop()
        elif order.act == VehicleAction.EMERGENCY:
            supervisor.send_emergency_stop()
        else:
            supervisor.send_arming_request(order.act == VehicleAction.ARM)

    def stop_motors(self) -> None:
        """Send an emergency stop."""
        self.send(VehicleRequest(VehicleAction.EMERGENCY))

    def send_pose(self, position_world: Sequence[float], quaternion_xyzw: Sequence[float]) -> None:
        """Send a pose for the estimator of the vehicle."""
        if self._craft is not None and self._craft.link is not None:
            self._craft.loc.send_extpose(position_world, quaternion_xyzw)

    def close(self) -> None:
        """End the connection without a last set-point; waits some seconds at most."""
        craft, self._craft = self._craft, None
        if craft is None:
            return
        closing = threading.Thread(target=_end, args=(craft,), daemon=True)
        closing.start()
        closing.join(_CLOSE_WITHIN_S)

    def _begin(
        self, crazyflie: Any, hear: Callable[[float], None], lose: Callable[[str], None], say: Callable[[str], None]
    ) -> None:
        self._connected.clear()
        self._progress_s = time.monotonic()
        craft = crazyflie.Crazyflie()
        self._craft = craft

        def on_failure(_: str, text: str) -> None:
            self._failed = _last_line(text)
            self._connected.set()

        def on_connected(_: str) -> None:
            self._connected.set()

        def on_end(_: str, text: str) -> None:
            if self._craft is craft:
                self.is_lost = True
                lose(_last_line(text))

        def on_packet(packet: Any) -> None:
            now_s = time.monotonic()
            if packet.port != _LINK_PORT:  # echoes also arrive while the tables stall
                self._progress_s = now_s
            hear(now_s)

        craft.connection_failed.add_callback(on_failure)
        craft.connection_lost.add_callback(on_end)
        craft.fully_connected.add_callback(on_connected)
        craft.packet_received.add_callback(on_packet)
        craft.console.receivedChar.add_callback(say)
        craft.add_header_callback(self._on_echo, _LINK_PORT, _ECHO)
        craft.open_link(self._uri)

    def _on_echo(self, packet: Any) -> None:
        """Take the echo of a ping, which `cflib` sends ten times a second with the time of day."""
        if len(packet.data) == _PING.size:
            trip_s = time.time() - _PING.unpack(bytes(packet.data))[1]
            if trip_s >= 0:
                self.clock.hear_trip(trip_s, time.monotonic())


def _cflib() -> Any:
    """Return `cflib.crazyflie`, with all drivers initialised.

    Raises:
        RadioError: `cflib` is not installed.
    """
    try:
        crtp, crazyflie = (importlib.import_module(f"cflib.{name}") for name in ("crtp", "crazyflie"))
    except ImportError as error:
        raise RadioError(
            f"a link by radio needs cflib, which is not installed ({error}); run pip install 'testudo[crazyflie]'"
        ) from error
    logging.getLogger("cflib").setLevel(logging.CRITICAL)  # its messages also arrive by callbacks
    if not crtp.CLASSES:  # a second call would add them again
        crtp.init_drivers()
    return crazyflie


def _end(craft: Any) -> None:
    """Close the driver first: without it, `close_link` sends no set-point of zero thrust."""
    link, craft.link = craft.link, None
    with contextlib.suppress(Exception):  # a broken driver may raise anything
        if link is not None:
            link.close()
    with contextlib.suppress(Exception):
        craft.close_link()


def _last_line(text: str) -> str:
    """Return the last line that is not empty: `cflib` gives whole tracebacks."""
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
