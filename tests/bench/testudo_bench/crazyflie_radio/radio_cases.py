"""The cases of `testudo bench radio`: time-outs and losses, flown in real time by the unmodified `cflib`."""

import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from testudo_crazyflie.cflib_flight import CflibFlight, fly_with_cflib
from testudo_crazyflie.firmware import crtp_packets
from testudo_crazyflie.firmware.crtp_packets import Packet, encode
from testudo_crazyflie.firmware.firmware_supervisor import State
from testudo_crazyflie.simulated_crazyflie import MELLINGER, SimulatedCrazyflieSettings
from testudo_crazyflie.udp_server import CrazyflieServer, RadioConditions
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.crazyflie.radio_link import CrazyflieRadio
from testudo_hardware.links.crazyflie.vehicle_messages import LinkPhase
from testudo_hardware.links.flight_link import FlightAct

EAST = (0.5, 0.0, 0.0)
_FAST = (1.0, 0.0, 0.0)


@dataclass(frozen=True)
class Row:
    """Result of one case."""

    bar: str
    holds: bool
    found: str
    said: str = ""  # Message of the link
    values: dict[str, Any] = field(default_factory=dict)


def streams(duration_s: float) -> Row:
    """Log at 100 Hz and send set-points at 50 Hz."""
    with fly_with_cflib() as flight:
        flight.climb()
        before, begin_s = flight.set_points, time.monotonic()
        turn = 0
        while time.monotonic() - begin_s < duration_s:
            flight.command = ((0.3, 0.0, 0.0), (0.0, 0.3, 0.0), (-0.3, 0.0, 0.0), (0.0, -0.3, 0.0))[turn % 4]
            turn += 1
            flight.wait(lambda: False, min(1.0, duration_s), every_s=0.02)
        passed_s = time.monotonic() - begin_s
        log_hz, sent_hz = len(flight.stamps) / passed_s, (flight.set_points - before) / passed_s
        stamps = np.array([stamp for stamp, _ in flight.stamps])
        gap_s, codes = float(np.diff(stamps).max()), flight.codes - {""}
    values = {
        "log_hz": log_hz,
        "set_points_hz": sent_hz,
        "longest_gap_s": gap_s,
        "duration_s": passed_s,
        "wrong": sorted(codes),
        "longest_stall_s": flight.stall_s,
    }
    found = (
        f"{log_hz:.1f} Hz, {sent_hz:.1f} Hz in {passed_s:.0f} s; longest gap {1000 * gap_s:.0f} ms; this process "
        f"stood still for {1000 * flight.stall_s:.0f} ms at most"
    )
    return Row("≥ 99 Hz and ≥ 49 Hz, nothing wrong", log_hz >= 99 and sent_hz >= 49 and not codes, found, "", values)


def commands_end() -> Row:
    """The commander stops sending."""
    with fly_with_cflib() as flight:
        flight.climb().command = EAST
        flight.wait(lambda: False, 1.0)
        flight.command = None
        report_s = flight.wait(lambda: flight.radio.standing.code == "commands_silent", 1.0)
        flight.wait(lambda: False, 1.5)
        speed, said = flight.speed_m_s, flight.radio.standing.sentence
        landed = flight.lands()
        levelled = State.LEVEL_OUT in flight.states
    holds = report_s is not None and report_s < 0.2 and speed < 0.05 and landed and not levelled
    return Row(
        "standstill within 0.2 s, then a landing",
        holds,
        f"reported after {_ms(report_s)}, {speed:.2f} m/s after 1.5 s, landed: {_yes(landed)}",
        said,
    )


