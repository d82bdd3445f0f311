"""`testudo inspect`: checks a policy file or a run, and shows what is in it."""

import json as json_format
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import tyro
from rich.console import Console
from rich.table import Table

from testudo_deploy.admission.safety_contracts import Obligation, obligation
from testudo_deploy.cli import missing_requirements
from testudo_deploy.commands.report import Report, cell, facts, table
from testudo_deploy.contract.command_types import FORMS
from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.policy_archive import is_archive, policy_bytes
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.rules import COMMAND, MESSAGE, graph_outputs
from testudo_deploy.contract.shipped_policies import policy_file
from testudo_deploy.files.registered import entry_points
from testudo_deploy.shield.stop_tube import StopTubeParameters, stop_tube_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import parse_robot

GROUP = "testudo.inspectors"  # entry points that show recordings, which only the package testudo_runs can read
_POLICY = ".onnx"


def inspect(
    path: tyro.conf.Positional[Path],
    json: Path | None = None,
    *,
    map: str | None = None,  # noqa: A002 (the name of the option)
    pick: str | None = None,
    msg_path: tuple[Path, ...] = (),
) -> None:
    """Show the contents of a policy file or of a run.

    For a policy file: signals, timing, robot, shield, evaluation, hashes. For a run folder, and for logs and bags that
    are not imported yet: robots, topics, rates, gaps, clock problems, damage.

    Example:
        testudo inspect policy.onnx --json policy.json
        testudo inspect foraging     (a policy that ships)
        testudo inspect policies.zip/foraging.onnx     (one of an archive)
        testudo inspect run
        testudo inspect bag --msg-path our_msgs/msg

    Args:
        path: the policy file or the name of one that ships, the run folder, or the source of an import.
        json: also write the values to this file.
        map: mapping of logs or bags that are not imported yet.
        pick: the run to show, if the source holds several.
        msg_path: folders with .msg files, for bags without message definitions.
    """
    path = policy_file(path)
    if path.suffix != _POLICY and not path.exists():
        raise TestudoError(f"{path}: no such file or folder; expected a policy ({_POLICY}), a run, a bag or a log")
    if _is_policy(path):
        if map or pick or msg_path:
            raise TestudoError(f"{path}: --map, --pick and --msg-path are for recordings, not for a policy file")
        artefact_report(path).show(json)
        return
    points = {point.name: point for point in entry_points(group=GROUP)}
    missing = missing_requirements(points["recording"]) if "recording" in points else ["the package testudo_sim"]
    if missing:
        raise TestudoError(
            f"{path}: to show a recording, `testudo inspect` needs {', '.join(missing)}, which is not "
            "installed here: pip install 'testudo[train]'"
        )
    with Console(stderr=True).status("reading"):
        report = points["recording"].load()(path, map, pick, msg_path)
    report.show(json)


def _is_policy(path: Path) -> bool:
    """Return whether a path is a policy file: by its name, or by the first bytes of an ONNX file."""
    if path.suffix == _POLICY:
        return True
    if path.is_dir():
        return False
    if is_archive(path):  # the loader says which policies it holds
        return True
    try:
        with path.open("rb") as stream:
            head = stream.read(2)
    except OSError:
        return False
    return head[:1] == b"\x08" and head[1:] < b"\x20"


def artefact_report(path: Path) -> Report:
    """Load and check a policy file, and return the report on it.

    Raises:
        ArtefactError: the file cannot be used.
        ContractError: its contract is invalid.
    """
    artefact = PolicyArtefact.load(path)
    contract = artefact.contract
    opset = artefact.header.opsets.get("", 0)
    values = json_format.loads(contract.to_json())
    spec = parse_robot(contract.robot_spec, f"{path}: contract.robot_spec")
    space = stop_tube_parameters(spec)
    promised = obligation("each robot", spec, contract, space=space)
    rows = len(next(iter(values.pop("test_vector")["inputs"].values())))
    file = {
        "path": str(path),
        "sha256": artefact.sha256,
        "size_bytes": len(policy_bytes(path)),
        "opset": opset,
        "ir_version": artefact.header.ir_version,
        "test_vector_rows": rows,
        "test_vector_error": artefact.replay_error,
    }
    tables = (
        facts("Policy file", file),
        facts("Contract", _contract_facts(contract)),
        _signals(contract),
        facts("Timing", _timing(contract)),
        _robot(contract),
        _shield(contract),
        _space(space),
        _obligation(promised),
        facts("Provenance", contract.provenance),
        facts("Evaluation", contract.evaluation),
        facts("Parity of the graph with JAX", contract.parity),
    )
    decision = {"decision_period_s": contract.decision_period_s}
    return Report(
        {"file": file, "contract": values | decision, "space": space.to_dict(), "obligation": promised.to_dict()},
        tables,
    )


