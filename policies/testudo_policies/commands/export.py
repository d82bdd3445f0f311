"""`testudo export`: writes one verified policy.onnx that contains its contract, or one script for the Robotarium."""

import json as json_format
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.errors import TestudoError
from testudo_policies.commands.json_output import check_output, write_output
from testudo_policies.evaluation.evaluation import Evaluation
from testudo_policies.exporting.archive import ARCHIVE_FILE, package_archive, updates_of
from testudo_policies.exporting.onnx_export import ExportReport
from testudo_policies.exporting.packaging import package_policy, write_fleet
from testudo_policies.exporting.robotarium_script import draw_episode, write_script
from testudo_policies.learning.builder import TrainingComponents, build
from testudo_policies.learning.checkpoints import load_config
from testudo_policies.learning.training_run import load_parameters
from testudo_policies.train_config import TrainConfig
from testudo_sim.devices import devices


def export(
    run: Annotated[Path, tyro.conf.Positional],
    *,
    out: Path | None = None,
    target: Literal["robots", "robotarium"] = "robots",
    fleet: Path | None = None,
    seed: int = 0,
    json: Path | None = None,
) -> None:
    """Export a training run as one verified policy.onnx that contains its contract.

    The file is written only if the graph equals the trained policy on more than 10,000 inputs and along
    500-step closed loops. A fleet file with the policy's hash is written as well, with the start of the task if that is
    more than goals, and with the bodies that the robots push.

    Of a run with several scenarios, which share a trunk, one archive is written with the policy of each, proven by
    itself: policies.zip/foraging.onnx is a policy file for every verb. Its fleet file is fleet_foraging.yaml.

    For the Robotarium testbed one Python file is written that needs NumPy alone: policy, tracking law and shield
    (layer 1), with the starts and goals of one episode.

    Example:
        testudo export runs/mine
        testudo export runs/mine --out policy.onnx --fleet fleet.yaml
        testudo export runs/two     (several scenarios: policies.zip)
        testudo export runs/mine --target robotarium --out robotarium.py --seed 3

    Args:
        run: folder of a training run.
        out: file to write; default: policy.onnx, policies.zip or robotarium.py in the run folder.
        target: `robots`: a policy file for robots under ROS 2; `robotarium`: a script to upload to that testbed.
        fleet: fleet file to write; default: fleet.yaml in the folder of the policy.
        seed: seed of the starts and goals in the fleet file or the script.
        json: file for the results.
    """
    console = Console()
    check_output(json)
    console.print(devices().text)
    config = load_config(run)
    if len(config.scenarios) > 1 and target == "robots":
        if fleet is not None:
            raise TestudoError("--fleet: found it for several scenarios, each of which has a fleet file; remove it")
        _export_archive(config, run, out or run / ARCHIVE_FILE, seed, json, console)
        return
    components = build(config)
    if target == "robotarium":
        if fleet is not None:
            raise TestudoError("--fleet: found with --target robotarium, which has no fleet file; remove the option")
        _export_script(components, run, out or run / "robotarium.py", seed, json, console)
        return
    path = out or run / "policy.onnx"
    with console.status("converting and comparing with JAX"):
        parameters, evaluations = load_parameters(components, run), saved_evaluations(run)
        report = package_policy(components, parameters, path, evaluations, updates_of(components.config, run))
        fleet_path = write_fleet(components, report, fleet or path.with_name("fleet.yaml"), seed)
    console.print(export_table(report))
    write_output(json, export_numbers(report), console)
    console.print(f"next: testudo inspect {path}   testudo up --policy {path} --fleet {fleet_path}")


def _export_archive(config: TrainConfig, run: Path, path: Path, seed: int, json: Path | None, console: Console) -> None:
    """Write the policies of all scenarios of a shared trunk, each proven as any other, into one archive."""
    reports = dict[str, ExportReport]()
    with console.status("converting and comparing with JAX"):
        evaluations = {name: saved_evaluations(run / name) for name in config.scenarios}
        for report in package_archive(config, run, path, evaluations, seed):
            console.print(export_table(report))
            reports[report.contract.scenario] = report
    write_output(json, {name: export_numbers(report) for name, report in reports.items()}, console)
    first = next(iter(reports.values())).path
    console.print(f"next: testudo inspect {first}   testudo up --policy {first}")


def _export_script(
    components: TrainingComponents, run: Path, path: Path, seed: int, json: Path | None, console: Console
) -> None:
    """Write the script for the Robotarium from a policy file that is proven as any other, and not kept."""
    episode = draw_episode(components, seed)
    with (
        console.status("converting, comparing with JAX and with the script"),
        tempfile.TemporaryDirectory() as folder,
    ):
        policy = Path(folder) / "policy.onnx"
        proven = package_policy(components, load_parameters(components, run), policy, saved_evaluations(run))
        report = write_script(PolicyArtefact.load(policy), episode, path)
    table = Table("script", "value", title=str(path))
    table.add_row("size", f"{report.size_bytes:,} bytes")
    table.add_row("for", f"{components.config.scenario}, {report.robots} robots, {episode.duration_s:g} s")
    table.add_row("policy file", f"{proven.sha256}, deviates from JAX by {proven.parity.max_error:.2e}")
    table.add_row("script deviates from it", f"{report.deviation:.2e} on {report.inputs} inputs")
    console.print(table)
    numbers = {"path": str(path), "robots": report.robots, "size_bytes": report.size_bytes, "inputs": report.inputs}
    numbers |= {"deviation": report.deviation, "policy_sha256": proven.sha256, "parity": proven.parity.to_dict()}
    write_output(json, numbers, console)
    console.print(f"next: python {path}   in the testbed's Python simulator, then upload the file")


def saved_evaluations(run: Path) -> list[Evaluation]:
    """Return the evaluations that `testudo evaluate --json` left as evaluation.json in a run folder, of what it ran.

    Raises:
        TestudoError: the file has other contents.
    """
    path = run / "evaluation.json"
    if not path.is_file():
        return []
    try:
        found = [Evaluation.from_dict(item) for item in json_format.loads(path.read_text(encoding="utf-8"))]
        return [evaluation for evaluation in found if not evaluation.absent]
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
