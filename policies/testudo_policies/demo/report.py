"""The demo's report and summary."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import jax

from testudo_analysis.replay import InputMutation, OpenLoopGap, Reinference
from testudo_analysis.report import (
    EvaluationRow,
    FleetSection,
    ParitySection,
    ReinferenceSection,
    ReportData,
    TrainingSection,
)
from testudo_policies.demo.steps import Demo
from testudo_policies.evaluation.evaluation import Evaluation
from testudo_policies.exporting.onnx_export import ExportReport
from testudo_policies.learning.training_run import TrainingResult
from testudo_runs.run_reader import RecordedRun

_PACKAGES = ("testudo", "jax", "flax", "mujoco", "onnxruntime", "numpy")
_SUCCESS_BAR = 0.98
_WALL_BAR_S = 300.0
_TRAINING_BARS_S = {2: 60.0, 3: 120.0}
"""By dimension."""


def report_data(
    demo: Demo,
    trained: TrainingResult,
    evaluation: Evaluation,
    export: ExportReport,
    run: RecordedRun,
    again: Reinference,
    caught: tuple[InputMutation, ...],
    gap: OpenLoopGap,
    looks: tuple[Path | None, Path],
    wall_s: float,
) -> ReportData:
    """Return everything that the demo's report shows; ``looks`` are the film of the run and its page."""
    config, folder = demo.config, demo.folder
    facts = {
        "algorithm": config.algorithm,
        "robots": str(config.team_size),
        "memory": str(config.memory),
        "worlds": str(config.worlds),
        "decisions": f"{config.decisions:,}",
        "seed": str(config.seed),
    }
    return ReportData(
        title=f"Testudo: {config.scenario} with {config.team_size} {export.contract.robot}",
        subtitle=f"{folder.name}: trained, exported, driven over ROS 2, replayed",
        wall_s=wall_s,
        wall_bar_s=_WALL_BAR_S,
        training=TrainingSection.read(folder / "training" / "metrics.jsonl", trained.compile_s, facts),
        training_bar_s=_TRAINING_BARS_S[export.contract.dimension],
        evaluation=(EvaluationRow.from_values(evaluation.to_dict(), _SUCCESS_BAR),),
        parity=ParitySection.from_values(export.parity.to_dict()),
        fleet=FleetSection(run, export.contract, *looks),
        reinference=ReinferenceSection(again, caught),
        gap=gap,
        contract=export.contract,
        versions={name: version(name) for name in _PACKAGES}
        | {
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, {jax.devices()[0].device_kind}",
        },
        hashes={
            "policy.onnx": export.sha256,
            "contract": export.contract.contract_hash,
            "robot": export.contract.robot_sha256,
        },
        next_steps=(
            (f"testudo inspect {folder / 'policy.onnx'}", "what is inside the artefact"),
            (f"testudo up --fleet {folder / 'fleet.yaml'} --seed 1", "drive again, with other robots"),
            (f"testudo view {folder / 'run'}", "look at the run: in a window, or as a film where there is no screen"),
            (f"testudo replay {folder / 'run'} --alter", "see re-inference fail on an altered input"),
            (f"testudo evaluate {folder / 'policy.onnx'} --team-size 2 4 6 8", "other team sizes"),
        ),
    )