def radio_ends(*, process: bool) -> Row:
    """No packet reaches the vehicle: the radio is out of reach, or its process was stopped."""
    with fly_with_cflib() as flight:
        flight.climb().command = _FAST
        flight.wait(lambda: flight.speed_m_s > 0.95, 6.0)
        flight.wait(lambda: False, 0.3)
        begin, start_s = flight.position, time.monotonic()
        if process:
            flight.radio._ends.set()
        else:
            flight.server.set_air(RadioConditions(silent=True))
        report_s = None if process else flight.wait(lambda: bool(flight.radio.standing.code), 1.0)
        flight.wait(lambda: State.LEVEL_OUT in flight.states, 1.0)
        level_s = time.monotonic() - start_s
        flight.wait(lambda: not flight.motors_on, 3.0)
        cut_s, drift_m = time.monotonic() - start_s, float(np.linalg.norm((flight.position - begin)[:2]))
        said = "" if process else flight.radio.standing.sentence
        locked = flight.wait(lambda: State.LOCKED in flight.states, 1.0) is not None
    reported = process or (report_s is not None and report_s < 0.6)
    holds = reported and 0.45 < level_s < 0.65 and 1.95 < cut_s < 2.2 and locked
    return Row(
        "level at 0.5 s, motors off at 2 s",
        holds,
        f"level at {level_s:.2f} s, off at {cut_s:.2f} s; {drift_m:.2f} m from 1 m/s",
        said,
        {"level_s": level_s, "cut_s": cut_s, "drift_m": drift_m, "report_s": report_s},
    )


def socket_closes() -> Row:
    """The radio's driver reports an error."""
    with fly_with_cflib() as flight:
        flight.climb().command = EAST
        flight.server.__exit__()
        report_s = flight.wait(lambda: flight.radio.standing.code in ("lost", "radio_silent"), 3.0)
        said = flight.radio.standing.sentence
    return Row("reported within 1 s", report_s is not None and report_s < 1.0, f"reported after {_ms(report_s)}", said)


def block_ends() -> Row:
    """The vehicle loses the log block, as when another client resets it."""
    with fly_with_cflib() as flight:
        flight.climb().command = EAST
        flight.wait(lambda: False, 1.0)
        with flight.server.craft() as craft:
            craft.logs.reset()
        report_s = flight.wait(lambda: flight.radio.standing.code == "block_silent", 1.0)
        flight.wait(lambda: False, 0.6)
        speed, said = flight.speed_m_s, flight.radio.standing.sentence
        landed = flight.lands()
        fell = State.FREE_FALL in flight.states or State.LOCKED in flight.states
    holds = report_s is not None and report_s < 0.35 and speed < 0.2 and landed and not fell
    return Row(
        "standstill within 0.3 s, then a landing without log data",
        holds,
        f"reported after {_ms(report_s)}, {speed:.2f} m/s 0.6 s later, landed: {_yes(landed)}",
        said,
    )


def loses(share: float, *, repeats: bool, duration_s: float = 8.0) -> Row:
    """A share of all transmissions is lost; the radio repeats them or not."""
    with fly_with_cflib(seed=11) as flight:
        flight.climb()
        flight.server.set_air(RadioConditions(share, 0.002, repeats=repeats))
        flight.command = EAST
        before, begin, start_s = flight.set_points, flight.position, time.monotonic()
        flight.wait(lambda: False, duration_s)
        passed_s = time.monotonic() - start_s
        times = np.array(flight.stamps)
        log_hz, sent_hz = len(times) / passed_s, (flight.set_points - before) / passed_s
        oldest_s = float(np.max(times[1:, 1] - times[:-1, 0]))
        way_m = float((flight.position - begin)[0])
        codes, levelled = flight.codes - {""}, State.LEVEL_OUT in flight.states
        flight.ask(FlightAct.LAND, 0.04, 2.5)
        landed = flight.lands()
        fell = State.FREE_FALL in flight.states
    holds = not levelled and landed and not fell and way_m > 0.7 * 0.5 * duration_s
    values = {"log_hz": log_hz, "set_points_hz": sent_hz, "oldest_s": oldest_s, "way_m": way_m, "wrong": sorted(codes)}
    return Row(
        "flies on, never levels, lands",
        holds,
        f"{log_hz:.0f} Hz logged, {sent_hz:.0f} Hz arrive, oldest pose {1000 * oldest_s:.0f} ms, landed: "
        f"{_yes(landed)}",
        ", ".join(sorted(codes)),
        values,
    )


