"""One scenario of the benchmark: its team, its policy file and fleet files, and what the policy does in simulation."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from testudo_bench.fleet_tasks.hand_written import hand_written
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.shipped_policies import policy_file
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_hardware.errors import TestudoError
from testudo_policies.evaluation.evaluation import HELD_OUT_SEED, compiled_programs, run_batch
from testudo_policies.evaluation.policy_under_test import load_policy_under_test
from testudo_policies.exporting.onnx_export import ExportReport, export_policy
from testudo_policies.exporting.packaging import make_contract, package_policy, write_fleet
from testudo_policies.learning.builder import TrainingComponents, build, make_environment
from testudo_policies.learning.checkpoints import load_config
from testudo_policies.learning.training_run import load_parameters
from testudo_policies.train_config import TrainConfig
from testudo_sim.deployed_environment import DeployedEnvironment
from testudo_sim.go_to_goal import random_inputs
from testudo_sim.online_task.task_state import prices_of
from testudo_sim.team.batch_policy import artefact_policy

RETURN, SUCCESS = "return", "success"
_APART = 100  # seeds between two runs, more than `write_fleet` looks through for crossing paths
_DRAWS = 20_000
_FIRST_SIMULATED = HELD_OUT_SEED + 1_000_000  # episodes of the simulation, none of which is a run


@dataclass(frozen=True)
class TaskCase:
    """A scenario, and the figure by which its runs are judged."""

    scenario: str
    team_size: int
    metric: str  # RETURN, SUCCESS, or a metric of the scenario
    options: Mapping[str, Any] = field(default_factory=dict)  # of `TrainConfig`
    episodes: int = 200  # simulated


CASES = (
    TaskCase("foraging", 3, "foraged"),
    TaskCase("predator_prey", 3, RETURN),
    TaskCase("discovery", 4, "tagged"),
    TaskCase("push_box", 2, RETURN, {"physics": "mjx", "form": "planar", "memory": 0}, episodes=100),
    TaskCase("crossing_map", 4, "arrived", {"map": "camar_random_grid_20"}),
)


class PreparedCase:
    """A case with its policy: by hand, of a training run, or of a policy file."""

    def __init__(self, case: TaskCase, folder: Path, trained: Path | None, policy: Path | None = None) -> None:
        """Keep the files in ``folder``; without training run and policy file the policy is the hand-written one.

        Raises:
            TestudoError: the policy file cannot be read, or is for another scenario.
        """
        self.case, self._folder, self._trained = case, folder, trained
        self._artefact = None if policy is None else PolicyArtefact.load(policy_file(policy))
        self.policy_kind = "hand-written" if trained is None else f"trained, {trained}"
        if self._artefact is not None:
            self.policy_kind = f"policy file, {self._artefact.sha256[:12]}"
            if self._artefact.contract.scenario != case.scenario:
                raise TestudoError(
                    f"--policy {policy}: found a policy of {self._artefact.contract.scenario}, expected one of "
                    f"{case.scenario}; give --scenario {self._artefact.contract.scenario}"
                )

    @cached_property
    def components(self) -> TrainingComponents:
        """Return the parts of the training run, or of one that never trains."""
        if self._trained is not None:
            return build(load_config(self._trained))
        case = self.case
        return build(TrainConfig(scenario=case.scenario, team_size=case.team_size, **{"memory": 0, **case.options}))

    @cached_property
    def exported(self) -> ExportReport | PolicyArtefact:
        """Return the policy file, proven, and written if it is not given."""
        if self._artefact is not None:
            return self._artefact
        path, parts = self._folder / "policy.onnx", self.components
        if self._trained is not None:
            return package_policy(parts, load_parameters(parts, self._trained), path, [])
        contract = make_contract(parts, [])
        contract = contract.replace(provenance={**contract.provenance, "policy": "hand-written, not trained"})
        examples = random_inputs(contract, 8, parts.config.team_size - 1)
        return export_policy(hand_written(self._environment), contract, examples, path)

    def fleet(self, number: int) -> Fleet:
        """Write and return the fleet file of a run: its own start of a held-out episode."""
        path = self._folder / f"fleet_{number}.yaml"
        return load_fleet(write_fleet(self.components, self.exported, path, _APART * number))

    @property
    def horizon_s(self) -> float:
        """Return the time limit of an episode [s]."""
        return self._environment.scenario.horizon_s

    @cached_property
    def _environment(self) -> DeployedEnvironment:
        """Return the scenario as an evaluation runs it, with all layers of the shield."""
        parts = self.components
        config = parts.config
        if (
            self._trained is not None or self._artefact is not None
        ):  # with its way-points, and the numbers of robots with own parameters
            tested = load_policy_under_test(self.exported.path)
            made = tested.environment(config.team_size, physics=config.physics_choice)
            return DeployedEnvironment.of(made, config.physics_choice)
        plain = make_environment(
            config.scenario,
            parts.spec,
            parts.shield,
            config.team_size,
            physics=config.physics_choice,
            obstacles=parts.obstacles,
        )
        return DeployedEnvironment.of(plain, config.physics_choice)

    def simulated(self, runs: int, *, lock_step: bool) -> dict[str, Any]:
        """Return the figure of simulated episodes, and the middle 95 % of the mean of ``runs`` of them (bootstrap).

        Ticks and messages are those of the runs: in ``lock_step`` exact, else drawn. Returns have the prices of the
        policy's training, with which the task node scores; an evaluation has none.
        """
        count, artefact = self.case.episodes, PolicyArtefact.load(self.exported.path)
        timed = self._environment.in_lock_step if lock_step else self._environment
        environment = replace(timed, **prices_of(artefact.contract))
        policy, memory = artefact_policy(artefact), artefact.contract.hidden_size
        programs = compiled_programs(environment)
        found = run_batch(environment, programs, policy, memory, _FIRST_SIMULATED, count)
        figures = [
            figure_of(
                self.case.metric,
                float(found.returns[k]),
                float(found.success[k]),
                {name: float(values[k]) for name, values in found.metrics.items()},
            )
            for k in range(count)
        ]
        drawn = np.random.default_rng(0).choice(figures, (_DRAWS, runs)).mean(axis=1)
        low, high = np.percentile(drawn, [2.5, 97.5])
        return {
            "episodes": count,
            "episodes_in_a_mean": runs,
            "mean": float(np.mean(figures)),
            "least": min(figures),
            "most": max(figures),
            "low": float(low),
            "high": float(high),
            "contacts": int(found.contacts.sum()),
            "layers": environment.layers,
            "physics": environment.team.physics.name,
            "messages": messages_in(lock_step=lock_step),
        }


def messages_in(*, lock_step: bool) -> str:
    """Return how messages of simulated episodes are timed, as results name it."""
    return "as in lock-step" if lock_step else "drawn"


def figure_of(metric: str, mean_return: float, success: float, metrics: Mapping[str, float]) -> float:
    """Return the figure of a run or of episodes by which a case is judged."""
    return float({RETURN: mean_return, SUCCESS: success, **metrics}[metric])
