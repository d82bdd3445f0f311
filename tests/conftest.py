"""Settings and fixtures for all tests; fixtures import JAX only where a test uses them."""

import contextlib
import gc
import os
import shutil
import signal
from pathlib import Path

import pytest
from hypothesis import settings
from tests import processor_time
from tests.effort import examples
from tests.full_matrix import mark_left_out

# Set before a test module imports JAX. Tests run on the CPU, also where an accelerator is present.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Compilation takes most of the time of the tests that use JAX: compile with few optimisations, and each program once
# for all workers and later runs. As environment variables they also hold for the programs that tests start.
_PROGRAMS = Path(__file__).parents[1] / ".pytest_cache" / "programs"
_PROGRAMS_MAX_BYTES = 2_000_000_000
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# in one piece: the workers take both cores, and pieces cost a sixth of the processor time
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_parallel_codegen_split_count=1")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_PROGRAMS))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

# The matrices here are small: threads of BLAS and OpenMP cost more processor time than they save.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell that starts the tests in the background makes them, and all programs that they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# no deadline: the machine may be busy; derandomised: a test fails for everybody or for nobody
settings.register_profile("default", deadline=None, derandomize=True, max_examples=examples(100))
settings.register_profile("full", deadline=None, derandomize=True, max_examples=500)
settings.load_profile(os.environ.get("TESTUDO_HYPOTHESIS_PROFILE", "default"))

_LONG_ROOMS = ("test_verbs.py", "policies", "analysis", "bench", "sim")
"""Rooms whose files take longest: they run first, so that both workers end at about the same time."""


def pytest_configure(config):
    """Tell the processor time at the end; empty the cache of compiled programs when it is too large."""
    config.pluginmanager.register(processor_time)
    if hasattr(config, "workerinput"):
        return
    if sum(file.stat().st_size for file in _PROGRAMS.glob("*")) > _PROGRAMS_MAX_BYTES:
        shutil.rmtree(_PROGRAMS, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what only `make test-all` runs, and put the long rooms first; all workers need the same order."""
    mark_left_out(items)

    def rank(item):
        file = item.nodeid.partition("::")[0]
        room = file.removeprefix("tests/").partition("/")[0]
        return _LONG_ROOMS.index(room) if room in _LONG_ROOMS else len(_LONG_ROOMS), file

    items.sort(key=rank)


class _Backwards(pytest.Dir):
    """A folder whose files are imported from the last to the first."""

    def collect(self):
        yield from reversed(list(super().collect()))


def pytest_collect_directory(path, parent):
    """Let the second worker come from the other end: each then finds half of the bytecode written by the other."""
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw1":
        return _Backwards.from_parent(parent, path=path)
    return None


@pytest.fixture(autouse=True)
def own_scheduling():
    """Take back real-time scheduling that a test gave this process.

    Verbs of the operator raise their own priority; in the process of the tests, all later tests would keep it, and take
    the processor from every other program, the other worker among them.
    """
    if not hasattr(os, "sched_getscheduler"):
        yield
        return
    before = os.sched_getscheduler(0)
    yield
    if os.sched_getscheduler(0) != before and before == os.SCHED_OTHER:
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):
                os.sched_setscheduler(int(thread.name), before, os.sched_param(0))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """Search for cyclic garbage less often: what JAX keeps of its programs is searched anew each time, and stays."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Compile quickly in this module: for programs that take the compiler longer than they run."""
    from tests.policies.quick import quick_compilation

    with quick_compilation(tmp_path_factory):
        yield


@pytest.fixture(scope="module")
def optimised():
    """Compile with all optimisations in this module: for programs that run longer than the compiler takes."""
    import jax

    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1")


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """Return the folder of a tiny run that `testudo train` made, once for all workers: nothing is to write into it."""
    from filelock import FileLock
    from tests.policies.quick import TINY_OPTIONS

    from testudo_deploy.cli import main

    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, whole = shared / "tiny" / "run", shared / "tiny" / "whole"
    with FileLock(shared / "tiny.lock"):
        if not whole.exists():
            assert main(["train", "navigation", "--run", str(folder), *TINY_OPTIONS]) == 0
            whole.touch()
    return folder


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
