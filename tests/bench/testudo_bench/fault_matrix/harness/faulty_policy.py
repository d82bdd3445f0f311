"""The policy node with a policy that fails when a file says so: raise, hang SECONDS, nan, or clock SECONDS.

The last moves the clock of the process, which every age and watchdog in it reads, by so much for half a second.

The file's path is in the environment; a fault that was done deletes it, and its time is told as an event.
"""

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_nodes.common.node_runner import report_status
from testudo_nodes.robot.policy_node import main

VARIABLE = "TESTUDO_FAULT_FILE"
_CLOCK_S = 0.5
_step = PolicyArtefact.step
_steady, _wall = time.monotonic, time.time


def step(artefact: PolicyArtefact, signals: dict[str, np.ndarray], hidden: np.ndarray) -> Any:
    """Run the policy, or fail as told."""
    file = Path(os.environ[VARIABLE])
    if not file.exists():
        return _step(artefact, signals, hidden)
    kind, _, amount = file.read_text(encoding="utf-8").partition(" ")
    file.unlink()
    report_status("fault", {"stamp_s": _steady()})
    if kind == "clock":
        _move_clocks(float(amount))
        threading.Timer(_CLOCK_S, _move_clocks, [0.0]).start()
    if kind == "raise":
        raise RuntimeError("told to")
    if kind == "hang":
        time.sleep(float(amount))
    nominal, hidden = _step(artefact, signals, hidden)
    return (nominal * np.nan if kind == "nan" else nominal), hidden


def _move_clocks(offset_s: float) -> None:
    """Let the wall clock and the steady clock of this process be ahead."""
    time.monotonic = lambda: _steady() + offset_s
    time.time = lambda: _wall() + offset_s


if __name__ == "__main__":
    PolicyArtefact.step = step
    sys.exit(main())
