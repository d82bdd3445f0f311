"""Scenarios: one file each."""

from testudo_sim.scenarios.scenario import Scenario, StartState, make_scenario

__all__ = ["Scenario", "StartState", "make_scenario"]
