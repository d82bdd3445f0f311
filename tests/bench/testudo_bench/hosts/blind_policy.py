"""The policy node that knows no peers, as a negative control: no shield, no watchdog of peers' places, no right of way.

The unshielded policy of the fault matrix still holds where another robot's announced place is in its way, and still
turns right of who comes: large and slow robots pass each other by that.
"""

import sys
from typing import Any

from testudo_bench.fault_matrix.harness.unshielded_policy import step
from testudo_deploy.control.control_loop import ControlLoop
from testudo_deploy.control.deadlock_resolver import DeadlockResolver
from testudo_deploy.shield.shield import Shield
from testudo_nodes.robot.policy_node import main

if __name__ == "__main__":
    shield: Any = Shield
    loop: Any = ControlLoop
    resolver: Any = DeadlockResolver
    shield.step = step
    loop._reject_peers = lambda *_: None
    resolver.resolved = lambda _self, _place, _table, _first, nominal_world: nominal_world
    sys.exit(main())
