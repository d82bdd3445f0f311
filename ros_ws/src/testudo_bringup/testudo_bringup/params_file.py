"""The file of ROS parameters that a user gives to the launch files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testudo_deploy.files.strict_yaml import parse_tables, read_text
from testudo_hardware.errors import TestudoError

_DECIDED = frozenset(
    {"fleet", "policy", "robot", "backend", "run_folder", "seed", "duration_s", "recorded", "start", "button"}
    | {"use_sim_time", "lock_step", "lock_step_nodes", "plant_flies", "configure"}
)
"""Parameters of nodes that the fleet file, the arguments and the plan of the launch decide."""


def params_file(text: str) -> list[str]:
    """Return the absolute path of the file that is named, if one is.

    Raises:
        TestudoError: there is no such file, it is not YAML, or it has a parameter that it may not decide.
    """
    if not text:
        return []
    file, expected = Path(text), "ROS parameters by node"
    tables = parse_tables(read_text(file, "params_file", TestudoError, expected), file, TestudoError, expected)
    found = sorted(_DECIDED & set(_parameters(tables)))
    if found:
        raise TestudoError(
            f"{file}: found {', '.join(found)}, expected none of them: the fleet file and the launch arguments decide"
        )
    return [str(file.absolute())]


def _parameters(values: Any) -> Iterator[str]:
    """Return the names of all parameters below any `ros__parameters`."""
    if isinstance(values, dict):
        for key, value in values.items():
            yield from map(str, value or {}) if key == "ros__parameters" else _parameters(value)