def late(latency_s: float) -> Row:
    """All packets have a latency in each direction; reported ages must not be too small."""
    with fly_with_cflib(RadioConditions(latency_s=latency_s)) as flight:
        flight.climb().command = EAST
        flight.wait(lambda: False, 3.0)
        ages = [received - stamp for stamp, received in flight.stamps]
        codes = flight.codes - {""}
    young = min(ages)
    return Row(
        "no age below the latency, nothing wrong",
        young > latency_s - 0.003 and not codes,
        f"ages {1000 * young:.0f} to {1000 * max(ages):.0f} ms",
        "",
        {"least_age_s": young},
    )


def too_late(latency_s: float) -> Row:
    """The latency is too large to fly."""
    said = _refused(lambda: fly_with_cflib(RadioConditions(latency_s=latency_s)))
    return Row("refused before the flight", "round trip" in said, _yes(bool(said)), said)


def loses_too_much() -> Row:
    """Too many log packets are lost for the rate that the shield assumes."""

    def worsen(server: CrazyflieServer) -> None:
        for _ in range(500):
            with server.craft() as craft:
                if craft.logs.running:
                    break
            time.sleep(0.01)
        server.set_air(RadioConditions(0.4))

    def prepare(server: CrazyflieServer) -> None:
        threading.Thread(target=worsen, args=(server,), daemon=True).start()

    said = _refused(lambda: fly_with_cflib(prepare=prepare))
    return Row("refused before the flight", "log block" in said, _yes(bool(said)), said)


def wrong_controller() -> Row:
    """The vehicle uses the Mellinger controller, which does not follow velocity commands."""

    def prepare(server: CrazyflieServer) -> None:
        with server.craft() as craft:
            craft.parameters["stabilizer.controller"] = MELLINGER

    said = _refused(lambda: fly_with_cflib(prepare=prepare))
    return Row("refused before the flight", "stabilizer.controller" in said, _yes(bool(said)), said)


