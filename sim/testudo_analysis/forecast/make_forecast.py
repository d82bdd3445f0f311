"""Makes a forecast: samples fleets of a team from its starts, and fleets as the policy's robot file has them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

from testudo_analysis.forecast.forecast import (
    MEASURED,
    TRUE,
    Forecast,
    ForecastError,
    ForecastInputs,
    RobotInput,
    content_hash,
    quantity_forecasts,
    rounded,
)
from testudo_analysis.forecast.past_runs import (
    FEWEST_FLEETS,
    FEWEST_RUNS,
    PastRun,
    left_out_coverage,
    past_errors,
    with_past_errors,
)
from testudo_analysis.forecast.sampled_fleets import FleetSimulator, SampledTeam, TeamStart, Worlds
from testudo_analysis.replay.counterfactual import check_goal_policy
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.spec import RobotSpec, load_robot, parse_robot
from testudo_runs.progress_bar import Share, quiet

_FEWEST = 2
_MANY = 20_000  # ticks of robots, from which on a slow compilation pays
NOMINAL_FLEETS = 100  # the robot file without intervals still has the noise of poses and the loss of messages
_PAST_FLEETS = 100  # of each past run: their mean and variance are used
_NOMINAL_SEED, _PAST_SEED = 1_000_003, 2_000_003
_PACKAGES = ("testudo", "jax", "numpy", "onnxruntime")


@dataclass(frozen=True)
class ForecastSettings:
    """Number of sampled fleets, horizon and seed."""

    fleets: int = 1000
    horizon_s: float = 60.0
    seed: int = 0

    def check(self) -> None:
        """Refuse invalid values.

        Raises:
            ForecastError: too few fleets, or no horizon.
        """
        if self.fleets < _FEWEST:
            raise ForecastError(f"--fleets: found {self.fleets}, expected at least {_FEWEST}")
        if not 1.0 <= self.horizon_s < float("inf"):
            raise ForecastError(f"--horizon: found {self.horizon_s:g}, expected at least 1 s")
        if self.seed < 0:
            raise ForecastError(f"--seed: found {self.seed}, expected 0 or more")


@dataclass(frozen=True)
class ForecastTask:
    """Whose next run is forecast, from where, and to where."""

    names: tuple[str, ...]
    types: tuple[str, ...]  # of the robots, as the fleet file names them
    described: tuple[RobotSpec, ...]  # their robot files
    starts: tuple[TeamStart, ...]
    runs: tuple[str, ...] = ()
    last: Mapping[str, np.ndarray] | None = None  # (1,) by name: what the last of the runs showed
    past: tuple["RunThatWas", ...] = ()  # runs that are over, of the same robots
    measured: bool = False  # runs are seen by the poses of the robots themselves


@dataclass(frozen=True)
class RunThatWas:
    """What a run showed that is over, from where, and with which policy."""

    start: TeamStart
    observed: Mapping[str, float]  # by quantity
    policy_sha256: str


def sampled_team(
    task: ForecastTask, artefact: PolicyArtefact, files: Sequence[Path], horizon_s: float
) -> tuple[SampledTeam, tuple[str, ...]]:
    """Return the team whose fleets are sampled, and the names of the files that its robots are drawn from.

    ``files``: none draws from the robots' own files, one is that of all, else one for each robot in its order.

    Raises:
        TestudoError: one robot, another number of files, or a policy or file for other robots.
    """
    if len(task.names) < _FEWEST:
        raise ForecastError(f"forecast: found {len(task.names)} robot, expected a team of at least {_FEWEST}")
    if len(files) not in (0, 1, len(task.names)):
        raise ForecastError(
            f"--robot: found {len(files)} files, expected one for all robots, or one for each of "
            f"{', '.join(task.names)}"
        )
    for spec in task.described:
        check_goal_policy(artefact, spec, "a forecast")
        if spec.sha256 != artefact.contract.robot_sha256:
            raise ForecastError(
                f"{artefact.path}: found a policy for another file of {spec.name} than the robots have, which a fleet "
                "refuses; expected the file that it was exported for: an identified file goes to --robot"
            )
    described = parse_robot(artefact.contract.robot_spec, str(artefact.path))
    chosen = tuple(files) * (len(task.names) if len(files) == 1 else 1)
    specs = tuple(load_robot(file) for file in chosen) or task.described
    for spec, file in zip(specs, chosen, strict=False):
        if spec.kind != described.kind:
            raise ForecastError(f"--robot {file}: found kind {spec.kind}, expected {described.kind}")
    team = SampledTeam(task.names, described, specs, artefact, artefact.contract.arena, horizon_s, task.measured)
    return team, tuple(map(str, chosen)) or task.types


def make_forecast(
    task: ForecastTask,
    artefact: PolicyArtefact,
    files: Sequence[Path],
    settings: ForecastSettings,
    share: Share = quiet,
) -> Forecast:
    """Return the forecast of the next run of a team.

    Raises:
        TestudoError: invalid settings, or a policy or robot file that does not fit.
    """
    settings.check()
    team, names = sampled_team(task, artefact, files, settings.horizon_s)
    simulator = FleetSimulator(team, optimised=settings.fleets * team.ticks * len(task.names) >= _MANY)
    plain = min(NOMINAL_FLEETS, settings.fleets)
    past = [run for run in task.past if run.policy_sha256 == artefact.sha256]
    past = past if len(past) >= FEWEST_RUNS else []
    worlds = simulator.drawn(settings.seed, settings.fleets, task.starts).and_also(
        simulator.nominal(settings.seed + _NOMINAL_SEED, plain, task.starts)
    )
    found = simulator.outcomes(_with_past(worlds, simulator, past, settings), settings.seed, share)
    sampled = {name: values[: settings.fleets] for name, values in found.items()}
    nominal = {name: values[settings.fleets : settings.fleets + plain] for name, values in found.items()}
    again = {name: values[settings.fleets + plain :] for name, values in found.items()}
    over = _past_runs(past, again)
    errors = past_errors(over, settings.horizon_s) if over else ()
    sampled = with_past_errors(sampled, errors, settings.horizon_s, settings.seed)
    made_ns = time.time_ns()
    robots = {
        name: RobotInput(kind, own.sha256, file, quantities_hash(spec))
        for name, kind, own, file, spec in zip(task.names, task.types, task.described, names, team.files, strict=True)
    }
    inputs = ForecastInputs(
        artefact.path.name,
        artefact.sha256,
        robots,
        task.runs,
        tuple(_rows(start.position_world) for start in task.starts),
        tuple(_rows(start.goal_world) for start in task.starts),
        settings.horizon_s,
        settings.fleets,
        plain,
        settings.seed,
        _noise_text(team.files),
        MEASURED if task.measured else TRUE,
        errors,
        left_out_coverage(over, settings.horizon_s),
        {name: version(name) for name in _PACKAGES},
    )
    made = datetime.fromtimestamp(made_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Forecast(made_ns, made, inputs, quantity_forecasts(sampled, nominal, task.last or {}))


def _with_past(
    worlds: Worlds, simulator: FleetSimulator, past: Sequence[RunThatWas], settings: ForecastSettings
) -> Worlds:
    """Return these worlds, and behind them as many fleets from the start of each past run as their mean needs."""
    count = max(FEWEST_FLEETS, min(_PAST_FLEETS, settings.fleets))
    for k, run in enumerate(past):
        worlds = worlds.and_also(simulator.drawn(settings.seed + _PAST_SEED + k, count, [run.start]))
    return worlds


def _past_runs(past: Sequence[RunThatWas], found: Mapping[str, np.ndarray]) -> list[PastRun]:
    """Return past runs (M) with their fleets, of (M S,) by name, one run after the other."""
    if not past:
        return []
    parts = {name: np.split(values, len(past)) for name, values in found.items()}
    return [PastRun(run.observed, {name: values[k] for name, values in parts.items()}) for k, run in enumerate(past)]


def quantities_hash(spec: RobotSpec) -> str:
    """Return the hash of all quantities of a robot file with their intervals, which that of a robot leaves out."""
    tables = {**spec.quantities, **spec.attitude, **spec.rotors, **spec.propellers, **spec.motion_noise}
    return content_hash({key: asdict(quantity) for key, quantity in tables.items()})


def _rows(values: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """Return places (D, N) as rows by robot."""
    return tuple(rounded(column) for column in values.T)


def _noise_text(files: Sequence[RobotSpec]) -> str:
    """Return what the fleets have of motion noise."""
    count = sum(bool(spec.motion_noise) for spec in files)
    return f"of the robot files, {count} of {len(files)} robots" if count else "none in the robot files"
