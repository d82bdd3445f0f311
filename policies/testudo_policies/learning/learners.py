"""The learners by the name that `--algorithm` takes, and what they can command."""

from collections.abc import Mapping
from typing import Any

from testudo_policies.learning.hasac import HASAC, MASAC
from testudo_policies.learning.maddpg import MADDPG
from testudo_policies.learning.ppo import PPO
from testudo_policies.learning.pqn_vdn import PQNVDN
from testudo_policies.learning.qmix import QMIX
from testudo_policies.learning.vdn import VDN

LEARNERS: Mapping[str, Any] = {
    "mappo": PPO,
    "ippo": PPO,
    "pqn-vdn": PQNVDN,
    "vdn": VDN,
    "qmix": QMIX,
    "maddpg": MADDPG,
    "hasac": HASAC,
    "masac": MASAC,
}
VALUES_OF_WAYPOINTS = ("pqn-vdn", "vdn", "qmix")
"""Learners of the values of choices, which need way-points."""
CONTINUOUS = ("maddpg", "hasac", "masac")
"""Learners that climb the value of an action, which need velocities."""
