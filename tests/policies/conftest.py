"""A tiny trained run and its artefact, which several tests read."""

import pytest
from tests.policies.quick import TINY, quick_compilation

from testudo_policies.exporting.packaging import package_policy
from testudo_policies.learning.builder import build
from testudo_policies.learning.training_run import load_parameters, train_run


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """Return the folder of a finished tiny run."""
    folder = tmp_path_factory.mktemp("tiny") / "run"
    with quick_compilation(tmp_path_factory):
        assert train_run(build(TINY), folder).finished
    return folder


@pytest.fixture(scope="session")
def tiny_export(tiny_run, tmp_path_factory):
    """Return the report of that run's export."""
    components = build(TINY)
    with quick_compilation(tmp_path_factory):
        parameters = load_parameters(components, tiny_run)
        return package_policy(components, parameters, tiny_run.parent / "policy.onnx", [])
