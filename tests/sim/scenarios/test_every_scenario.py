"""Every registered scenario keeps the rules of the interface; a scenario that breaks one is named with the rule."""

from dataclasses import dataclass, replace
from importlib.metadata import entry_points

import jax
import jax.numpy as jnp
import pytest

from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_sim.scenarios import scenario_check
from testudo_sim.scenarios.navigation import Navigation
from testudo_sim.scenarios.scenario_check import check_scenario

pytestmark = pytest.mark.usefixtures("quick")

NAMES = sorted(point.name for point in entry_points(group="testudo.scenarios"))
SPEC = load_robot("gritsbot_x")
FLIES = {"escort"}


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_keeps_the_rules(name):
    spec = load_robot("crazyflie_2x") if name in FLIES else SPEC
    assert check_scenario(name, spec, 4).name == name


@dataclass(frozen=True, kw_only=True)
class _Broken(Navigation):
    """Breaks one rule."""

    rule: str = ""

    def start(self, key, team_size):
        begin = super().start(key, team_size)
        scale = {"apart": 0.01, "inside": 5.0}.get(self.rule, 1.0)
        return replace(begin, position_world=scale * begin.position_world)

    def signals(self, task, scene):
        return {} if self.rule == "as declared" else super().signals(task, scene)

    def advance(self, task, before, after, keys):
        step = super().advance(task, before, after, keys)
        if self.rule == "alone":
            noise = jax.random.normal(keys[0], step.terms["progress"].shape)
            return replace(step, terms=step.terms | {"progress": noise})
        if self.rule == "finite":
            return replace(step, terms=step.terms | {"progress": jnp.nan * step.terms["progress"]})
        return replace(step, success=step.success[None]) if self.rule == "bool" else step


@pytest.mark.parametrize("rule", ["apart", "inside", "as declared", "alone", "finite", "bool"])
def test_a_scenario_that_breaks_a_rule_is_refused(rule, monkeypatch):
    def broken(name, spec, shield):
        return replace(_Broken.create(spec, shield), rule=rule)

    monkeypatch.setattr(scenario_check, "make_scenario", broken)
    with pytest.raises(TestudoError, match=f"navigation: .*{rule}.*; found"):
        check_scenario("navigation", SPEC, 4)
