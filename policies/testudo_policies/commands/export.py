"""`testudo export`: writes one verified policy.onnx that contains its contract."""

import json as json_format
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from testudo_deploy.contract.contract import Contract
from testudo_hardware.errors import TestudoError
from testudo_policies.commands.json_output import check_output, write_output
from testudo_policies.evaluation.evaluation import Evaluation
from testudo_policies.exporting.onnx_export import ExportReport
from testudo_policies.exporting.packaging import package_policy, unavailable_signals, write_fleet
from testudo_policies.learning.builder import build
from testudo_policies.learning.checkpoints import load_config
from testudo_policies.learning.training_run import load_parameters
from testudo_sim.devices import devices


def export(
    run: Annotated[Path, tyro.conf.Positional],
    *,
    out: Path | None = None,
    fleet: Path | None = None,
    seed: int = 0,
    json: Path | None = None,
) -> None:
    """Export a training run as one verified policy.onnx that contains its contract.

    The file is written only if the graph equals the trained policy on more than 10,000 inputs and along
    500-step closed loops. If goals are the task's only signals, a fleet file with the policy's hash is written as well.

    Example:
        testudo export runs/mine
        testudo export runs/mine --out policy.onnx --fleet fleet.yaml

    Args:
        run: folder of a training run.
        out: file to write; default: policy.onnx in the run folder.
        fleet: fleet file to write; default: fleet.yaml in the folder of the policy.
        seed: seed of the starts and goals in the fleet file.
        json: file for the results.
    """
    console = Console()
    check_output(json)
    console.print(devices().text)
    components = build(load_config(run))
    target = out or run / "policy.onnx"
    with console.status("converting and comparing with JAX"):
        report = package_policy(components, load_parameters(components, run), target, saved_evaluations(run))
        missing = unavailable_signals(components)
        fleet_path = None
        if not missing:
            fleet_path = write_fleet(components, report, fleet or target.with_name("fleet.yaml"), seed)
    console.print(export_table(report))
    write_output(json, export_numbers(report), console)
    if fleet_path is None:
        console.print(f"no fleet file: the policy reads {' and '.join(missing)}, which no ROS 2 topic provides")
        console.print(f"next: testudo inspect {target}   testudo evaluate {target} --physics mjx")
    else:
        console.print(f"next: testudo inspect {target}   testudo up --policy {target} --fleet {fleet_path}")


def saved_evaluations(run: Path) -> list[Evaluation]:
    """Return the evaluations that `testudo evaluate --json` left as evaluation.json in a run folder.

    Raises:
        TestudoError: the file has other contents.
    """
    path = run / "evaluation.json"
    if not path.is_file():
        return []
    try:
        return [Evaluation.from_dict(item) for item in json_format.loads(path.read_text(encoding="utf-8"))]
    except (ValueError, TypeError, AttributeError) as error:
        raise TestudoError(
            f"{path}: expected the output of `testudo evaluate --json`: {error}; evaluate again"
        ) from error


def export_numbers(report: ExportReport) -> dict[str, object]:
    """Return the results of an export, JSON-ready."""
    return {
        "path": str(report.path),
        "sha256": report.sha256,
        "opset": report.opset,
        "nodes": report.nodes,
        "size_bytes": report.size_bytes,
        "parity": report.parity.to_dict(),
    }


def export_table(report: ExportReport) -> Table:
    """Return the table of an artefact and of its deviation from the JAX function."""
    contract: Contract = report.contract
    parity = report.parity
    table = Table("artefact", "value", title=str(report.path))
    rows = {
        "sha256": report.sha256,
        "size": f"{report.size_bytes:,} bytes, {report.nodes} nodes, opset {report.opset}",
        "for": f"{contract.scenario}, {contract.robot}, memory {contract.hidden_size}",
        "inputs compared": f"{parity.inputs:,}, {parity.slots[0]} to {parity.slots[-1]} neighbours",
        "largest deviation": f"{parity.max_error:.2e} (bound {parity.tolerance:.0e})",
        "closed loops": f"{parity.loops} of {parity.loop_steps} steps: {parity.teacher_forced_error:.2e} "
        f"teacher-forced, {parity.free_running_drift:.2e} free-running",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table
