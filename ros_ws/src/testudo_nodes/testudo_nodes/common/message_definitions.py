"""Message types by name: the class, and the definition as bags carry it, as ROS installed it."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

from testudo_hardware.errors import TestudoError

_RULE = "=" * 80
_FIELD = re.compile(r"^\s*(?P<type>[A-Za-z]\w*(?:/\w+)?)(?:\[[^\]]*\])?\s+[a-z]\w*", re.MULTILINE)
_PLAIN = re.compile(r"bool|byte|char|u?int(8|16|32|64)|float(32|64)|w?string")


class DefinitionError(TestudoError):
    """ROS has no definition of a message type here."""


def message_class(message_type: str) -> Any:
    """Return the Python class of a message type such as `nav_msgs/msg/Odometry`.

    Raises:
        DefinitionError: it is not installed.
    """
    package, kind, message = message_type.split("/")
    try:
        return getattr(importlib.import_module(f"{package}.{kind}"), message)
    except (ImportError, AttributeError) as error:
        raise DefinitionError(f"{message_type}: not installed; expected the ROS package {package}") from error


def message_definition(message_type: str) -> str:
    """Return the definition with everything that it refers to, in the form `ros2msg`.

    Args:
        message_type: for example `nav_msgs/msg/Odometry`.

    Raises:
        DefinitionError: the package or its definition is not installed.
    """
    parts, seen, waiting = [], {message_type}, [message_type]
    while waiting:
        name = waiting.pop(0)
        package, _, message = name.split("/")
        text = _share_file(package, f"msg/{message}.msg").read_text(encoding="utf-8")
        parts.append(text if not parts else f"{_RULE}\nMSG: {package}/{message}\n{text}")
        for found in _FIELD.finditer(text):
            used = found["type"]
            if _PLAIN.fullmatch(used):
                continue
            if used == "Header":
                used = "std_msgs/Header"
            if "/" not in used:
                used = f"{package}/{used}"
            full = used.replace("/", "/msg/")
            if full not in seen:
                seen.add(full)
                waiting.append(full)
    return "\n".join(part.rstrip("\n") for part in parts) + "\n"


def type_hash(message_type: str) -> str:
    """Return the hash `RIHS01_...` of a type; empty where ROS does not tell it."""
    package, _, message = message_type.split("/")
    try:
        tables = json.loads(_share_file(package, f"msg/{message}.json").read_text(encoding="utf-8"))
    except DefinitionError:
        return ""
    return next(
        (entry["hash_string"] for entry in tables.get("type_hashes", []) if entry["type_name"] == message_type),
        "",
    )


def _share_file(package: str, name: str) -> Path:
    # the ament index needs environment variables that wheels do not set; the layout is the same
    module = Path(importlib.import_module(package).__file__ or "")
    for folder in module.parents:
        file = folder / "share" / package / name
        if file.is_file():
            return file
    raise DefinitionError(
        f"{package}/{name}: no such definition beside {module.parent}; install the "
        f"ROS package {package} with its share folder"
    )
