"""The verb `replay`: re-inference, open-loop gap and counterfactuals of a run."""

from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from testudo_analysis.commands.replay_output import CounterfactualOptions, show_warnings, write_results
from testudo_analysis.replay import TOLERANCE, Reinference, alter, reinfer
from testudo_analysis.replay.command_chain import CommandChain, compare_chain
from testudo_analysis.replay.gap_names import Reference
from testudo_analysis.replay.open_loop import open_loop
from testudo_analysis.replay.replay_tables import gap_tables, reinference_tables
from testudo_deploy.authentication.fleet_key import load_key
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.shipped_policies import policy_file
from testudo_deploy.files.collection_pause import collection_paused
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import parse_robot
from testudo_runs.bags.chain_proof import ChainProof
from testudo_runs.progress_bar import progress_bar
from testudo_runs.run_reader import RecordedRun, is_imported, read_run


@dataclass(frozen=True)
class ProofOptions:
    """What the recorder's chain of hashes is checked against, beside itself."""

    key: Path | None = None
    """Fleet key: the chain must be signed with it, so that nobody without the key rewrote the run."""
    final_hash: str = ""
    """Last hash of the run, as `testudo up` printed it and as you kept it elsewhere."""


_NO_BRANCH = CounterfactualOptions()


def replay(
    run: Annotated[Path, tyro.conf.Positional],
    policy: Path | None = None,
    mode: Literal["all", "reinference", "open-loop", "counterfactual"] = "all",
    reference: Reference = "truth",
    alter: bool = False,
    allow_damage: bool = False,
    json: Path | None = None,
    proof: Annotated[ProofOptions, tyro.conf.arg(name="")] = ProofOptions(),
    branch: Annotated[CounterfactualOptions, tyro.conf.arg(name="")] = _NO_BRANCH,
) -> int:
    """Re-infer a run's commands, measure the sim-to-real gap, or simulate counterfactuals from times of the run.

    Exit status 1 means that re-inference failed, so that recorded commands do not follow from their inputs, that a
    message is not as the recorder wrote it, or that part of the run could not be read; the rest is still replayed.
    Imported runs have no artefact for re-inference: they are only replayed open loop, compared with external poses, or
    odometry without them.

    Example:
        testudo replay runs/latest/run --json replay.json
        testudo replay run --mode reinference --alter    # alters one input; must fail
        testudo replay run --mode reinference --key fleet.key    # nobody without the key rewrote it
        testudo replay run --mode counterfactual --from 4.5 --policy other.onnx

    Args:
        run: run folder.
        policy: policy file to use, or the name of one that ships; default: the copy in the run folder.
        mode: reinference compares commands, open-loop measures the gap by horizon, all does both; counterfactual
            simulates from --from, with and without the shield, and compares with the recording.
        reference: poses that open-loop replay starts from and is compared with.
        alter: first alter one recorded input, to see re-inference fail.
        allow_damage: exit status 0 even if part of the run cannot be read, or is missing.
        json: also write the results to this file.
        proof: what the chain of hashes is checked against.
        branch: options of a counterfactual.
    """
    console = Console()
    policy = None if policy is None else policy_file(policy)
    if proof != ProofOptions() and (mode == "counterfactual" or is_imported(run)):
        raise TestudoError(f"{run}: --key and --final-hash need a run of `testudo up`, and a mode that compares it")
    if mode == "counterfactual":
        from testudo_analysis.commands.replay_model import replay_counterfactual  # noqa: PLC0415 -- slow to import

        return replay_counterfactual(run, policy, branch, json, console)
    if mode != "reinference" and is_imported(run):
        _refuse_inputs(run, policy, alters=alter)
        from testudo_analysis.commands.replay_model import replay_imported  # noqa: PLC0415 -- slow to import

        return replay_imported(run, mode, reference, branch.robot or None, allow_damage, json, console)
    status, is_complete, results = _replay_recorded(run, policy, mode, reference, alter, proof, console)
    write_results(json, {"run": str(run)} | results, console)
    if not is_complete and not allow_damage:
        console.print("[red]part of the run could not be read[/]; --allow-damage accepts the rest")
        return 1
    return status


@collection_paused()  # a third of the time otherwise; at its end the recording is no longer there to be visited
def _replay_recorded(
    run: Path,
    policy: Path | None,
    mode: str,
    reference: Reference,
    alters: bool,
    proof: ProofOptions,
    console: Console,
) -> tuple[int, bool, dict[str, Any]]:
    """Compare and replay a recorded run; return the exit status, whether all could be read, and the results."""
    with progress_bar(f"reading {run}") as show:
        recording = read_run(run, partial(show, f"reading {run}"))
    whole, status = _compare_whole(recording, proof, with_commands=mode != "open-loop", console=console)
    results, passed = _replay_teams(recording, policy, mode, reference, alters, console)
    return status if passed else 1, recording.complete, whole | results


def _refuse_inputs(run: Path, policy: Path | None, *, alters: bool) -> None:
    """Raise TestudoError if an option needs policy inputs, which an imported run lacks."""
    if policy is not None or alters:
        raise TestudoError(
            f"{run}: was imported: {'--policy' if policy is not None else '--alter'} needs recorded "
            "policy inputs, which it lacks; --mode counterfactual simulates it with a policy"
        )


