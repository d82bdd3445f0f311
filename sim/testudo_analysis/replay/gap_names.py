"""Names in the tables of the open-loop gap."""

from typing import Literal

Reference = Literal["truth", "odometry"]
ALL_ROBOTS = "all"
"""Name of the rows that pool every robot."""