def _contract_facts(contract: Contract) -> dict[str, object]:
    arena = contract.arena
    return {
        "version": contract.version,
        "scenario": contract.scenario,
        "team size in training": contract.team_size,
        "memory": contract.hidden_size or "none (feed-forward)",
        "arena [m]": f"{list(arena.low_world)} to {list(arena.high_world)}" if arena else "no walls",
        "contract hash": contract.contract_hash,
    }


def _signals(contract: Contract) -> Table:
    rows = [
        (signal.name, "in", _shape(signal.shape), signal.unit, signal.frame, signal.max_age_s)
        for signal in contract.signals
    ]
    command = contract.command
    rows.append(("command", "out", _shape(graph_outputs(contract)[COMMAND]), command.unit, "world", None))
    if command.message_size:
        rows.append((MESSAGE, "out", _shape((command.message_size,)), "-1 to 1", "", None))
    if contract.hidden_size:
        rows.append(("hidden", "both", _shape((contract.hidden_size,)), "", "", None))
    made = table("Signals", ("name", "", "shape", "unit", "frame", "age [s]"), rows)
    form = FORMS[command.type]
    limited = zip(form.limited_channels, command.limits, strict=True)
    limits = [f"{channel} {low:.6g} to {high:.6g}" for channel, (low, high) in limited]
    speed = [] if len(limits) == len(form.channels) else [f"at most {command.limit:.6g} m/s"]
    gain = [f"velocity over distance {command.gain_per_s:.6g} 1/s"] if command.gain_per_s else []
    made.caption = ", ".join((command.type, *gain, *speed, *limits))
    return made


def _shape(shape: tuple[int | str, ...]) -> str:
    return " x ".join(map(str, shape))


def _timing(contract: Contract) -> dict[str, object]:
    return {
        "control tick [s]": contract.control_period_s,
        "decision every [ticks]": contract.decision_ticks,
        "decision period [s]": contract.decision_period_s,
        "between decisions": contract.hold_rule,
        "dead-man time [s]": contract.dead_man_s,
    }


def _robot(contract: Contract) -> Table:
    rows = [
        (f"{section}.{name}", entry["value"], entry["unit"], _interval(entry["interval"]))
        for section, entries in contract.robot_spec.items()
        for name, entry in _entries(entries)
    ]
    made = table(f"Robot {contract.robot}", ("quantity", "value", "unit", "interval"), rows)
    made.caption = f"sha256 {contract.robot_sha256}"
    return made


def _entries(section: Any) -> Iterable[tuple[str, dict[str, Any]]]:
    """Return the quantities of a section of a robot file; empty for a single value."""
    return cast("dict[str, dict[str, Any]]", section).items() if isinstance(section, dict) else ()


def _interval(bounds: list[float]) -> str:
    low, high = bounds
    return f"{low:.6g} to {high:.6g}" if low < high else ""


def _shield(contract: Contract) -> Table:
    shield = contract.shield
    rows = [(term.name, term.value_m, term.source) for term in shield.terms]
    made = table(f"Shield {shield.version}: separation", ("margin", "[m]", "source"), rows)
    made.add_section()
    total = "sum: least distance between the control points of a robot and a peer at rest"
    made.add_row("separation", cell(shield.separation_m), total)
    made.add_section()
    made.add_row("walls", cell(shield.wall_m), "least distance of the control point from walls")
    made.caption = (
        f"gap share {shield.gap_share:.6g} in each hold of {shield.hold_s:.6g} s; "
        f"kappa {shield.direction_factor:.6g}; rows for {shield.neighbour_rows} neighbours"
    )
    return made


def _space(space: StopTubeParameters) -> Table:
    rows = [(term.name, term.value_m, term.source) for term in space.terms]
    made = table("Stop tube and reserved segments", ("margin", "[m]", "source"), rows)
    made.add_section()
    made.add_row("tube error", cell(space.tube_error_m), "sum: largest distance of the body from its predicted path")
    made.add_row("segment", cell(space.lane_m), "half-width of a reserved segment")
    made.add_section()
    made.add_row(
        "segments",
        cell(space.clearance_m),
        "least distance between the axes of two robots' segments: both body radii, half-widths and tube errors",
    )
    made.add_row("walls", cell(space.wall_m), "least distance of a tube from walls and obstacles")
    made.add_row(
        "untrusted", cell(space.untrusted_m), "least distance of a tube from the possible places of an untrusted body"
    )
    made.caption = (
        f"a command can act for {space.hold_ticks} ticks; a peer counts as silent after {space.silence_s:.6g} s"
    )
    return made


def _obligation(promised: Obligation) -> Table:
    assumed = {entry.name: (entry.relation, entry.value) for entry in promised.assumes}
    rows = [(name, value, *assumed.get(name, ("", ""))) for name, value in vars(promised.guarantees).items()]
    made = table("Obligation", ("quantity", "guarantees", "", "assumes of each peer"), rows)
    made.caption = f"a fleet in which an assumption does not follow is refused; layers: {', '.join(promised.layers)}"
    return made
