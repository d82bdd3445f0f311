"""A crude box that slides without inertia: a stand-in for MuJoCo where only the scenario is of interest.

Robots move as on the kinematic tier and are stopped by the box; each pushes with a force that grows with how
fast it would go into the box. The box moves at a speed that grows with what the friction leaves of the sum.
"""

from dataclasses import dataclass, replace

import jax.numpy as jnp

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.motion import MotionModel, MotionState, motion_model
from testudo_hardware.spec import load_robot
from testudo_plant.worlds.robot_bodies import Box
from testudo_sim.environment import Environment
from testudo_sim.physics.kinematic_tier import acting_command
from testudo_sim.physics.scene import BodyState, ContactCounts, Scene, count_contacts, least_separation
from testudo_sim.scenarios.push_box import largest_push_n
from testudo_sim.scenarios.scenario import make_scenario
from testudo_sim.team.team_tick import SimulatedTeam


@dataclass(frozen=True)
class SlidingBox:
    """Physics with one square box; its state is (robots, bodies)."""

    model: MotionModel
    box: Box
    arena: object
    name: str = "sliding"

    def reset(self, position_world, yaw, bodies=None, velocity=None):
        return MotionState(position_world, yaw, jnp.zeros_like(position_world)), bodies

    def advance(self, state, sent, parameters):
        spec, dt = self.model.spec, self.model.spec.control_period_s
        robots, bodies = state
        moved = self.model.step(robots, acting_command(sent, parameters), parameters.response)
        normal, depth = self._overlap(moved.position_world, bodies)
        # what is not stopped goes in by its speed in one tick, at most: that is the largest push
        push = largest_push_n(spec) * jnp.clip(depth / (spec.speed_limit_m_s * dt), 0.0, 1.5) * normal
        force = jnp.sum(push, axis=1)
        arm = moved.position_world - bodies.position_world
        torque = jnp.sum(arm[0] * push[1] - arm[1] * push[0], axis=0)
        holds = self.box.friction * self.box.mass_kg * 9.81
        lever = 0.7 * self.box.size_m[0]
        length = jnp.sqrt(jnp.sum(force**2, axis=0) + 1e-9)
        slide = jnp.maximum(1 - holds / (length + jnp.abs(torque) / lever + 1e-9), 0.0)
        speed = spec.speed_limit_m_s * dt * slide / (2 * largest_push_n(spec))
        bodies = BodyState(
            bodies.position_world + (speed * force)[:, None], bodies.yaw + (speed * torque / lever**2)[None]
        )
        normal, depth = self._overlap(moved.position_world, bodies)
        stopped = replace(moved, position_world=moved.position_world - normal * depth)
        return stopped, bodies

    def scene(self, state):
        return Scene(*state)

    def watch(self, state):
        place = state[0].position_world
        return ContactCounts(count_contacts(place, self.model.spec.body_radius_m, self.arena), least_separation(place))

    def _overlap(self, place, bodies):
        """Return how a robot would push (2, N, E), a unit vector into the box, and how deep it is (N, E) [m]."""
        offset = place - bodies.position_world
        cosine, sine = jnp.cos(bodies.yaw), jnp.sin(bodies.yaw)
        x, y = cosine * offset[0] + sine * offset[1], cosine * offset[1] - sine * offset[0]
        half = self.box.size_m[0] / 2
        near_x, near_y = jnp.clip(x, -half, half), jnp.clip(y, -half, half)
        away = jnp.sqrt((x - near_x) ** 2 + (y - near_y) ** 2 + 1e-12)
        depth = jnp.maximum(self.model.spec.body_radius_m - away, 0.0)
        into_x, into_y = (near_x - x) / away, (near_y - y) / away
        return jnp.stack([cosine * into_x - sine * into_y, sine * into_x + cosine * into_y]), depth


def sliding_environment(team_size, robot="gritsbot_x"):
    """Return `push_box` over the stand-in."""
    spec = load_robot(robot)
    model, shield = motion_model(spec), projection_parameters(spec)
    scenario = make_scenario("push_box", spec, shield)
    physics = SlidingBox(model, scenario.boxes[0], scenario.arena)
    return Environment(scenario, SimulatedTeam(model, shield, scenario.arena, physics, team_size))