def _replay_teams(
    recording: RecordedRun, policy: Path | None, mode: str, reference: Reference, alters: bool, console: Console
) -> tuple[dict[str, Any], bool]:
    """Replay the robots of every policy file; return the results, and whether re-inference passed."""
    teams = recording.teams
    if policy is not None and len(teams) > 1:
        raise TestudoError(f"--policy: found {policy}, expected none: {recording.folder} has {len(teams)} policy files")
    found = [_replay_team(team, _load(team, policy), mode, reference, alters, console) for team in teams]
    results = [values for values, _ in found]
    return results[0] if len(results) == 1 else {"teams": results}, all(passed for _, passed in found)


def _compare_whole(
    recording: RecordedRun, options: ProofOptions, *, with_commands: bool, console: Console
) -> tuple[dict[str, Any], int]:
    """Compare the messages of a run with its chain of hashes and with each other; return results and exit status."""
    show_warnings(recording.warnings, console)
    refusals = _prove(recording.proof, options, console)
    found = {
        "complete": recording.complete,
        "warnings": list(recording.warnings),
        "proof": recording.proof.to_dict() | {"refusals": refusals},
    }
    status = 1 if refusals or recording.proof.is_contradicted else 0
    if with_commands:
        chain = compare_chain(recording)
        _show_chain(chain, console)
        found["command_chain"] = chain.to_dict()
        status = status if chain.passed else 1
    return found, status


def _prove(found: ChainProof, options: ProofOptions, console: Console) -> list[str]:
    """Show what the chain of hashes proves; return what contradicts key and last hash, as sentences."""
    key = None if options.key is None else load_key(options.key)
    refusals = found.refusals(key, options.final_hash)
    console.print(found.sentence, style=None if found.is_whole else "yellow", highlight=False)
    for text in refusals:
        console.print(f"[red]refused:[/] {text}", highlight=False)
    if found.is_signed and key is None:
        console.print("[yellow]note:[/] the chain is signed; --key FILE checks with which fleet key")
    elif key is not None and not refusals:
        console.print(f"the chain is signed with the fleet key {key.identifier}", highlight=False)
    return refusals


def _show_chain(chain: CommandChain, console: Console) -> None:
    """Show what contradicts itself on the way of the commands."""
    for text in chain.sentences:
        console.print(f"[{'yellow' if chain.passed else 'red'}]contradiction:[/] {text}", highlight=False)
    counts = ", ".join(f"{name} {count}" for name, count in chain.compared.items()) or "none was recorded"
    verdict = "[green]passed[/]" if chain.passed else "[red]FAILED[/]"
    lost = sum(one.kind == "missing" for one in chain.deviations) if chain.passed else 0
    note = f"; {lost} messages are missing, as a busy recorder loses them" if lost else ""
    console.print(f"way of the commands {verdict}: compared messages: {counts}{note}", highlight=False)


def _replay_team(
    recording: RecordedRun, artefact: PolicyArtefact, mode: str, reference: Reference, alters: bool, console: Console
) -> tuple[dict[str, Any], bool]:
    """Replay the robots of one policy file; return the results, and whether re-inference passed."""
    results: dict[str, Any] = {
        "robots": list(recording.robots),
        "policy_sha256": artefact.sha256,
        "is_recorded_policy": artefact.sha256 == recording.policy_sha256,
    }
    passed = True
    if mode != "open-loop":
        inferred = _reinfer(recording, artefact, alters, console)
        results |= {"reinference": inferred.to_dict(), "altered": alters}
        passed = inferred.passed
    if mode != "reinference":
        results |= {"open_loop": _measure_gap(recording, artefact, reference, console)}
    return results, passed


def _load(recording: RecordedRun, policy: Path | None) -> PolicyArtefact:
    if policy is None:
        return PolicyArtefact.load(recording.policy_path, sha256=recording.policy_sha256)
    return PolicyArtefact.load(policy)


def _reinfer(recording: RecordedRun, artefact: PolicyArtefact, altered: bool, console: Console) -> Reinference:
    if artefact.sha256 != recording.policy_sha256:
        console.print("[yellow]note:[/] this is not the recorded policy")
    recorded, here = recording.info.get("versions", {}).get("testudo"), version("testudo")
    if recorded not in (None, here):
        console.print(f"[yellow]note:[/] recorded with testudo {recorded}, this is {here}")
    if altered:
        recording, robot, sequence = alter(recording)
        console.print(f"[yellow]altered:[/] the position estimate of {robot} at tick {sequence}")
    what = "re-inferring the commands"
    with progress_bar(what) as show:
        inferred = reinfer(recording, artefact, share=partial(show, what))
    for table in reinference_tables(inferred):
        console.print(table)
    verdict = "[green]passed[/]" if inferred.passed else "[red]FAILED[/]"
    console.print(
        f"re-inference {verdict}: {inferred.reinferred} commands of {inferred.ticks} ticks, "
        f"largest error {inferred.error:.1e}, allowed {TOLERANCE:g}"
    )
    return inferred


def _measure_gap(
    recording: RecordedRun, artefact: PolicyArtefact, reference: Reference, console: Console
) -> dict[str, Any]:
    """Replay the commands of the robots of one policy file open loop; return the gap as JSON values."""
    spec = parse_robot(artefact.contract.robot_spec, f"{artefact.path}: contract")
    what = "replaying the commands from every pose"
    with progress_bar(what) as show:
        gap = open_loop(recording, spec, reference=reference, share=partial(show, what))
    for table in gap_tables(gap):
        console.print(table)
    return gap.to_dict()
