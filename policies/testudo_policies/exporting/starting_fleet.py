"""A fleet file for a fresh policy: starts and goals of one held-out episode, with the policy's hash."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np

from testudo_deploy.contract.rules import TASK_SIGNALS
from testudo_deploy.fleet.fleet import Fleet, FleetRobot, save_fleet
from testudo_hardware.errors import TestudoError
from testudo_policies.evaluation.evaluation import HELD_OUT_SEED, LAST_SEED, crossing_paths
from testudo_policies.exporting.onnx_export import ExportReport
from testudo_policies.learning.builder import TrainingComponents, make_environment

_TRIES = 100


def not_in_a_fleet(workshop: TrainingComponents) -> tuple[str, ...]:
    """Return the task signals that no fleet file can give; with any, the policy runs in simulation only."""
    return tuple(
        signal.name for signal in workshop.environment.scenario.task_signals if signal.name not in TASK_SIGNALS
    )


def write_fleet(workshop: TrainingComponents, report: ExportReport, path: Path, seed: int) -> Path:
    """Write the fleet file and return its path.

    The start is the first held-out episode from ``seed`` on in which straight paths cross.

    Raises:
        TestudoError: no episode has this seed, or the task needs more than goals.
    """
    missing = not_in_a_fleet(workshop)
    if missing:
        raise TestudoError(
            f"{path}: a fleet file gives each robot its goal; the policy of "
            f"{workshop.config.scenario!r} also reads {', '.join(missing)}"
        )
    highest = LAST_SEED - HELD_OUT_SEED - _TRIES
    if not 0 <= seed <= highest:
        raise TestudoError(f"--seed: found {seed}, expected 0 to {highest}")
    config, spec = workshop.config, workshop.spec
    environment = make_environment(
        config.scenario, spec, workshop.shield, config.team_size, obstacles=workshop.obstacles
    )
    keys = jax.vmap(jax.random.key)(HELD_OUT_SEED + seed + np.arange(_TRIES))
    worlds = environment.reset(keys)
    index = int(np.argmax(np.asarray(crossing_paths(environment, worlds))))
    scene = environment.scene(worlds)
    motion = scene.robots
    goals = environment.scenario.signals(worlds.task, scene)["goal_world"]
    kind = str(Path(config.robot).absolute()) if config.robot.endswith(".toml") else config.robot
    robots = tuple(
        FleetRobot(
            f"r{i}",
            kind,
            _rounded(motion.position_world[:, i, index]),
            round(float(motion.yaw[i, index]), 4),
            _rounded(goals[:, i, index]),
            spec,
        )
        for i in range(config.team_size)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    save_fleet(Fleet(path, report.path.absolute(), report.sha256, robots), path)
    return path


def _rounded(vector: jax.Array) -> tuple[float, ...]:
    return tuple(round(float(x), 4) for x in vector)
