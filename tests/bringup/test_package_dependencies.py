"""`rosdep install` brings what the nodes import: package.xml, ros_ws/rosdep.yaml and pyproject.toml say the same."""

import ast
import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
NODES = ROOT / "ros_ws/src/testudo_nodes"
FROM_APT = {"numpy": "python3-numpy", "packaging": "python3-packaging", "pyyaml": "python3-yaml"}
"""Keys that rosdep itself has."""
OPTIONAL = {"crazyflie_interfaces", "motion_capture_tracking_interfaces"}
"""Of Crazyswarm2, which only its robots need."""
MESSAGES = re.compile(r"(\w+_(?:msgs|srvs|interfaces))/(?:msg|srv)/")


def depends():
    root = ET.parse(NODES / "package.xml").getroot()  # noqa: S314 -- our own file
    return {element.text for element in root.findall("exec_depend")}


def test_every_ros_package_that_is_imported_or_named_by_a_link_is_a_dependency():
    used = set()
    for file in (NODES / "testudo_nodes").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                used.add(node.module.partition(".")[0])
    used = {name for name in used if name == "rclpy" or re.fullmatch(r"\w+_(msgs|srvs|interfaces)", name)}
    for folder in ("hardware", "deploy", "ros_ws"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in (".py", ".toml"):
                used |= set(MESSAGES.findall(file.read_text(encoding="utf-8")))
    assert used >= {"rclpy", "rosgraph_msgs", "tf2_msgs"}
    assert used - OPTIONAL <= depends()


def test_every_package_of_the_robot_side_has_a_key_and_every_key_a_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {Requirement(text).name for text in [*project["dependencies"], *project["optional-dependencies"]["robot"]]}
    keys = yaml.safe_load((ROOT / "ros_ws/rosdep.yaml").read_text(encoding="utf-8"))
    installed = set()
    for key, systems in keys.items():
        assert systems["ubuntu"] == systems["debian"]
        name = re.fullmatch(r"testudo-(.+?)(?:-pip)?", key)[1]
        rule = systems["ubuntu"]
        assert rule == ({"pip": {"packages": [name]}} if key.endswith("-pip") else [f"python3-{name}"])
        installed.add(name)
    assert installed | set(FROM_APT) == needed
    python_keys = {key for key in depends() if key.startswith(("testudo-", "python3-"))}
    assert python_keys == set(keys) | set(FROM_APT.values())
