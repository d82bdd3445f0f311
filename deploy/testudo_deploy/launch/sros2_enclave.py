"""Where the keys of each process lie in a keystore of ROS 2; pure."""

from __future__ import annotations

from testudo_deploy.launch.launch_plan import ProcessPlan

ENCLAVES = "/testudo"
"""All keys of a fleet lie below."""


def enclave_words(process: ProcessPlan) -> list[str]:
    """Return the words after `--ros-args` that name the enclave; without ROS 2 security nobody looks at it."""
    return ["--enclave", enclave_of(process)]


def enclave_of(process: ProcessPlan) -> str:
    """Return the enclave of a process, such as `/testudo/r0/guard`."""
    return f"{ENCLAVES}/{process.label}"
