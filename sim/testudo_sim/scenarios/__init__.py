"""Scenarios, one file each.

In: robot file, team size, shield margins.
Out: starts, task signals, rewards and success.
"""

from testudo_sim.scenarios.scenario import Scenario, StartState, make_scenario

__all__ = ["Scenario", "StartState", "make_scenario"]
