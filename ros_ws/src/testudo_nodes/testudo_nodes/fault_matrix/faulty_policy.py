"""The policy node with a policy that fails when a file says so: raise, hang SECONDS, or nan.

The file's path is in the environment; a fault that was done deletes it, and its time is told as an event.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from testudo_deploy.artefact import Artefact
from testudo_nodes.node_runner import tell
from testudo_nodes.policy_node import main

VARIABLE = "TESTUDO_FAULT_FILE"
_step = Artefact.step


def step(artefact: Artefact, signals: dict[str, np.ndarray], hidden: np.ndarray) -> Any:
    """Run the policy, or fail as told."""
    file = Path(os.environ[VARIABLE])
    if not file.exists():
        return _step(artefact, signals, hidden)
    kind, _, amount = file.read_text(encoding="utf-8").partition(" ")
    file.unlink()
    tell("fault", {"stamp_s": time.monotonic()})
    if kind == "raise":
        raise RuntimeError("told to")
    if kind == "hang":
        time.sleep(float(amount))
    nominal, hidden = _step(artefact, signals, hidden)
    return (nominal * np.nan if kind == "nan" else nominal), hidden


if __name__ == "__main__":
    Artefact.step = step
    sys.exit(main())
