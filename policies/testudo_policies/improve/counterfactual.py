"""Old and new artefact in the counterfactual of the run: on from its own moments, under the stack as it is deployed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from testudo_analysis.replay.counterfactual import CounterfactualVariant, HorizonSettings, simulate_from
from testudo_analysis.replay.one_team import one_team
from testudo_deploy.contract.contract import Contract
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_hardware.spec import RobotSpec
from testudo_runs.alignment import TeamRecording, prepare_run
from testudo_runs.run_reader import RecordedRun

_MOMENTS = 4
_DRAWS = 16


@dataclass(frozen=True)
class Arrivals:
    """Worlds of one policy, from all moments."""

    worlds: int
    arrived: int
    low: float
    high: float
    """Wilson interval, 95 %, of the share that arrived."""
    touched: int
    touched_high: float
    """Upper 95 % bound of the share in which robots touched."""
    arrival_s: float | None
    """Median over the moments of the median time."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return dict(vars(self))


def counterfactual(
    run: RecordedRun, contract: Contract, spec: RobotSpec, policy: Path, horizon_s: float, tell: Callable[[float], None]
) -> Arrivals:
    """Return what becomes of the team with a policy from moments of the run on, on the identified robot.

    Args:
        run: of a policy of ours.
        contract: of that policy: arena and shield.
        spec: the identified robot.
        policy: the artefact that drives.
        horizon_s: for how long.
        tell: is told the share that is done.

    Raises:
        TestudoError: the robots were not seen, or the policy is for others.
    """
    recording = one_team(replace(prepare_run(run), contract=contract))
    recording = replace(recording, robots=tuple(replace(robot, spec=spec) for robot in recording.robots))
    way = CounterfactualVariant("improved", PolicyArtefact.load(policy), shielded=True)
    found = simulate_from(recording, _moments(recording), way, HorizonSettings(horizon_s, _DRAWS), tell).outcomes
    worlds, arrived, touched = (
        sum(values) for values in zip(*((one.worlds, one.arrived or 0, one.touched) for one in found), strict=True)
    )
    interval = binomtest(arrived, worlds).proportion_ci(0.95, method="wilson")
    times = [one.arrival_s for one in found if one.arrival_s is not None]
    bound = binomtest(touched, worlds, alternative="less").proportion_ci(0.95, method="exact").high
    return Arrivals(
        worlds,
        arrived,
        float(interval.low),
        float(interval.high),
        touched,
        float(bound),
        float(np.median(times)) if times else None,
    )


def complaints(old: Arrivals, new: Arrivals) -> tuple[str, ...]:
    """Return in what the new policy is worse, as `Comparison.complaints` does."""
    found = []
    if new.arrived / new.worlds < old.low:
        found.append(
            f"counterfactual of the run: {new.arrived} of {new.worlds} worlds arrive, with the old policy "
            f"{old.arrived} of {old.worlds}"
        )
    if new.touched / new.worlds > old.touched_high:
        found.append(
            f"counterfactual of the run: robots touch in {new.touched} of {new.worlds} worlds, with the old "
            f"policy in {old.touched}"
        )
    return tuple(found)


def _moments(recording: TeamRecording) -> list[float]:
    """Return moments in the first three quarters of the time in which all robots were seen."""
    low, high = recording.span_s
    return [float(time_s) for time_s in low + (high - low) * np.arange(_MOMENTS) / _MOMENTS]
