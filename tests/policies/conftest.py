"""The artefact of the tiny run, which several tests read."""

import pickle

import pytest
from filelock import FileLock
from tests.policies.quick import TINY

from testudo_policies.exporting.packaging import package_policy
from testudo_policies.learning.builder import build
from testudo_policies.learning.training_run import load_parameters


@pytest.fixture(scope="session")
def tiny_export(tiny_run):
    """Return the report of that run's export, which one worker makes for all."""
    folder = tiny_run.parent
    saved = folder / "export.pickle"
    with FileLock(folder / "export.lock"):
        if not saved.exists():
            components = build(TINY)
            parameters = load_parameters(components, tiny_run)
            saved.write_bytes(pickle.dumps(package_policy(components, parameters, folder / "policy.onnx", [])))
    return pickle.loads(saved.read_bytes())  # noqa: S301 -- written above
