"""Rows 30 to 32: what is wrong with a recording is told, and never touches control."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from mcap.opcode import Opcode
from mcap.stream_reader import MAGIC_SIZE

from testudo_bench.fault_matrix.harness.fault_case import FaultFinding, FaultRow
from testudo_bench.fault_matrix.harness.fleet_harness import TestBed, TestBedError
from testudo_hardware.errors import TestudoError
from testudo_runs.run_reader import read_run

BAG = "run_0.mcap"
_WATCH_S = 3.0
_TICK_S = 0.02
_SLOWER = 1.5
"""The time from odometry to actuator may grow by chance; a recorder that held control up would show far more."""


def _copy(run: Path, folder: Path) -> Path:
    shutil.copytree(run, folder)
    return folder


def _middle_chunk(data: bytes) -> tuple[int, int]:
    """Return where the chunk that holds or follows the middle of an MCAP file begins and ends.

    A record is its opcode, its length as 8 bytes, and its content; the checksum of a chunk is over its messages, and
    the indices between chunks have none: a byte changed there costs nothing.
    """
    begin = MAGIC_SIZE
    while begin < len(data):
        end = begin + 9 + int.from_bytes(data[begin + 1 : begin + 9], "little")
        if data[begin] == Opcode.CHUNK and end > len(data) // 2:
            return begin, end
        begin = end
    raise TestBedError("the recording has no chunk behind its middle")


def _replay(folder: Path, *words: str) -> int:
    call = [sys.executable, "-m", "testudo_deploy.cli", "replay", str(folder), "--mode", "reinference", *words]
    result = subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)
    return -1 if "Traceback" in result.stderr else result.returncode


def damaged(run: Path) -> FaultFinding:
    """Cut short, a corrupt chunk, no metadata: the valid part is read, the loss told, and the exit status not 0."""
    whole, notes = read_run(run), []
    for name in ("cut", "chunk", "metadata"):
        folder = _copy(run, run.parent / f"{name}_{time.monotonic_ns()}")
        bag = folder / BAG
        data = bytearray(bag.read_bytes())
        if name == "cut":
            bag.write_bytes(data[: 2 * len(data) // 3])
        elif name == "chunk":
            middle = sum(_middle_chunk(data)) // 2
            data[middle : middle + 64] = bytes(64)
            bag.write_bytes(data)
        else:
            (folder / "metadata.yaml").unlink()
        part = read_run(folder)
        ticks = len(part.ticks["r0"])
        statuses = (_replay(folder), _replay(folder, "--allow-damage"))
        sound = 0 < ticks <= len(whole.ticks["r0"]) and statuses == (1, 0)
        if not sound or not part.warnings:
            notes.append(f"{name}: {ticks} ticks, status {statuses}, {part.warnings}")
    return FaultFinding(not notes, None, "; ".join(notes))


def nonsense(run: Path) -> FaultFinding:
    """A topic of another type, a missing topic, no run at all, and a process that began anew inside."""
    notes = []
    for name, spoil in {
        "no bag": lambda folder: (folder / BAG).unlink(),
        "no fleet": lambda folder: (folder / "fleet.yaml").unlink(),
        "other data": lambda folder: (folder / BAG).write_bytes(b"not a bag"),
    }.items():
        folder = _copy(run, run.parent / f"nonsense_{time.monotonic_ns()}")
        spoil(folder)
        try:
            read_run(folder)
            notes.append(f"{name}: was read")
        except TestudoError:
            status = _replay(folder)
            if status in (-1, 0):
                notes.append(f"{name}: replay ended with {status}")
    return FaultFinding(not notes, None, "; ".join(notes))


def full_disk(bed: TestBed) -> FaultFinding | None:
    """The recorder may write no more: it says so once and ends, and control goes on as before."""

    def between_s(since_s: float) -> float:
        times = np.diff([at_s for at_s, _ in bed.observer.robots["r0"].sent if at_s >= since_s])
        return float(np.percentile(times, 99))

    begin_s = time.monotonic()
    time.sleep(_WATCH_S)
    before_s, drove = between_s(begin_s), bed.observer.drives("r0", _WATCH_S)
    bag = bed.folder / "run" / BAG
    limit = bag.stat().st_size + 10_000
    bed.events()
    resource.prlimit(bed.processes.process_id("recorder"), resource.RLIMIT_FSIZE, (limit, limit))
    full_s = time.monotonic()
    bed.wait(lambda: bed.processes.exit_status("recorder") is not None, "the recorder lives on", 10.0)
    ended_s = time.monotonic() - full_s
    time.sleep(_WATCH_S)
    lines = [
        event.values["text"] for event in bed.events() if event.kind == "error_line" and event.process == "recorder"
    ]
    after_s = between_s(full_s)
    goes_on = bed.observer.drives("r0", _WATCH_S)
    if not drove or (not goes_on and bed.observer.codes_since("r0", full_s) - {""} == {"stale_pose"}):
        return None  # the machine stalls as it is; if it stalls every time, the row fails
    sound = goes_on and len(lines) == 1 and after_s <= _SLOWER * before_s + _TICK_S / 2
    return FaultFinding(
        sound,
        ended_s,
        f"p99 of the time between commands {1e3 * before_s:.0f} ms before, "
        f"{1e3 * after_s:.0f} ms after; {len(lines)} line of error",
    )


ROWS = (
    FaultRow(
        30,
        "recording truncated, chunk corrupt, no metadata",
        "valid part read, loss told, status 1",
        None,
        damaged,
        bed="run",
    ),
    FaultRow(31, "recording of nonsense", "one clear error", None, nonsense, bed="run"),
    FaultRow(32, "disk full while recording", "control unaffected, one error", 1.0, full_disk, bed="recorded"),
)
