"""Every registered scenario keeps the rules of the interface; a scenario that breaks one is named with the rule."""

from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import EntryPoint, entry_points

import jax
import jax.numpy as jnp
import pytest

from testudo_deploy.contract.contract import NEIGHBOURS
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_sim.scenarios import scenario as scenario_module
from testudo_sim.scenarios import scenario_check
from testudo_sim.scenarios.navigation import Navigation
from testudo_sim.scenarios.scenario import Observation
from testudo_sim.scenarios.scenario_check import check_scenario

pytestmark = pytest.mark.usefixtures("quick")

NAMES = sorted(point.name for point in entry_points(group="testudo.scenarios"))
SPEC = load_robot("gritsbot_x")
FLIES = {"escort"}
SIZE, WORLDS = 4, 3


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_keeps_the_rules(name):
    spec = load_robot("crazyflie_2x") if name in FLIES else SPEC
    assert check_scenario(name, spec, 4).name == name


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_gives_what_it_declares(name):
    """The shapes alone, which are traced and not compiled: all other rules take a program for each scenario."""
    spec = load_robot("crazyflie_2x") if name in FLIES else SPEC
    scenario = scenario_module.make_scenario(name, spec, projection_parameters(spec))

    def course(keys):
        begin = jax.vmap(partial(scenario.start, team_size=SIZE), out_axes=-1)(keys)
        before, after = (scenario_check._scene_at(begin, way_m) for way_m in (0.0, 0.1))
        step = scenario.advance(begin.task, before, after, keys)
        return begin, scenario_check._shown(scenario, begin.task, before), step

    begin, (absent, signals, nominal), step = jax.eval_shape(course, jax.random.split(jax.random.key(0), WORLDS))
    place = (spec.dimension, SIZE, WORLDS)
    assert (begin.position_world.shape, begin.yaw.shape, nominal.shape) == (place, place[1:], place)
    assert absent is None or (absent.shape, absent.dtype) == (place[1:], bool)
    assert {key: value.shape for key, value in signals.items()} == {
        signal.name: (*reversed(signal.shape), SIZE, WORLDS)
        for signal in scenario.task_signals
        if NEIGHBOURS not in signal.shape
    }
    assert jax.tree.map(lambda x: (x.shape, x.dtype), step.task) == jax.tree.map(
        lambda x: (x.shape, x.dtype), begin.task
    )
    assert {value.shape for value in step.terms.values()} == {(SIZE, WORLDS)}
    assert {value.shape for value in step.metrics.values()} <= {(WORLDS,)}
    assert step.success is None or (step.success.shape, step.success.dtype) == ((WORLDS,), bool)


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
        if self.rule == "TaskStep":
            return step.task, step.terms, step.success
        return replace(step, success=step.success[None]) if self.rule == "bool" else step


class _Unregistered:
    """A state that JAX does not know."""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observation": Observation(frame="gaol_world")}, "the frame of its observation is one of .*; found 'gaol"),
        ({"observation": Observation(pull="gaol_world")}, "the pull of its observation is one of .*; found 'gaol"),
        ({"name": "plain"}, "the task's state is arrays, in a dataclass .*register_dataclass.*; found _Unregistered"),
    ],
)
def test_a_declaration_that_leads_nowhere_is_refused(changes, message, monkeypatch):
    class Plain(Navigation):
        def start(self, key, team_size):
            begin = super().start(key, team_size)
            return replace(begin, task=_Unregistered()) if self.name == "plain" else begin

    monkeypatch.setattr(
        scenario_check, "make_scenario", lambda _, spec, shield: replace(Plain.create(spec, shield), **changes)
    )
    with pytest.raises(TestudoError, match=message):
        check_scenario("navigation", SPEC, 4)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_module:Task", "no_such_module:Task cannot be imported: No module named 'no_such_module'"),
        ("types:SimpleNamespaces", "scenario 'mine': types:SimpleNamespaces cannot be imported: .*SimpleNamespaces"),
        ("types:SimpleNamespace", r"types:SimpleNamespace has no create\(spec, shield\); expected a class method"),
        ("tests.sim.scenarios.test_every_scenario:Half", "Half has no arena, horizon_s, decision_ticks, boxes, "),
    ],
)
def test_an_entry_that_leads_nowhere_is_refused(value, message, monkeypatch):
    found = (EntryPoint("mine", value, "testudo.scenarios"),)
    monkeypatch.setattr(scenario_module, "entry_points", lambda group: found)
    with pytest.raises(TestudoError, match=message):
        check_scenario("mine", SPEC, 4)


class Half:
    """Half of a scenario."""

    name = "half"

    @classmethod
    def create(cls, spec, shield):
        return cls()


@pytest.mark.parametrize("rule", ["apart", "inside", "as declared", "alone", "finite", "bool", "TaskStep"])
def test_a_scenario_that_breaks_a_rule_is_refused(rule, monkeypatch):
    def broken(name, spec, shield):
        return replace(_Broken.create(spec, shield), rule=rule)

    monkeypatch.setattr(scenario_check, "make_scenario", broken)
    with pytest.raises(TestudoError, match=f"navigation: .*{rule}.*; found"):
        check_scenario("navigation", SPEC, 4)