def no_vehicle() -> Row:
    """No vehicle answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        radio = CrazyflieRadio(
            "cf1", SimulatedCrazyflieSettings.create().spec, f"udp://127.0.0.1:{taken.getsockname()[1]}"
        )
        begin_s = time.monotonic()
        said = ""
        try:
            radio.open(within_s=3.0)
        except TestudoError as error:
            said = str(error)
        passed_s = time.monotonic() - begin_s
    return Row("reported within 4 s", "did not answer" in said and passed_s < 4.5, f"{passed_s:.1f} s", said)


def battery_is_empty() -> Row:
    """The battery voltage drops in flight."""
    with fly_with_cflib() as flight:
        flight.climb().command = EAST
        with flight.server.craft() as craft:
            craft.vehicle.charge_v = 3.1
        report_s = flight.wait(lambda: flight.phase == LinkPhase.LANDING, 4.0)
        said = flight.radio.standing.sentence
        landed = flight.lands()
        flight.wait(lambda: flight.phase == LinkPhase.GROUND, 3.0)
        again = flight.ask(FlightAct.TAKE_OFF)
    holds = report_s is not None and report_s < 2.3 and landed and "battery" in again
    return Row(
        "lands after 2 s, no second take-off",
        holds,
        f"lands after {_ms(report_s)}, landed: {_yes(landed)}, then {again.partition(': ')[2]}",
        said,
    )


def tumbles() -> Row:
    """The vehicle is hit and tumbles."""
    with fly_with_cflib() as flight:
        flight.climb().command = EAST
        with flight.server.craft() as craft:
            craft.vehicle.upside_down = True
        report_s = flight.wait(lambda: flight.phase == LinkPhase.STOPPED, 2.0)
        flight.wait(lambda: not flight.motors_on and flight.height_m < 0.01, 2.0)
        said, again = flight.radio.standing.sentence, flight.ask(FlightAct.ARM)
        off = not flight.motors_on
    holds = report_s is not None and report_s < 0.5 and off and "arming refused" in again
    return Row(
        "motors off, reported, no arming", holds, f"reported after {_ms(report_s)}, motors off: {_yes(off)}", said
    )


def is_locked() -> Row:
    """The vehicle is locked after its motors were cut."""

    def prepare(server: CrazyflieServer) -> None:
        with server.craft() as craft:
            craft.supervisor.emergency = True

    with fly_with_cflib(prepare=prepare) as flight:
        flight.wait(lambda: flight.radio.standing.code == "locked", 2.0)
        said = flight.ask(FlightAct.TAKE_OFF)
    return Row("take-off refused", "locked" in said, _yes(bool(said)), said)


def arming_is_refused() -> Row:
    """A vehicle that needs arming lies on its back."""

    def prepare(server: CrazyflieServer) -> None:
        with server.craft() as craft:
            craft.vehicle.upside_down = True

    with fly_with_cflib(auto_arm=False, prepare=prepare) as flight:
        flight.wait(lambda: flight.radio.standing.code == "tumbled", 2.0)
        said, unarmed = flight.ask(FlightAct.ARM), flight.ask(FlightAct.TAKE_OFF)
    holds = "arming refused" in said and "take-off refused" in unarmed
    return Row("arming and take-off refused", holds, _yes(holds), said)


def second_commander() -> Row:
    """Another sender commands the same vehicle at 50 Hz."""
    with fly_with_cflib() as flight, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        flight.climb().command = EAST
        host, _, port = flight.server.uri.removeprefix("udp://").partition(":")
        foreign = encode(Packet(crtp_packets.GENERIC, 0, struct.pack("<Bffff", 8, 0.0, 0.4, 0.0, 0.0)))
        ends = threading.Event()

        def send() -> None:
            while not ends.wait(0.02):
                other.sendto(foreign, (host, int(port)))

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        report_s = flight.wait(lambda: flight.radio.standing.code == "second_commander", 2.0)
        said = flight.radio.standing.sentence
        ends.set()
        thread.join()
        end_s = flight.wait(lambda: not flight.radio.standing.code, 3.0)
    holds = report_s is not None and report_s < 0.5 and end_s is not None
    return Row("reported within 0.5 s, held", holds, f"reported after {_ms(report_s)}, over after {_ms(end_s)}", said)


def emergency(share: float) -> Row:
    """Motors off immediately, despite losses."""
    with fly_with_cflib(seed=5) as flight:
        flight.climb().command = EAST
        flight.server.set_air(RadioConditions(share))
        flight.ask(FlightAct.EMERGENCY)
        off_s = flight.wait(lambda: not flight.motors_on, 3.0)
        locked = flight.wait(lambda: State.LOCKED in flight.states, 2.0) is not None
        said = flight.radio.standing.sentence
    bar_s = 0.1 if share == 0 else 1.0
    return Row(
        f"motors off within {bar_s:g} s",
        off_s is not None and off_s < bar_s and locked,
        f"off after {_ms(off_s)}",
        said,
        {"off_s": off_s},
    )


def closes_in_flight() -> Row:
    """The link is closed in flight."""
    with fly_with_cflib() as flight:
        flight.climb()
        flight.command = None
        begin_s = time.monotonic()
        lowest: list[float] = []
        closer = threading.Thread(target=flight.radio.close)
        closer.start()
        while closer.is_alive():
            with flight.server.craft() as craft:
                lowest.append(float(craft.vehicle.velocity[2]))
            time.sleep(0.01)
        passed_s, landed = time.monotonic() - begin_s, flight.lands(4.0)
    holds = landed and min(lowest) > -1.5
    return Row("lands softly", holds, f"landed: {_yes(landed)} in {passed_s:.1f} s, {min(lowest):.2f} m/s at most")


def cflib_closes_in_flight() -> Row:
    """Negative control: `close_link` of `cflib` ends with zero thrust."""
    with fly_with_cflib() as flight:
        flight.climb()
        flight.command = None
        flight.radio._ends.set()
        flight.radio._client._craft.close_link()
        off_s = flight.wait(lambda: not flight.motors_on, 1.0)
    return Row("falls: the control must fail", off_s is not None and off_s < 0.2, f"motors off after {_ms(off_s)}")


def _refused(start: Callable[[], Any]) -> str:
    """Return why a flight is refused before it starts; empty if it is not refused."""
    try:
        with start() as flight:
            return "" if isinstance(flight, CflibFlight) else "?"
    except TestudoError as error:
        return str(error)


def _ms(time_s: float | None) -> str:
    return "never" if time_s is None else f"{1000 * time_s:.0f} ms"


def _yes(found: bool) -> str:
    return "yes" if found else "no"
