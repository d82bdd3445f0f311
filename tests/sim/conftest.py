"""A tiny policy and a recorded run that several tests read."""

import pytest
from tests.deploy.tiny_policy import make_tiny_policy
from tests.policies.quick import quick_compilation
from tests.sim.recorded_run import record_run

from testudo_deploy.artefact import Artefact
from testudo_hardware.spec import load_robot


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Compile quickly in this module: for programs that take the compiler longer than they run."""
    with quick_compilation(tmp_path_factory):
        yield


@pytest.fixture(scope="session")
def make_artefact(tmp_path_factory):
    """Return a function that makes a tiny policy for a robot, once for each robot."""
    made = {}

    def make(name, hidden_size=4):
        if (name, hidden_size) not in made:
            path = tmp_path_factory.mktemp("policy") / "policy.onnx"
            make_tiny_policy(path, load_robot(name), hidden_size)
            made[name, hidden_size] = Artefact.load(path)
        return made[name, hidden_size]

    return make


@pytest.fixture(scope="session")
def recorded(make_artefact):
    """Return a run of three robots in the very model; one loses its odometry for a while."""
    return record_run(make_artefact("gritsbot_x"), load_robot("gritsbot_x"), silent=((0, 60, 66),))
