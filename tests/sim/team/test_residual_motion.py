"""Training moves robots by the residual motion of the robot file; `test_sampled_fleets` shows it of deployed ticks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.analysis.forecast.test_sampled_fleets import CORRELATION_S, DEVIATION_M_S, PLAIN, noisy_file
from tests.sim.deployed_team import QUICK

from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_policies.learning.builder import make_environment
from testudo_sim.deployed_environment import DeployedEnvironment
from testudo_sim.physics_choice import PhysicsChoice

WORLDS, TIME_S = 400, 1.0


def drift_along(environment):
    """Return how far idle robots (N, E) [m] come along their first heading."""
    size, period_s = environment.team.size, environment.team.model.spec.control_period_s

    def run(key):
        state = environment.reset(jax.random.split(key, WORLDS))
        begin = environment.scene(state).robots
        idle = jnp.zeros((2, size, WORLDS))

        def step(team, key):
            return environment.tick(team, idle, key)[0], None

        team, _ = jax.lax.scan(step, state.team, jax.random.split(key, round(TIME_S / period_s)))
        way = environment.team.physics.scene(team.physics).robots.position_world - begin.position_world
        return jnp.cos(begin.yaw) * way[0] + jnp.sin(begin.yaw) * way[1]

    return np.asarray(jax.jit(run, compiler_options=QUICK)(jax.random.key(0)))


def environment_of(spec):
    return make_environment("navigation", spec, projection_parameters(spec), 2)


def test_idle_robots_drift_as_the_integral_of_the_process_says():
    # variance of the integral of a first-order Gauss-Markov process over a time: Maybeck 1979, section 4.11
    ratio = TIME_S / CORRELATION_S
    expected_m = DEVIATION_M_S * CORRELATION_S * np.sqrt(2 * (ratio - 1 + np.exp(-ratio)))
    found = drift_along(environment_of(noisy_file()))
    assert found.std() == pytest.approx(expected_m, rel=0.08)
    assert abs(np.corrcoef(found)[0, 1]) < 0.15  # each robot by itself


@pytest.mark.parametrize(("spec", "shape"), [(noisy_file(), (3, 2, WORLDS)), (PLAIN, None)], ids=["noisy", "plain"])
def test_a_deployed_team_has_the_process_of_its_robot_file_or_none(spec, shape):
    deployed = DeployedEnvironment.of(environment_of(spec), PhysicsChoice())
    state = jax.eval_shape(lambda key: deployed.reset(jax.random.split(key, WORLDS)), jax.random.key(0))
    assert getattr(state.team.residual, "shape", None) == shape
