"""Rows 15 to 18 and 30 to 32: invalid files are refused in one line; damaged recordings and a full disk."""

import hashlib
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from mcap.opcode import Opcode
from mcap.stream_reader import MAGIC_SIZE

from testudo_bench.fault_matrix.harness.fault_case import FaultFinding, FaultRow
from testudo_bench.fault_matrix.harness.fleet_harness import FleetHarness, HarnessError, write_fleet
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan, ros_arguments
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_nodes.common.node_runner import REFUSED
from testudo_runs.run_reader import read_run
from testudo_sim.go_to_goal import write_go_to_goal_policy

_PATIENCE_S = 60.0


_NO_ROBOT = "no robot takes part: as for our own"


def _refused(folder: Path, spoil: Callable[[Path], None], *expected: str) -> FaultFinding:
    """Spoil the files of a fleet and return whether its policy node refuses them and names what is expected."""
    folder.mkdir(parents=True)
    process = next(one for one in plan(write_fleet(folder), run_folder=None) if one.name == "policy")
    spoil(folder)
    begin_s = time.monotonic()
    words = [sys.executable, "-m", process.module, *ros_arguments(process)]
    environment = FleetProcesses([process]).environment()
    try:
        result = subprocess.run(
            words,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return FaultFinding(False, None, f"the node still runs after {_PATIENCE_S:g} s")
    lines = [line for line in result.stderr.strip().splitlines() if line]
    said = lines[-1] if lines else ""
    missing = [text for text in expected if text not in said]
    sound = result.returncode == REFUSED and len(lines) == 1 and said.startswith("refused: ") and not missing
    return FaultFinding(sound, time.monotonic() - begin_s, "" if sound else f"status {result.returncode}: {lines[-3:]}")


def _all(folder: Path, cases: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]]) -> FaultFinding:
    for name, (spoil, expected) in cases.items():
        found = _refused(folder / name, spoil, *expected)
        if not found.passed:
            return FaultFinding(False, found.time_s, f"{name}: {found.note}")
    return FaultFinding(True, None, f"{len(cases)} cases")


