"""The verb `forecast`: what the next run will show, how good earlier forecasts were, and the ledger of all."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from testudo_analysis.commands.replay_output import show_warnings, write_results
from testudo_analysis.forecast.forecast import Forecast, ForecastError
from testudo_analysis.forecast.forecast_plot import (
    forecast_plot,
    forecast_table,
    ledger_table,
    past_text,
    score_table,
)
from testudo_analysis.forecast.forecast_task import seen_by, task_of_runs, with_fleet
from testudo_analysis.forecast.ledger import (
    FORECAST,
    LEDGER_FILE,
    SCORE,
    LedgerEntry,
    append_entry,
    check_listed,
    read_ledger,
)
from testudo_analysis.forecast.make_forecast import ForecastSettings, ForecastTask, make_forecast
from testudo_analysis.forecast.score_forecast import ScoredQuantity, mean_crps, score_forecast, summary
from testudo_analysis.replay.replayed_team import load_team
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.shipped_policies import policy_file
from testudo_deploy.fleet.fleet import load_fleet
from testudo_runs.progress_bar import progress_bar

_FOLDER = Path("forecasts")


@dataclass(frozen=True)
class ForecastSource:
    """What the fleets are sampled from."""

    policy: Path | None = None
    """Policy file of the next run, or the name of one that ships; default: that of the last run, or of the fleet."""
    robot: tuple[Path, ...] = ()
    """Robot file from `testudo identify` for all robots, or one for each in the order of the fleet: their parameters
    are drawn from its intervals; default: the robots' own files."""
    fleet: Path | None = None
    """Fleet file whose starts and goals replace those of the runs."""
    fleets: int = 1000
    """Number of sampled fleets."""
    horizon: float = 60.0
    """Longest duration of the next run [s]."""
    seed: int = 0
    """Seed of parameters, noise and losses."""
    poses: Literal["true", "measured"] | None = None
    """By which poses the next run will be seen: true ones, as a simulated plant or an exact tracking system records, or
    those that the robots measure, with the errors of their file; default: as the runs, without them true."""


def forecast(
    run: Annotated[tuple[Path, ...], tyro.conf.Positional] = (),
    *,
    source: Annotated[ForecastSource, tyro.conf.arg(name="")] = ForecastSource(),
    score: Path | None = None,
    forecast: Path | None = None,
    ledger: Path | None = None,
    out: Path | None = None,
    json: Path | None = None,
) -> int:
    """Say what the next run will show, before it: success, time to goal, separation, interventions, latency.

    Fleets are sampled from the intervals of the robot files, and driven by the policy under all layers of the shield.
    Of three and more runs the forecast learns how far past runs were from their own sampled fleets.
    The forecast has a hash of its content, is never replaced, and is listed in a ledger whose lines are chained by
    hashes. --score compares it with the run that followed, and with the nominal robot file.

    Example:
        testudo forecast runs/monday/run --robot r0.toml r1.toml --out forecasts/tuesday.json
        testudo forecast --fleet fleet.yaml --policy navigation --fleets 2000
        testudo forecast --score runs/tuesday/run --forecast forecasts/tuesday.json
        testudo forecast --ledger forecasts/ledger.jsonl    # verifies it; coverage and CRPS of all scores

    Args:
        run: run folders that give starts, goals and robots; of several, the fleets begin as in each in turn, and three
            and more say how far runs are from their fleets.
        source: policy, robot files and number of fleets.
        score: run folder to compare a forecast with; adds the score to the ledger in the forecast's folder.
        forecast: the forecast that is scored.
        ledger: ledger to verify and list.
        out: file of the forecast, with a plot and the ledger beside it; default: its date and hash, in forecasts/.
        json: also write the results to this file.
    """
    console = Console()
    if (score is None) != (forecast is None):
        raise ForecastError("--score RUN and --forecast FILE: found one of them, expected both or none")
    asked = [name for name, given in (("--score", score), ("--ledger", ledger)) if given]
    makes = bool(run) or source != ForecastSource() or out is not None
    if len(asked) + makes != 1:
        found = ", ".join(asked + ["a new forecast"] * makes) or "nothing"
        raise ForecastError(f"forecast: found {found}, expected one of: RUN or --fleet, --score, --ledger")
    if ledger is not None:
        return _list(ledger, json, console)
    if score is not None and forecast is not None:
        return _score(score, forecast, json, console)
    return _make(run, source, out, json, console)


def _make(runs: Sequence[Path], source: ForecastSource, out: Path | None, json: Path | None, console: Console) -> int:
    """Make, show, save and list a forecast."""
    if out is not None and out.exists():
        raise ForecastError(f"--out {out}: exists; a forecast is never replaced, give another file")
    if out is not None:
        read_ledger(out.parent / LEDGER_FILE)  # a changed ledger is refused before the work
    task, policy = _task(runs, source)
    artefact = PolicyArtefact.load(policy)
    settings = ForecastSettings(source.fleets, source.horizon, source.seed)
    what = f"sampling {source.fleets} fleets"
    with progress_bar(what) as tell:
        made = make_forecast(task, artefact, source.robot, settings, lambda done: tell(what, done))
    file = out or _FOLDER / f"{made.made.replace(':', '')}_{made.sha256[:8]}.json"
    read_ledger(file.parent / LEDGER_FILE)
    made.save(file)
    plot = file.with_suffix(".png")
    plot.write_bytes(forecast_plot(made.quantities, {}).png)
    entry = append_entry(
        file.parent / LEDGER_FILE,
        FORECAST,
        {
            "made": made.made,
            "forecast": made.sha256,
            "file": file.name,
            "policy": made.inputs.policy,
            "policy_sha256": made.inputs.policy_sha256,
            "robots": {name: robot.file_sha256 for name, robot in made.inputs.robots.items()},
            "fleets": made.inputs.fleets,
        },
    )
    console.print(forecast_table(made))
    console.print(f"motion noise: {made.inputs.noise}; forecast {made.sha256[:12]}", highlight=False)
    console.print(past_text(made), highlight=False)
    console.print(f"written: {file}, {plot}; ledger hash {entry.sha256}: keep it elsewhere", highlight=False)
    write_results(json, made.to_dict() | {"sha256": made.sha256, "ledger_hash": entry.sha256}, console)
    return 0


