"""One training of the shield study with its evaluations."""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from testudo_bench.learning.study_runs import Budget, Point, Run
from testudo_policies.evaluation.evaluation import HELD_OUT_SEED
from testudo_policies.learning.builder import TrainingComponents, build
from testudo_policies.networks.agent import Agent, AgentParameters
from testudo_sim.environment import Environment


def study_components(budget: Budget, *, shielded: bool) -> TrainingComponents:
    """Return the components of a training.

    Without a shield a contact ends the episode and costs `Budget.contact_cost`; otherwise robots of the kinematic tier,
    which has no contact forces, would learn to pass through each other.
    """
    components = build(budget.config)
    if shielded:
        return components
    team = replace(components.environment.team, shielded=False)
    environment = replace(components.environment, team=team, contact_cost=budget.contact_cost)
    return replace(components, environment=environment)


class Trials:
    """Trains and evaluates policies; every program is compiled once per study."""

    def __init__(self, budget: Budget) -> None:
        """Prepare the runs of a budget, without compiling."""
        self._budget = budget

    def run(self, seed: int, *, shielded: bool, say: Callable[[float], None]) -> Run:
        """Train from one seed, and evaluate with and without the shield; ``say`` receives the completed fraction."""
        budget, points, contacts, seconds = self._budget, [], 0, 0.0
        with jax.default_matmul_precision(budget.config.precision):
            start, update = self._learner(shielded)
            state = start(jax.random.key(seed))
            for done in range(budget.updates + 1):
                if done in budget.evaluated_at:
                    points += [self._point(done, state.parameters, shielded=on) for on in (True, False)]
                if done < budget.updates:
                    begin = time.perf_counter()
                    state, metrics = update(state)
                    contacts += int(metrics["train/contacts"])
                    seconds += time.perf_counter() - begin
                say(done / budget.updates)
        return Run(shielded, seed, tuple(points), contacts, seconds)

    @functools.cache  # noqa: B019 -- one object for each study
    def _learner(self, shielded: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
        ppo = study_components(self._budget, shielded=shielded).learner
        return ppo.start, jax.jit(ppo.update).lower(ppo.start(jax.random.key(0))).compile()

    @functools.cache  # noqa: B019 -- as above
    def _evaluator(self, shielded: bool) -> Callable[..., Any]:
        components = study_components(self._budget, shielded=shielded)
        environment = replace(components.environment, contact_cost=None)
        return jax.jit(functools.partial(play_episodes, environment, components.agent))

    def _point(self, update: int, parameters: AgentParameters, *, shielded: bool) -> Point:
        keys = jax.vmap(jax.random.key)(HELD_OUT_SEED + jnp.arange(self._budget.episodes))
        tally = jax.device_get(self._evaluator(shielded)(parameters, keys))
        return point_of(tally, update, shielded=shielded, team_size=self._budget.team_size)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrialTally:
    """Counts of episodes until success or the time limit, all (E,)."""

    reached: jax.Array  # bool
    onsets: jax.Array  # int: decisions in which a contact begins
    touching: jax.Array  # bool: in contact in the last decision
    interventions: jax.Array  # sum over the decisions of the share of robot-ticks in which the shield acts
    decisions: jax.Array  # int: until success or the end
    duration_s: jax.Array


def play_episodes(environment: Environment, agent: Agent, parameters: AgentParameters, keys: jax.Array) -> TrialTally:
    """Run one episode for each key (E,) with the most probable actions, as one program."""
    policy, size, worlds = agent.policy(parameters), environment.team.size, keys.shape[0]
    decision_s = environment.scenario.decision_ticks * environment.team.model.spec.control_period_s
    none, zero = jnp.zeros(worlds, bool), jnp.zeros(worlds)
    count = jnp.zeros(worlds, jnp.int32)

    def unfinished(carry: Any) -> jax.Array:
        index, _, _, tally = carry
        return (index < environment.horizon) & ~jnp.all(tally.reached)

    def decide(carry: Any) -> Any:
        index, world, hidden, tally = carry
        signals = {name: x.reshape(-1, *x.shape[2:]) for name, x in environment.signals(world).items()}
        velocity, hidden = policy(signals, hidden)
        nominal = jnp.transpose(velocity.reshape(worlds, size, -1), (2, 1, 0))
        key = jax.random.fold_in(jax.random.key(HELD_OUT_SEED), index)
        team, metrics = environment.run_ticks(world, nominal, key)
        world, score = environment.advance(world, team, metrics.change_m_s)
        still_open, touching = ~tally.reached, metrics.contacts > 0
        tally = TrialTally(
            tally.reached | score.success,
            tally.onsets + (touching & ~tally.touching & still_open),
            jnp.where(still_open, touching, tally.touching),
            tally.interventions + jnp.where(still_open, metrics.interventions, 0.0),
            tally.decisions + still_open,
            tally.duration_s + jnp.where(still_open, decision_s, 0.0),
        )
        return index + 1, world, hidden, tally

    first = (
        0,
        environment.reset(keys),
        agent.blank_memory(worlds * size),
        TrialTally(none, count, none, zero, count, zero),
    )
    return jax.lax.while_loop(unfinished, decide, first)[-1]


def point_of(tally: TrialTally, update: int, *, shielded: bool, team_size: int) -> Point:
    """Return the evaluation of counted episodes."""
    touched = tally.onsets > 0
    good = tally.reached & ~touched
    robot_hours = float(tally.duration_s.sum()) * team_size / 3600
    return Point(
        update,
        shielded,
        float(good.mean()),
        float(tally.reached.mean()),
        float(touched.mean()),
        float(tally.onsets.sum()) / robot_hours,
        float(tally.duration_s[good].mean()) if good.any() else None,
        float(tally.interventions.sum() / tally.decisions.sum()),
    )
