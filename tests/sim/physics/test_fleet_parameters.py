"""Each robot has parameters from its own file, relative to what its software believes."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_sim.physics.fleet_parameters import draw_fleet_parameters, with_longest_delay
from testudo_sim.physics.world_parameters import Channels, Slots

BELIEVED = load_robot("gritsbot_x")


def drawn(files, *spread):
    """Return what 200 worlds with robots of some files have, by one program."""

    def draw(seeds):
        return draw_fleet_parameters(jax.vmap(jax.random.key)(seeds), BELIEVED, files, Channels(), *spread)

    return jax.device_get(jax.jit(draw)(np.arange(200)))


def with_quantity(key, attribute, value, low, high):
    changed = replace(BELIEVED.quantities[key], value=value, low=low, high=high)
    return replace(BELIEVED, quantities={**BELIEVED.quantities, key: changed}, **{attribute: value})


def test_scales_are_drawn_for_each_robot_and_relative_to_the_believed_file():
    slow = with_quantity("dynamics.speed_scale", "speed_scale", 0.8, 0.78, 0.82)
    made = drawn([BELIEVED, slow])
    assert made.scale.shape == (2, 2, 200)
    wide, narrow = np.asarray(made.scale[0])
    assert 0.8 <= wide.min() < 0.85
    assert 1.15 < wide.max() <= 1.2
    assert 0.78 <= narrow.min() < 0.79
    assert 0.81 < narrow.max() <= 0.82 + 1e-6
    assert abs(np.corrcoef(wide, narrow)[0, 1]) < 0.3  # robots are not drawn alike
    plain = drawn([BELIEVED, slow], 0.0)
    assert np.allclose(plain.scale[0, 0], 1.0)
    assert np.allclose(plain.scale[0, 1], 0.8)


def test_histories_hold_the_longest_delay():
    late = with_quantity("dynamics.command_delay", "command_delay_s", 0.2, 0.15, 0.25)
    made = drawn([BELIEVED, late])
    slots = Slots.create(with_longest_delay(BELIEVED, [late]), Channels()).commands
    assert made.delay_weights.shape == (slots, 2, 200)
    ticks = np.arange(slots)[:, None, None] * np.asarray(made.delay_weights)
    delay_s = ticks.sum(axis=0) * BELIEVED.control_period_s
    assert delay_s[0].min() >= 0.04
    assert delay_s[0].max() <= 0.06
    assert delay_s[1].min() >= 0.15
    assert delay_s[1].max() <= 0.25 + 1e-6


def test_a_file_of_another_kind_is_refused():
    with pytest.raises(TestudoError, match=r"robot file of crazyflie_2x: found .* expected differential_drive"):
        drawn([load_robot("crazyflie_2x")])
