"""Bags of rosbag2 that are not ours: read whole or damaged, their topics understood, several of them merged."""

from testudo_sim.importing.bags.contents import BagError
from testudo_sim.importing.bags.folder import looks_like_bag
from testudo_sim.importing.bags.read import read_bags

__all__ = ["BagError", "looks_like_bag", "read_bags"]
