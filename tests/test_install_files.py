"""Units, container files and launch commands of the pages name what exists."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = (*(ROOT / "docs").rglob("*.md"), ROOT / "ros_ws/README.md")
UNITS = sorted((ROOT / "deploy/systemd").glob("*.service"))
CONTAINERS = sorted((ROOT / "deploy/containers").glob("*.Dockerfile"))
KEYWORDS = {"ARG", "FROM", "RUN", "COPY", "WORKDIR", "ENTRYPOINT", "CMD"}
EXTRAS = re.compile(r"\"/src\[([a-z,]+)\]\"")


def launch_commands():
    """Return (place, words after the package) for each launch of ours in pages, units and container files."""
    for file in (*PAGES, *UNITS, *CONTAINERS):
        text = file.read_text(encoding="utf-8").replace("\\\n#", " ").replace("\\\n", " ")
        for found in re.finditer(r"ros2 launch testudo_bringup ([^`\n]*)", text):
            if found[1].split("#")[0].strip():
                yield file.name, shlex.split(found[1].split("#")[0])


def known_arguments():
    text = (ROOT / "ros_ws/src/testudo_bringup/testudo_bringup/launching.py").read_text(encoding="utf-8")
    return set(re.findall(r"(?:DeclareLaunchArgument|_switch)\(\s*\"(\w+)\"", text))


def test_every_launch_of_pages_and_units_names_a_file_and_arguments_that_exist():
    commands = list(launch_commands())
    assert {place for place, _ in commands} >= {
        "turtlebot4.md",
        "nav2.md",
        "testudo-station.service",
        "robot.Dockerfile",
    }
    known = known_arguments()
    assert "respawn" in known
    for place, (file, *words) in commands:
        assert (ROOT / "ros_ws/src/testudo_bringup/launch" / file).is_file(), place
        assert {word.partition(":=")[0] for word in words} <= known, f"{place}: {words}"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_units(unit, tmp_path):
    runner = tmp_path / "ros-run"
    shutil.copy(ROOT / "deploy/systemd/ros-run", runner)
    own = tmp_path / unit.name
    own.write_text(unit.read_text(encoding="utf-8").replace("/opt/testudo/bin/ros-run", str(runner)))
    result = subprocess.run(["systemd-analyze", "verify", own], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_station_at_boot_starts_no_robot():
    """A power cut that ends must not set robots in motion."""
    assert "start:=false" in (ROOT / "deploy/systemd/testudo-station.service").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", CONTAINERS, ids=lambda file: file.name)
def test_container_files_copy_what_exists_and_install_extras_that_exist(file):
    text = file.read_text(encoding="utf-8")
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    assert {line.split()[0] for line in lines} <= KEYWORDS
    for line in lines:
        if line.startswith("COPY "):
            *sources, _ = line.split()[1:]
            assert all((ROOT / source).exists() for source in sources), line
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (extras,) = EXTRAS.findall(text)
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras.split(","))
