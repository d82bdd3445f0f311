"""Settings and fixtures that hold for all tests; what needs JAX is imported when it is asked for."""

import os
import signal

import pytest
from hypothesis import settings

# before any test module imports JAX: tests run on the CPU, also where an accelerator is present
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# a shell that starts the tests in the background has them ignore Ctrl-C, and all that they start with them
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# no deadline: the machine may be busy; derandomised: a test fails for everybody or for nobody
settings.register_profile("testudo", deadline=None, derandomize=True)
settings.load_profile("testudo")


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Compile quickly in this module: for programs that take the compiler longer than they run."""
    from tests.policies.quick import quick_compilation

    with quick_compilation(tmp_path_factory):
        yield


@pytest.fixture(scope="session")
def make_artefact(tmp_path_factory):
    """Return a function that makes a tiny policy for a robot, once for each robot."""
    from tests.deploy.tiny_policy import make_tiny_policy

    from testudo_deploy.contract.policy_artefact import PolicyArtefact
    from testudo_hardware.spec import load_robot

    made = {}

    def make(name, hidden_size=4):
        if (name, hidden_size) not in made:
            path = tmp_path_factory.mktemp("policy") / "policy.onnx"
            make_tiny_policy(path, load_robot(name), hidden_size)
            made[name, hidden_size] = PolicyArtefact.load(path)
        return made[name, hidden_size]

    return make


@pytest.fixture(scope="session")
def recorded(make_artefact):
    """Return a run of three robots in the very model; one loses its odometry for a while."""
    from tests.sim.recorded_run import record_run

    from testudo_hardware.spec import load_robot

    return record_run(make_artefact("gritsbot_x"), load_robot("gritsbot_x"), silent=((0, 60, 66),))
