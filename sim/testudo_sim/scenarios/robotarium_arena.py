"""Where the Robotarium's walls stand: the arena of every scenario on the ground (arXiv 2505.06771)."""

from __future__ import annotations

from testudo_deploy.shield.arena import Arena

ROBOTARIUM = Arena((-1.6, -1.0), (1.6, 1.0))
SPAWN_EDGE_M = (0.35, 0.25)
"""Starts and goals lie inside 2.5 m x 1.5 m of it."""
