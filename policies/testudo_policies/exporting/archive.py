"""Exports a run with a shared trunk as one archive with the proven policy of each scenario."""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from testudo_deploy.contract.policy_archive import POLICY_SUFFIX, write_archive
from testudo_deploy.contract.shipped_policies import fleet_beside
from testudo_policies.evaluation.evaluation import Evaluation
from testudo_policies.exporting.onnx_export import ExportReport
from testudo_policies.exporting.packaging import package_policy, write_fleet
from testudo_policies.learning.builder import build
from testudo_policies.learning.checkpoints import load_config, updates_made
from testudo_policies.learning.training_run import load_parameters
from testudo_policies.train_config import TrainConfig

ARCHIVE_FILE = "policies.zip"


def package_archive(
    config: TrainConfig, run: Path, path: Path, evaluations: Mapping[str, list[Evaluation]], seed: int
) -> Iterator[ExportReport]:
    """Write the archive ``path`` and a fleet file of each scenario beside it; yield the report on each policy.

    All are written only if each is proven. ``seed`` is that of the starts in the fleet files.

    Raises:
        ExportError: a graph deviates from its policy.
        CheckpointError: the run has no checkpoint.
    """
    policies, found = dict[str, bytes](), []
    with tempfile.TemporaryDirectory() as folder:
        for name in config.scenarios:
            components, file = build(load_config(run / name)), Path(folder) / f"{name}{POLICY_SUFFIX}"
            parameters = load_parameters(components, run / name)
            report = package_policy(components, parameters, file, evaluations[name], updates_made(run))
            policies[name] = file.read_bytes()
            found.append((components, replace(report, path=path / file.name)))
    write_archive(path, policies)
    for components, report in found:
        write_fleet(components, report, fleet_beside(report.path), seed)
        yield report


def updates_of(config: TrainConfig, run: Path) -> int:
    """Return how many updates made the newest parameters of a run folder, or of a scenario's in it."""
    return updates_made(run.parent if config.trunk else run)
