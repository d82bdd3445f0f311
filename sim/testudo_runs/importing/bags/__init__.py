"""Bags of rosbag2 that are not ours: read whole or damaged, their topics understood, several of them merged."""

from testudo_runs.bags.contents import BagError
from testudo_runs.importing.bags.folder import looks_like_bag
from testudo_runs.importing.bags.propose import Proposal, propose_map, settled
from testudo_runs.importing.bags.read import read_bags

__all__ = ["BagError", "Proposal", "looks_like_bag", "propose_map", "read_bags", "settled"]
