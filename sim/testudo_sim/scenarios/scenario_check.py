"""The rules that every scenario keeps, as a check for the tests of this project and of packages with scenarios."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.contract.contract import NEIGHBOURS
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import RobotSpec
from testudo_sim.physics.scene import Scene, least_separation
from testudo_sim.scenarios.roles import Roles, trait_values
from testudo_sim.scenarios.scenario import (
    BODY,
    GOAL,
    POSITION,
    WORLD,
    Scenario,
    StartState,
    TaskStep,
    absent_robots,
    make_scenario,
)

_WORLDS, _DECISIONS = 3, 4
_CLOSE = 1e-5  # of values in single precision


def check_scenario(name: str, spec: RobotSpec, team_size: int) -> Scenario:
    """Check a registered scenario for a kind of robot, and return it.

    Starts are apart and inside the arena; signals are those that are declared; the task goes on with equal shapes and
    names at every decision, finite, and in a world alone as among others; robots that are absent are told by bools.

    Raises:
        TestudoError: a rule is broken; the text names scenario and rule, what was found and what was expected.
    """
    scenario = make_scenario(name, spec, projection_parameters(spec))
    _Check(scenario, spec, team_size).run()
    return scenario


class _Check:
    def __init__(self, scenario: Scenario, spec: RobotSpec, team_size: int) -> None:
        self._scenario, self._spec, self._size = scenario, spec, team_size
        # compiled: one operation at a time, each would be a program
        self._advance, self._shown = jax.jit(scenario.advance), jax.jit(partial(_shown, scenario))

    def _rule(self, is_kept: Any, rule: str, found: object) -> None:
        if not bool(is_kept):
            raise TestudoError(f"{self._scenario.name}: {rule}; found {found}")

    def run(self) -> None:
        scenario = self._scenario
        decision_s = scenario.decision_ticks * self._spec.control_period_s
        self._rule(scenario.horizon_s >= decision_s, "the time limit is at least one decision", scenario.horizon_s)
        range_m = scenario.observation.peer_range_m
        self._rule(range_m > 0, "the range of communication is positive", range_m)
        training, names = scenario.for_training(), [signal.name for signal in scenario.task_signals]
        found = [signal.name for signal in training.task_signals]
        self._rule(found == names, f"training has the signals of the task, {names}", found)
        self._observation(scenario)
        keys = jax.random.split(jax.random.key(0), _WORLDS)
        begin = self._starts(scenario, keys)
        if training is not scenario:
            self._starts(training, keys)
        self._roles(begin)
        together = self._course(begin, keys)
        self._difficulties(begin, keys, together[0])
        for world in range(_WORLDS):
            alone = self._course(jax.tree.map(lambda x, k=world: x[..., k : k + 1], begin), keys[world : world + 1])
            for one, other in zip(alone, together, strict=True):
                same = jax.tree.map(
                    lambda x, y, k=world: bool(np.allclose(x[..., 0], y[..., k], atol=1e-5)),
                    *map(_arrays, (one, other)),
                )
                self._rule(all(jax.tree.leaves(same)), "a world goes on alone as among others", same)

    def _observation(self, scenario: Scenario) -> None:
        """Check that frame, pull and share of speed are own signals of the task."""
        own = [signal for signal in scenario.task_signals if len(signal.shape) == 1]
        places = [signal.name for signal in own if signal.name == GOAL or signal.name.endswith(POSITION)]
        numbers = [signal.name for signal in own if signal.shape == (1,)]
        read = scenario.observation
        for role, found, known in (
            ("frame", read.frame, [WORLD, BODY, *places]),
            ("pull", read.pull, ["", *places]),
            ("speed", read.speed, ["", *numbers]),
        ):
            self._rule(found in known, f"the {role} of its observation is one of {known}", repr(found))

    def _begin(self, scenario: Scenario) -> Any:
        """Return the compiled function from keys (E,) to starts."""
        return jax.jit(jax.vmap(lambda key: scenario.start(key, self._size), out_axes=-1))

    def _declared(self, begin: StartState, keys: jax.Array) -> None:
        """Check the kinds of what a decision takes and gives, before anything is compiled."""
        scene = jax.eval_shape(_scene_at, begin, 0.0)
        self._signal_kinds(scene, *jax.eval_shape(self._shown, begin.task, scene))
        self._step_kinds(begin.task, jax.eval_shape(self._advance, begin.task, scene, scene, keys), _WORLDS)

    def _start_kinds(self, scenario: Scenario, keys: jax.Array) -> StartState:
        """Return shapes and types of the starts, which are traced and not compiled."""
        leaves: list[Any] = []

        def position_world(key: jax.Array) -> jax.Array:
            begin = scenario.start(key, self._size)
            leaves.extend(jax.tree.leaves(begin.task))
            return begin.position_world

        jax.eval_shape(position_world, keys[0])  # traced only: one operation at a time, each would be a program
        for leaf in leaves:
            rule = "the task's state is arrays, in a dataclass that jax.tree_util.register_dataclass has registered"
            self._rule(isinstance(leaf, jax.Array | np.ndarray), rule, type(leaf).__name__)
        begin = jax.eval_shape(self._begin(scenario), keys)
        shapes = (begin.position_world.shape, begin.yaw.shape)
        expected = ((self._spec.dimension, self._size, _WORLDS), (self._size, _WORLDS))
        self._rule(shapes == expected, f"positions and yaws of starts are {expected}", shapes)
        return begin

    def _starts(self, scenario: Scenario, keys: jax.Array) -> StartState:
        kinds = self._start_kinds(scenario, keys)
        if scenario is self._scenario:
            self._declared(kinds, keys)
        begin, again = self._begin(scenario)(keys), self._begin(scenario)(keys)
        pairs = zip(*map(jax.tree.leaves, map(_arrays, (begin, again))), strict=True)
        same = all(np.array_equal(x, y) for x, y in pairs)
        self._rule(same, "equal keys give equal starts", "others")
        self._rule(_is_finite(begin), "starts are finite", begin)
        weak = [x for x in jax.tree.leaves(begin) if x.weak_type]
        self._rule(not weak, "starts state the types of their numbers, as steps have them", weak)
        places = np.asarray(begin.position_world)
        apart = np.asarray(jax.jit(partial(least_separation, height_ratio=self._spec.height_ratio))(places))
        least = projection_parameters(self._spec).separation_m
        self._rule(np.all(apart > least - 1e-4), f"robots start at least {least:.3f} m apart", apart)
        low, high = (np.array(side)[:, None, None] for side in (scenario.arena.low_world, scenario.arena.high_world))
        self._rule(np.all((places > low) & (places < high)), "robots start inside the arena", places)
        return begin

    def _difficulties(self, begin: StartState, keys: jax.Array, step: TaskStep) -> None:
        """Check the starts of a scenario with difficulties: 1 is the task itself, and success says when to go on."""
        scenario: Any = self._scenario
        if not hasattr(scenario, "at"):
            return
        self._rule(step.success is not None, "a task with difficulties has success", None)
        for difficulty in (0.0, 0.5, 1.0):
            chosen = scenario.at(jnp.float32(difficulty))
            found = self._starts(chosen, keys)
            kinds = [jax.tree.map(lambda x: (x.shape, x.dtype), one) for one in (found, begin)]
            self._rule(kinds[0] == kinds[1], f"starts of every difficulty have the same shapes, {kinds[1]}", kinds[0])
        same = jax.tree.map(lambda x, y: bool(np.allclose(x, y, atol=_CLOSE)), *map(_arrays, (found, begin)))
        self._rule(all(jax.tree.leaves(same)), "difficulty 1 is the task itself", same)

    def _roles(self, begin: StartState) -> None:
        """Check that a task begins with the declared traits, and that robots read them as their own signals."""
        roles: Roles | None = getattr(self._scenario, "roles", None)
        if roles is None:
            return
        signals = self._scenario.task_signals
        missing = [signal.name for signal in roles.signals if signal not in signals]
        self._rule(not missing, "the traits of roles are signals of the task", f"not {missing}")
        declared = roles.traits(self._size, self._scenario.name)
        expected = trait_values({name: value[..., None] for name, value in declared.items()})
        named = _arrays(self._shown(begin.task, _scene_at(begin, 0.0))[1])
        for name, value in expected.items():
            same = np.all(np.abs(named[name] - np.asarray(value)) < _CLOSE)
            self._rule(same, f"the signal {name} begins as the trait that the roles declare", named[name])

    def _course(self, begin: StartState, keys: jax.Array) -> list[TaskStep]:
        """Return the steps of some decisions in which each robot drives into a direction of its own."""
        scenario, steps = self._scenario, []
        task, scene = begin.task, _scene_at(begin, 0.0)
        full_m = self._spec.control_point_speed_m_s * scenario.decision_ticks * self._spec.control_period_s
        self._signals(task, scene)
        for number in range(1, _DECISIONS + 1):
            after = _scene_at(begin, number * full_m)
            step = self._advance(task, scene, after, _folded(keys, number))
            self._step(task, step, keys.shape[0])
            if steps:
                found, expected = ((sorted(one.terms), sorted(one.metrics)) for one in (step, steps[-1]))
                self._rule(found == expected, f"terms and metrics are the same at every decision, {expected}", found)
            self._signals(step.task, after)
            steps.append(step)
            task, scene = step.task, after
        return steps

    def _signals(self, task: Any, scene: Scene) -> None:
        absent, named, nominal = self._shown(task, scene)
        self._signal_kinds(scene, absent, named, nominal)
        self._rule(_is_finite(named), "signals are finite", named)
        self._rule(_is_finite(nominal), "the nominal command is finite", nominal)
        slow = self._scenario.observation.speed
        share = np.asarray(named[slow][0]) if slow else 1.0
        speed = np.linalg.norm(np.asarray(nominal), axis=0) / self._spec.control_point_speed_m_s
        self._rule(np.all(speed < share + 1e-3), "the nominal command keeps the robots' share of full speed", speed)

    def _signal_kinds(self, scene: Scene, absent: Any, named: Mapping[str, Any], nominal: Any) -> None:
        found = None if absent is None else (absent.shape, absent.dtype.name)
        expected = ((self._size, scene.robots.yaw.shape[-1]), "bool")
        self._rule(found in (None, expected), f"absent robots are {expected}", found)
        worlds = scene.robots.yaw.shape[-1]
        shapes = {name: tuple(value.shape) for name, value in named.items()}
        declared = {
            signal.name: (*reversed(signal.shape), self._size, worlds)
            for signal in self._scenario.task_signals
            if NEIGHBOURS not in signal.shape  # a peer's signal is that peer's own
        }
        self._rule(shapes == declared, f"signals (component, ..., robot, world) are as declared, {declared}", shapes)
        expected = scene.robots.position_world.shape
        self._rule(
            nominal.shape == expected, f"the nominal command (component, robot, world) is {expected}", nominal.shape
        )

    def _step(self, task: Any, step: TaskStep, worlds: int) -> None:
        self._step_kinds(task, step, worlds)
        self._rule(_is_finite((step.task, step.terms, step.metrics)), "terms, metrics and task are finite", step)

    def _step_kinds(self, task: Any, step: TaskStep, worlds: int) -> None:
        self._rule(isinstance(step, TaskStep), "advance returns a TaskStep", type(step).__name__)
        kinds = [jax.tree.map(lambda x: (x.shape, x.dtype), one) for one in (step.task, task)]
        self._rule(kinds[0] == kinds[1], f"the task keeps its shapes, {kinds[1]}", kinds[0])
        terms = {name: value.shape for name, value in step.terms.items()}
        self._rule(
            set(terms.values()) == {(self._size, worlds)}, f"terms (robot, world) are {(self._size, worlds)}", terms
        )
        counts = {name: value.shape for name, value in step.metrics.items()}
        self._rule(set(counts.values()) <= {(worlds,)}, f"metrics (world) are {(worlds,)}", counts)
        success = None if step.success is None else (step.success.shape, step.success.dtype.name)
        self._rule(success in (None, ((worlds,), "bool")), f"success (world) is {(worlds,)} bool, or None", success)


def _shown(scenario: Scenario, task: Any, scene: Scene) -> tuple[Any, Mapping[str, jax.Array], jax.Array]:
    """Return the absent robots, or None, the signals and the nominal command."""
    return absent_robots(scenario, task), scenario.signals(task, scene), scenario.nominal_world(task, scene)


def _arrays(tree: Any) -> Any:
    """Return a tree of NumPy arrays: what is compared here needs no program."""
    return jax.tree.map(np.asarray, tree)


@jax.jit
def _folded(keys: jax.Array, number: int) -> jax.Array:
    return jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)


@jax.jit
def _scene_at(begin: StartState, way_m: float) -> Scene:
    """Return the scene in which each robot is this far from its start, in a direction of its own."""
    size = begin.yaw.shape[0]
    angle = 2.4 * jnp.arange(size)[:, None] + 0 * begin.yaw
    towards = jnp.stack([jnp.cos(angle), jnp.sin(angle), *(0 * angle for _ in range(len(begin.position_world) - 2))])
    return Scene(MotionState(begin.position_world + way_m * towards, begin.yaw, 0 * begin.position_world), begin.bodies)


def _is_finite(values: Any) -> bool:
    leaves = [leaf for leaf in jax.tree.leaves(values) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return all(bool(np.all(np.isfinite(leaf))) for leaf in leaves)
