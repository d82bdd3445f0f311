"""Bags of rosbag2 that are not ours: read whole or damaged, their topics understood, several of them merged."""

from testudo_runs.bags.bag_contents import BagError
from testudo_runs.importing.bag_files.bag_folder import looks_like_bag
from testudo_runs.importing.bags.bag_reader import read_bags
from testudo_runs.importing.bags.mapping_proposal import Proposal, is_complete_mapping, propose_map

__all__ = ["BagError", "Proposal", "is_complete_mapping", "looks_like_bag", "propose_map", "read_bags"]
