"""Rows 15 to 18: what is wrong in the files is refused at the start, in one line."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import onnx

from testudo_bench.fault_matrix.harness.fault_case import FaultFinding, FaultRow
from testudo_bench.fault_matrix.harness.fleet_harness import write_fleet
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.launch.child_processes import FleetProcesses
from testudo_deploy.launch.launch_plan import plan, ros_arguments
from testudo_hardware.spec import load_robot
from testudo_nodes.common.node_runner import REFUSED
from testudo_sim.go_to_goal import write_go_to_goal_policy

_PATIENCE_S = 60.0


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
    """Change the model and let the fleet file name its new hash: only what is inside can refuse it."""
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
            raise AssertionError(f"{file} holds no {before!r} that could be spoiled")
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
    """Opset and IR that no runtime knows yet."""
    return _all(folder, {"newer": (_newer, ("99",))})


def other_robot(folder: Path) -> FaultFinding:
    """The policy of another robot."""
    return _all(folder, {"turtlebot4": (_other_robot, ("turtlebot4", "fault_bed"))})


def bad_files(folder: Path) -> FaultFinding:
    """Unknown key, wrong type, NaN, wrong unit, a limit of zero, an interval upside down."""
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


ROWS = (
    FaultRow(15, "policy file of another hash, truncated, empty", "refused", None, wrong_hash, bed="none"),
    FaultRow(16, "opset and IR newer than the runtime", "refused, both versions named", None, newer_format, bed="none"),
    FaultRow(17, "policy of another robot", "refused, both named", None, other_robot, bed="none"),
    FaultRow(
        18,
        "robot or fleet file with a bad key, unit, type or number",
        "refused, key and reason",
        None,
        bad_files,
        bed="none",
    ),
)
