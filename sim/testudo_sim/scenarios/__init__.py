"""Scenarios: one file each."""

from testudo_sim.scenarios.base import Scenario, StartState, make_scenario

__all__ = ["Scenario", "StartState", "make_scenario"]
