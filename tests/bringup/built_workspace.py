"""The built workspace, for tests of what is installed and for those that start it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def install(tmp_path_factory):
    """Return the install space of a build of `ros_ws`, outside of the repository."""
    space = tmp_path_factory.mktemp("colcon")
    words = [
        "build",
        "--base-paths",
        ROOT / "ros_ws" / "src",
        "--build-base",
        space / "build",
        "--install-base",
        space / "install",
    ]
    result = subprocess.run(
        [Path(sys.executable).with_name("colcon"), "--log-base", space / "log", *words],
        cwd=space,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 packages finished" in result.stdout
    return space / "install"