def _task(runs: Sequence[Path], source: ForecastSource) -> tuple[ForecastTask, Path]:
    """Return whose next run is forecast, and the policy file."""
    policy = None if source.policy is None else policy_file(source.policy)
    fleet = None if source.fleet is None else load_fleet(source.fleet)
    recordings = []
    for folder in runs:
        with progress_bar(f"reading {folder}") as tell:
            recordings.append(load_team(folder, share=lambda done, t=tell, f=folder: t(f"reading {f}", done)))
    task = task_of_runs(recordings, source.horizon) if recordings else None
    if fleet is not None:
        task = with_fleet(task, fleet)
        policy = policy or fleet.policy
    if task is not None and source.poses is not None:
        task = seen_by(task, source.poses)
    if task is None:
        raise ForecastError("forecast: found neither RUN nor --fleet, expected starts and goals from one of them")
    if policy is None and recordings[-1].run is not None:
        policy = recordings[-1].run.policy_path
    if policy is None:
        raise ForecastError(f"{runs[-1]}: has no policy, as it was imported; give --policy FILE")
    return task, policy


def _score(run: Path, file: Path, json: Path | None, console: Console) -> int:
    """Score a forecast against a run, and list the score."""
    made, ledger = Forecast.load(file), file.parent / LEDGER_FILE
    entries = read_ledger(ledger)
    check_listed(entries, made.sha256, ledger)
    with progress_bar(f"reading {run}") as tell:
        recording = load_team(run, share=lambda done: tell(f"reading {run}", done))
    show_warnings(recording.warnings, console)
    found = score_forecast(made, recording)
    for number, entry in enumerate(entries, start=1):
        same = entry.kind == SCORE and entry.content["forecast"] == made.sha256
        if same and entry.content["run_start_ns"] == found.run_start_ns:
            raise ForecastError(f"{ledger}: line {number} already has the score of this forecast against this run")
    when = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    values = found.to_dict()
    content = {"made": when, "forecast": made.sha256, **{k: v for k, v in values.items() if k != "forecast_sha256"}}
    entry = append_entry(ledger, SCORE, content)
    console.print(score_table(found))
    plot = file.with_name(f"{file.stem}_scored.png")
    observed = {one.name: one.observed for one in found.quantities}
    plot.write_bytes(forecast_plot(made.quantities, observed).png)
    _show_summary(found.quantities, console)
    console.print(f"written: {plot}; ledger hash {entry.sha256}: keep it elsewhere", highlight=False)
    write_results(json, values | {"ledger_hash": entry.sha256}, console)
    return 0


def _list(file: Path, json: Path | None, console: Console) -> int:
    """Verify and list a ledger, with coverage and CRPS of all its scores."""
    if not file.is_file():
        raise ForecastError(f"{file}: no such ledger; `testudo forecast RUN` begins one")
    entries = read_ledger(file)
    console.print(ledger_table(entries))
    every = [ScoredQuantity(**one) for entry in entries if entry.kind == SCORE for one in entry.content["quantities"]]
    if every:
        _show_summary(every, console)
    last = entries[-1].sha256 if entries else ""
    console.print(f"all {len(entries)} entries are as written; last hash {last}", highlight=False)
    open_ = [str(e.content["file"]) for e in entries if e.kind == FORECAST and not _is_whole(file.parent, e)]
    for name in open_:
        console.print(f"[red]changed or missing:[/] {name}", highlight=False)
    overall = {"summary": summary(every), "crps": mean_crps(every)} if every else {}
    rows = [asdict(entry) for entry in entries]
    write_results(json, {"entries": rows, "last_hash": last, "changed": open_, **overall}, console)
    return 1 if open_ else 0


def _is_whole(folder: Path, entry: LedgerEntry) -> bool:
    """Return whether the file of a listed forecast is as it was written."""
    try:
        return Forecast.load(folder / str(entry.content["file"])).sha256 == entry.content["forecast"]
    except ForecastError:
        return False


def _show_summary(quantities: Sequence[ScoredQuantity], console: Console) -> None:
    found = summary(list(quantities))
    if found["covered_of"]:
        console.print(
            f"{found['covered_of']} numbers: {found['coverage_80']:.0%} within 80 % intervals, "
            f"{found['coverage_95']:.0%} within 95 %",
            highlight=False,
        )
    for kind, (own, plain) in mean_crps(list(quantities)).items():
        console.print(f"mean CRPS of {kind.replace('_', ' ')}: {own:.3g}, nominal file {plain:.3g}", highlight=False)
