"""A tiny training run and its policy file, which is proven to command what was trained."""

import pytest

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_policies.exporting import packaging, parity
from testudo_policies.exporting.packaging import package_policy
from testudo_policies.learning.training_run import load_parameters, train_run


def trained_and_proven(components, robot, folder):
    """Train, export and load as the robot does; return the artefact, and run folder and file as one evaluates them.

    The graph deviates from the trained policy, and the loaded file from its test vector, by at most 1e-5. Parity is
    measured for three numbers of slots and short loops; for all of them in `test_onnx_export.py`.
    """
    run, file = folder / "run", folder / "policy.onnx"
    assert train_run(components, run).finished
    with pytest.MonkeyPatch.context() as patch:  # each number of slots is a program to compile
        patch.setattr(parity, "SLOTS", (1, 3, 8))
        patch.setattr(packaging, "_LOOP_STEPS", 100)
        report = package_policy(components, load_parameters(components, run), file, [])
    assert report.parity.max_error <= 1e-5
    artefact = PolicyArtefact.load(report.path, robot=robot, sha256=report.sha256)
    assert artefact.replay_error <= 1e-5
    return artefact, (report.path, run)
