"""Fixtures that start a robot over real DDS, and that build the workspace."""

import pytest
from tests.bringup.built_workspace import install  # noqa: F401


@pytest.fixture(scope="module")
def make_bench(tmp_path_factory):
    """Return `start_bench`; what it starts is ended with the module."""
    from tests.ros.bench import start_bench  # needs ROS, which not every test here does

    started = []

    def make(**options):
        started.append(start_bench(tmp_path_factory.mktemp("fleet"), **options))
        return started[-1]

    yield make
    for bench in started:
        bench.close()
