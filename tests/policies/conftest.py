"""The artefact of the tiny run, which several tests read."""

import pytest
from tests.policies.quick import TINY

from testudo_policies.exporting.packaging import package_policy
from testudo_policies.learning.builder import build
from testudo_policies.learning.training_run import load_parameters


@pytest.fixture(scope="session")
def tiny_export(tiny_run, tmp_path_factory):
    """Return the report of that run's export."""
    components = build(TINY)
    parameters = load_parameters(components, tiny_run)
    return package_policy(components, parameters, tmp_path_factory.mktemp("tiny") / "policy.onnx", [])
