"""Small teams under the deployed tick, far apart or head-on; for the tests of faults and of the tick itself."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_deploy.shield.shield import Shield
from testudo_deploy.shield.stop_tube import stop_tube_parameters
from testudo_hardware.motion import motion_model
from testudo_hardware.spec import load_robot
from testudo_sim.physics.kinematic_tier import KinematicPhysics
from testudo_sim.physics.world_parameters import Channels, draw_parameters
from testudo_sim.team.deployed_team import DeployedTeam, start_deployed, tick_deployed
from testudo_sim.team.fault_schedule import no_faults as _no_faults
from testudo_sim.team.team_tick import SimulatedTeam

QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""For programs that run for some hundred ticks only, most of the time is the compiler's."""
no_faults = jax.jit(_no_faults, static_argnames=("dimension", "size", "worlds", "driver_ticks"))
"""One program instead of one for each of its fields."""
CHANNELS = Channels(message_ticks=(1, 1), message_loss=(0.0, 0.0))


@cache
def deployed(name="gritsbot_x", size=2, *, longest=2, **changes):
    """Return team and deployment; ``project=False`` leaves layer 1 out.

    The same objects for the same arguments: `drive` compiles one program for each deployment.
    """
    spec = load_robot(name)
    model, parameters = motion_model(spec), projection_parameters(spec)
    team = SimulatedTeam(
        model, parameters, None, KinematicPhysics(model, None), size, CHANNELS, shielded=changes.get("gate", True)
    )
    shield = Shield(model, parameters, stop_tube_parameters(spec), None, project=changes.pop("project", True))
    return team, DeployedTeam(shield, longest_message_ticks=longest, **changes)


def begin(team, deployment, place, yaw, faults, seed=0, *, spread=1.0, velocity=None):
    """Return the state of worlds in which robots are at places (D, N, E), at rest or with a velocity.

    Without the deadlock rule: the wanted velocities are exactly those of the test.
    """
    worlds = place.shape[-1]
    keys = jax.random.split(jax.random.key(seed), worlds)

    def start(keys, place, yaw, faults, velocity):
        parameters = draw_parameters(keys, team.model.spec, team.channels, spread)
        alone = jnp.zeros(worlds, bool)
        return start_deployed(team, deployment, place, yaw, parameters, faults, velocity, resolves=alone)

    velocity = None if velocity is None else jnp.asarray(velocity, jnp.float32)
    return jax.jit(start, compiler_options=QUICK)(
        keys, jnp.asarray(place, jnp.float32), jnp.asarray(yaw, jnp.float32), faults, velocity
    )


def drive(team, deployment, state, wanted, ticks, before=lambda state: state):
    """Yield state and result of each tick; ``wanted`` is (D, N, E) or a function of the state.

    ``before`` changes the state before each tick.
    """
    step = _compiled_tick(team, deployment)
    for tick in range(ticks):
        velocity = wanted(state) if callable(wanted) else wanted
        state, result = step(before(state), jnp.asarray(velocity, jnp.float32), jax.random.key(tick))
        yield state, result


_TICKS = {}
"""Compiled ticks by the identity of team and deployment, which are not hashable, and which are kept with them."""


def _compiled_tick(team, deployment):
    def step(state, wanted, key):
        return tick_deployed(team, deployment, state, wanted, key)

    made = (jax.jit(step, compiler_options=QUICK), team, deployment)
    return _TICKS.setdefault((id(team), id(deployment)), made)[0]


def apart(size, worlds, distance=20.0):
    """Return places (D, N, E) of robots in a row across x, and yaws along x."""
    place = np.zeros((2, size, worlds))
    place[1] = distance * np.arange(size)[:, None]
    return place, np.zeros((size, worlds))


def places(state):
    """Return true positions (D, N, E); the kinematic tier's physics are the motion itself."""
    return np.asarray(state.physics.position_world)
