"""Environment of a deployed team: all layers of the shield, asynchronous ticks, messages with echo, delay and loss.

Starts, goals and dynamics of a seed are those of `Environment`, so that the episodes of both compare one by one.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from testudo_deploy.shield.sensed_bodies import SensedBodies
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_deploy.shield.velocity_projection import ShieldResult
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import RobotSpec
from testudo_sim.environment import Environment, WorldState
from testudo_sim.physics.world_parameters import WorldParameters
from testudo_sim.physics_choice import PhysicsChoice, make_physics
from testudo_sim.scenarios.scenario import TaskScoring
from testudo_sim.team.crowd_links import CrowdLinks
from testudo_sim.team.deployed_team import DeployedTeam, DeployedTeamState, start_deployed, tick_deployed
from testudo_sim.team.fault_schedule import Faults, no_faults
from testudo_sim.team.residual_motion import begin_residual

STRIDE = 2  # simulation steps in a control period; each robot ticks at one of them, so that ticks are asynchronous
_PHASE_STREAM = 21  # random stream of the ticks' phases, so that other draws of a seed do not change


@dataclass(frozen=True, kw_only=True)
class DeployedEnvironment(Environment):
    """A deployed team in a scenario; `team` and `physics` run at the period of a simulation step.

    The policy decides for all robots at one moment; each robot applies its decision from its next tick on.
    """

    deployment: DeployedTeam
    robot: RobotSpec  # with its own control period
    lock_step: bool = False
    """Ticks and messages as in a fleet in lock-step, see `in_lock_step`."""

    @classmethod
    def of(cls, environment: Environment, physics: PhysicsChoice) -> "DeployedEnvironment":
        """Return the deployed team of an environment that has layer 1 alone.

        Raises:
            TestudoError: the scenario has movable boxes, and ``physics`` is a tier without them.
        """
        team, robot = environment.team, environment.team.model.spec
        model = motion_model(replace(robot, control_period_s=robot.control_period_s / STRIDE))
        space = stop_tube_parameters(robot)
        low, high = team.channels.message_ticks
        channels = replace(team.channels, message_ticks=(STRIDE * low, STRIDE * high))
        return cls(
            scenario=environment.scenario,
            team=replace(
                team,
                model=model,
                physics=make_physics(physics, model, team.arena, team.size, environment.scenario.boxes),
                channels=channels,
            ),
            spread=environment.spread,
            change_price=environment.change_price,
            facing_price=environment.facing_price,
            failures=environment.failures,
            curriculum=environment.curriculum,
            contact_cost=environment.contact_cost,
            task_channel=environment.task_channel,
            deployment=DeployedTeam(
                Shield(model, team.shield, replace(space, hold_ticks=STRIDE * space.hold_ticks), team.arena),
                stride=STRIDE,
                longest_message_ticks=STRIDE * high,
            ),
            robot=robot,
        )

    @property
    def in_lock_step(self) -> "DeployedEnvironment":
        """Return the environment of a fleet in lock-step.

        All robots tick at one moment; a message arrives at the next tick, and none is lost. No draw of `Channels` is
        like this, and it matters: robots that block each other in symmetry are not set free by a late message.
        """
        channels = replace(self.team.channels, message_ticks=(STRIDE, STRIDE), message_loss=(0.0, 0.0))
        return replace(self, team=replace(self.team, channels=channels), lock_step=True)

    @property
    def layers(self) -> str:
        """See `Environment.layers`."""
        return "all"

    @property
    def steps_per_tick(self) -> int:
        """See `Environment.steps_per_tick`."""
        return self.deployment.stride

    @property
    def scoring(self) -> TaskScoring:
        """See `Environment.scoring`."""
        return TaskScoring(self.scenario, self.robot, self.change_price, self.facing_price)

    def links(self, team: Any) -> CrowdLinks | None:
        """See `Environment.links`: the radio of a deployed team has a link of every pair."""
        return None

    def reset(self, keys: jax.Array, difficulty: jax.Array | None = None) -> WorldState:
        """See `Environment.reset`."""
        begin, parameters = self.draw_start(keys, difficulty)
        state = start_deployed(
            self.team,
            self.deployment,
            begin.position_world,
            begin.yaw,
            parameters,
            self._faults(keys, parameters),
            begin.velocity,
            bodies=begin.bodies,
            residual=begin_residual(self.team.noise, keys, self.team.size),
        )
        return replace(self.world(keys, state, begin.task), difficulty=difficulty)

    def restarted(self, done: jax.Array, fresh: WorldState, ended: WorldState) -> WorldState:
        """See `Environment.restarted`; all worlds count their messages together."""
        number = ended.team.number
        worlds = super().restarted(done, replace(fresh, team=_renumbered(fresh.team, number)), ended)
        return replace(worlds, team=replace(worlds.team, number=number))

    def tick(
        self,
        state: Any,
        nominal_world: jax.Array,
        key: jax.Array,
        standing: jax.Array | None = None,
        bodies: SensedBodies | None = None,
    ) -> tuple[DeployedTeamState, ShieldResult]:
        """See `Environment.tick`; one simulation step, at which a part of the robots ticks."""
        return tick_deployed(self.team, self.deployment, state, nominal_world, key, standing, bodies)

    def _faults(self, keys: jax.Array, parameters: WorldParameters) -> Faults:
        """Return asynchronous ticks, and messages of up to the longest time of their world; or those `in_lock_step`."""
        spec, size = self.team.model.spec, self.team.size
        stream = jax.vmap(lambda key: jax.random.fold_in(key, _PHASE_STREAM))(keys)
        phase = jax.vmap(lambda key: jax.random.randint(key, (size,), 0, STRIDE), out_axes=-1)(stream)
        driver_ticks = math.floor(self.robot.dead_man_s / spec.control_period_s + 1e-6) + 1
        faults = no_faults(spec.dimension, size, keys.shape[0], driver_ticks)
        longest = parameters.message_ticks.astype(jnp.int32)
        shortest = jnp.ones_like(longest)
        if self.lock_step:
            phase, shortest = jnp.zeros_like(phase), longest
        return replace(faults, phase=phase, message_ticks=jnp.stack([shortest, longest]))


def _renumbered(state: DeployedTeamState, number: jax.Array) -> DeployedTeamState:
    """Return an initial state whose messages are counted from ``number`` () on.

    A world can thus begin while others of its batch drive: all have one ring of messages. Numbers are exact up to
    2^24 ticks.
    """
    radio = state.radio
    radio = replace(
        radio,
        heard=radio.heard + number,
        acknowledged=radio.acknowledged + number,
        sent_heard=radio.sent_heard + number,
    )
    return replace(state, radio=radio, space=replace(state.space, since=state.space.since + number), number=number)
