"""The policy node with a policy that can be told to fail: SIGUSR1 makes it raise, SIGUSR2 hang."""

import signal
import time

from testudo_deploy.artefact import Artefact
from testudo_nodes.node_runner import tell
from testudo_nodes.policy_node import main

HANG_S = 1.0
_mode = ["well"]
_step = Artefact.step


def step(artefact, signals, hidden):
    mode, _mode[0] = _mode[0], "well"
    if mode == "raise":
        tell("fault", {"stamp_s": time.monotonic()})
        raise RuntimeError("told to")
    if mode == "hang":
        tell("fault", {"stamp_s": time.monotonic()})
        time.sleep(HANG_S)
    return _step(artefact, signals, hidden)


if __name__ == "__main__":
    Artefact.step = step
    signal.signal(signal.SIGUSR1, lambda *_: _mode.__setitem__(0, "raise"))
    signal.signal(signal.SIGUSR2, lambda *_: _mode.__setitem__(0, "hang"))
    main()
