"""Imports rosbag2 bags from other software: whole or damaged, several merged on one clock.

In: bags and a mapping, given or proposed from the bags.
Out: series by robot and role.
"""

from testudo_runs.bags.bag_contents import BagError
from testudo_runs.bags.bag_source import looks_like_bag
from testudo_runs.importing.bags.bag_reader import read_bags
from testudo_runs.importing.bags.mapping_proposal import Proposal, is_complete_mapping, propose_map

__all__ = ["BagError", "Proposal", "is_complete_mapping", "looks_like_bag", "propose_map", "read_bags"]