def _policy(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        file = folder / "policy.onnx"
        file.write_bytes(change(file.read_bytes()))

    return spoil


def _pinned(folder: Path, edit: Callable[[onnx.ModelProto], None]) -> None:
    """Change the model and its hash in the fleet file, so that only its contents can be refused."""
    file = folder / "policy.onnx"
    before = PolicyArtefact.load(file).sha256
    model = onnx.load(file)
    edit(model)
    onnx.save(model, file)
    after = hashlib.sha256(file.read_bytes()).hexdigest()
    fleet = folder / "fleet.yaml"
    fleet.write_text(fleet.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")


def _newer(folder: Path) -> None:
    def edit(model: onnx.ModelProto) -> None:
        model.opset_import[0].version, model.ir_version = 99, 99

    _pinned(folder, edit)


def _other_robot(folder: Path) -> None:
    before = PolicyArtefact.load(folder / "policy.onnx").sha256
    write_go_to_goal_policy(folder / "policy.onnx", load_robot("turtlebot4"))
    after = PolicyArtefact.load(folder / "policy.onnx").sha256
    fleet = folder / "fleet.yaml"
    fleet.write_text(fleet.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")


def _text(file: str, before: str, after: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        text = (folder / file).read_text(encoding="utf-8")
        if before not in text:
            raise AssertionError(f"{file} found no {before!r} to replace")
        (folder / file).write_text(text.replace(before, after, 1), encoding="utf-8")

    return spoil


def wrong_hash(folder: Path) -> FaultFinding:
    """A flipped byte, a truncated file, an empty one."""
    return _all(
        folder,
        {
            "flipped": (_policy(lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]), ("sha256",)),
            "truncated": (_policy(lambda data: data[: len(data) // 2]), ("sha256",)),
            "empty": (_policy(lambda _: b""), ("policy.onnx",)),
        },
    )


def newer_format(folder: Path) -> FaultFinding:
    """Opset and IR newer than any runtime."""
    return _all(folder, {"newer": (_newer, ("99",))})


def other_robot(folder: Path) -> FaultFinding:
    """The policy of another robot."""
    return _all(folder, {"turtlebot4": (_other_robot, ("turtlebot4", "fault_bed"))})


def bad_files(folder: Path) -> FaultFinding:
    """Unknown key, wrong type, NaN, wrong unit, a limit of zero, a reversed interval."""
    accel = "acceleration = { value = 5.0"
    return _all(
        folder,
        {
            "unknown_key": (_text("fleet.yaml", "robots:", "speed: 3\nrobots:"), ("fleet.yaml", "speed")),
            "wrong_type": (_text("fleet.yaml", "initial_yaw:", "initial_yaw: left #"), ("fleet.yaml", "initial_yaw")),
            "nan": (_text("fleet.yaml", "initial_yaw:", "initial_yaw: .nan #"), ("fleet.yaml", "initial_yaw")),
            "unit": (_text("robot.toml", 'unit = "m/s^2"', 'unit = "g"'), ("robot.toml", "acceleration", "m/s^2")),
            "zero": (_text("robot.toml", accel, "acceleration = { value = 0.0"), ("robot.toml", "acceleration")),
            "interval": (
                _text("robot.toml", "interval = [0.064, 0.096]", "interval = [0.096, 0.064]"),
                ("robot.toml", "velocity_lag"),
            ),
        },
    )


BAG = "run_0.mcap"
_WATCH_S = 3.0
_SLOWER = 1.5  # permitted random growth of the time between commands; a recorder that delays control causes far more


def _copy(run: Path, folder: Path) -> Path:
    shutil.copytree(run, folder)
    return folder


def _middle_chunk(data: bytes | bytearray) -> tuple[int, int]:
    """Return where the chunk that holds or follows the middle of an MCAP file begins and ends.

    A record is its opcode, its length as 8 bytes, and its content; the checksum of a chunk is over its messages, and
    the indices between chunks have none: a changed byte there has no effect.
    """
    begin = MAGIC_SIZE
    while begin < len(data):
        end = begin + 9 + int.from_bytes(data[begin + 1 : begin + 9], "little")
        if data[begin] == Opcode.CHUNK and end > len(data) // 2:
            return begin, end
        begin = end
    raise HarnessError("the recording has no chunk after its middle")


def _replay(folder: Path, *words: str) -> int:
    call = [sys.executable, "-m", "testudo_deploy.cli", "replay", str(folder), "--mode", "reinference", *words]
    result = subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)
    return -1 if "Traceback" in result.stderr else result.returncode


def damaged(run: Path) -> FaultFinding:
    """Cut short, a corrupt chunk, no metadata: the valid part is read, the loss reported, and the exit status not 0."""
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
    """A missing bag, a missing fleet file, and a bag with other data."""
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


def full_disk(harness: FleetHarness) -> FaultFinding | None:
    """The recorder cannot write: it reports one error and ends, and control is unaffected."""

    def between_s(since_s: float) -> float:
        times = np.diff([at_s for at_s, _ in harness.observer.robots["r0"].sent if at_s >= since_s])
        return float(np.percentile(times, 99))

    begin_s = time.monotonic()
    time.sleep(_WATCH_S)
    before_s, drove = between_s(begin_s), harness.observer.drives("r0", _WATCH_S)
    bag = harness.folder / "run" / BAG
    limit = bag.stat().st_size + 10_000
    harness.events()
    resource.prlimit(harness.processes.process_id("recorder"), resource.RLIMIT_FSIZE, (limit, limit))
    full_s = time.monotonic()
    harness.wait(lambda: harness.processes.exit_status("recorder") is not None, "the recorder does not end", 10.0)
    ended_s = time.monotonic() - full_s
    time.sleep(_WATCH_S)
    lines = [
        event.values["text"] for event in harness.events() if event.kind == "error_line" and event.process == "recorder"
    ]
    after_s = between_s(full_s)
    still_drives = harness.observer.drives("r0", _WATCH_S)
    if not drove or (not still_drives and harness.observer.codes_since("r0", full_s) - {""} == {"stale_pose"}):
        return None  # the machine stalled; if it stalls every time, the row fails
    sound = still_drives and len(lines) == 1 and after_s <= _SLOWER * before_s + harness.tick_s / 2
    return FaultFinding(
        sound,
        ended_s,
        f"p99 of the time between commands {1e3 * before_s:.0f} ms before, "
        f"{1e3 * after_s:.0f} ms after; {len(lines)} line of error",
    )


ROWS = (
    FaultRow(
        15,
        "policy file of another hash, truncated, empty",
        "refused",
        None,
        wrong_hash,
        fleet="none",
        not_emulated=_NO_ROBOT,
    ),
    FaultRow(
        16,
        "opset and IR newer than the runtime",
        "refused, versions named",
        None,
        newer_format,
        fleet="none",
        not_emulated=_NO_ROBOT,
    ),
    FaultRow(
        17, "policy of another robot", "refused, both named", None, other_robot, fleet="none", not_emulated=_NO_ROBOT
    ),
    FaultRow(
        18,
        "robot or fleet file with a bad key, unit, type or number",
        "refused, key and reason",
        None,
        bad_files,
        fleet="none",
        not_emulated=_NO_ROBOT,
    ),
    FaultRow(
        30,
        "recording truncated, chunk corrupt, no metadata",
        "valid part read, loss reported, status 1",
        None,
        damaged,
        fleet="run",
        not_emulated=_NO_ROBOT,
    ),
    FaultRow(31, "recording of nonsense", "one clear error", None, nonsense, fleet="run", not_emulated=_NO_ROBOT),
    FaultRow(32, "disk full while recording", "control unaffected, one error", 1.0, full_disk, fleet="recorded"),
)
