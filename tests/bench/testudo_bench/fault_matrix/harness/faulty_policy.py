"""The policy node with a policy that fails on request: raise, hang SECONDS, nan, or clock SECONDS.

The request is in a file whose path is in the environment; it is deleted, and its time is reported as an event. `clock`
shifts the clock of the process, which all its ages and watchdogs read, for half a second.
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
    """Run the policy, or fail as requested."""
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
        raise RuntimeError("requested fault")
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
