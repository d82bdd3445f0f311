"""From trained parameters to the artefact: the contract is filled in, the file is written and proven."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from testudo_deploy.contract.command_types import velocity_command
from testudo_deploy.contract.contract import HOLD_RULE, VERSION, Contract, TestVector
from testudo_deploy.contract.rules import robot_signals
from testudo_policies.evaluation.evaluation import HELD_OUT_SEED, Evaluation
from testudo_policies.exporting.onnx_export import ExportReport, export_policy
from testudo_policies.learning.builder import TrainingComponents
from testudo_policies.networks.agent import AgentParameters
from testudo_sim.physics_choice import make_tier

_LOOP_STEPS = 500
_LOOP_WORLDS = 4
_PACKAGES = ("testudo", "jax", "flax", "onnx", "jax2onnx")


def package_policy(
    workshop: TrainingComponents, parameters: AgentParameters, path: Path, evaluations: list[Evaluation]
) -> ExportReport:
    """Write ``path`` with contract, evaluation, parity and test vector.

    Raises:
        ExportError: the graph deviates from the policy.
    """
    step = workshop.agent.policy(jax.device_get(parameters))
    loops = closed_loops(workshop, step, _LOOP_STEPS, _LOOP_WORLDS)
    examples = {name: value[_LOOP_STEPS // 50] for name, value in loops.items()}
    return export_policy(step, make_contract(workshop, evaluations), examples, path, loops=loops)


def make_contract(workshop: TrainingComponents, evaluations: list[Evaluation]) -> Contract:
    """Return the contract of a run, without parity and test vector."""
    config, spec, scenario = workshop.config, workshop.spec, workshop.environment.scenario
    return Contract(
        version=VERSION,
        scenario=config.scenario,
        robot=spec.name,
        robot_spec=spec.to_dict(),
        robot_sha256=spec.sha256,
        dimension=spec.dimension,
        signals=robot_signals(spec) + tuple(scenario.task_signals),
        command=velocity_command(config.command_type, spec),
        hidden_size=config.memory,
        control_period_s=spec.control_period_s,
        decision_ticks=scenario.decision_ticks,
        hold_rule=HOLD_RULE,
        dead_man_s=spec.dead_man_s,
        arena=scenario.arena,
        team_size=config.team_size,
        shield=workshop.shield,
        provenance=_provenance(workshop),
        evaluation={str(result.team_size): result.to_dict() for result in evaluations},
        parity={},
        test_vector=TestVector({}, {}),
    )


def closed_loops(workshop: TrainingComponents, step: Any, steps: int, worlds: int) -> Mapping[str, np.ndarray]:
    """Return the signals (T, B, ...) that robots see when the policy drives them for ``steps`` decisions."""
    environment = workshop.environment
    size = environment.team.size

    def decide(carry: Any, key: jax.Array) -> Any:
        world, hidden = carry
        signals = {name: value.reshape(-1, *value.shape[2:]) for name, value in environment.signals(world).items()}
        velocity, hidden = step(signals, hidden)
        world, _ = environment.step(world, velocity.reshape(worlds, size, -1), key)
        return (world, hidden), signals

    @jax.jit
    def run(key: jax.Array) -> Any:
        begin = environment.reset(jax.random.split(key, worlds)), workshop.agent.blank_memory(worlds * size)
        return jax.lax.scan(decide, begin, jax.random.split(key, steps))[1]

    signals = run(jax.random.key(HELD_OUT_SEED - 1))
    return {name: np.asarray(value) for name, value in signals.items()}


def _provenance(workshop: TrainingComponents) -> dict[str, Any]:
    return {
        "config": asdict(workshop.config),
        "updates": workshop.config.updates,
        "world_sha256": world_sha256(workshop),
        "git": _git_commit(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in _PACKAGES},
    }


def world_sha256(workshop: TrainingComponents) -> str:
    """Return the hash of the MuJoCo world of the run's team, with all masses, frictions and contact bits."""
    scenario = workshop.environment.scenario
    team = workshop.environment.team
    return make_tier(workshop.config.form, team.model, scenario.arena, team.size, scenario.boxes).sha256


def _git_commit() -> str:
    """Return the commit of the sources, with a plus sign if they differ from it; empty outside git."""
    here = Path(__file__).parent

    def ask(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=False)  # noqa: S603, S607
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        commit = ask("rev-parse", "HEAD")
        return commit + ("+" if commit and ask("status", "--porcelain", "--untracked-files=no") else "")
    except OSError:
        return ""
