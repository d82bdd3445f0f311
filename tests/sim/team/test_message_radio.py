"""The simulated radio: what arrives when, and that ages by echo are never below the truth.

A message carries its number (the tick) as its x. Clocks with offsets are the roster's matter (`test_roster.py`): here
all count the same ticks, but no age is taken from a common clock: it is own tick minus the own number that was echoed.
"""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.sim.deployed_team import no_faults

from testudo_deploy.shield.reservations import NOTHING_HEARD, reserved_at_rest
from testudo_sim.team.message_radio import by_slot, exchange, message, neighbour_table, peer_spaces, receive_messages

SIZE, PERIOD_S, SLOTS = 3, 0.05, 12


def faults_of(worlds=1, **changes):
    return replace(no_faults(2, SIZE, worlds, driver_ticks=4), **{key: jnp.asarray(x) for key, x in changes.items()})


@functools.partial(jax.jit, static_argnames="ticks")
def _talk(faults, loss, sends, key, ticks):
    worlds = loss.shape[0]
    first = jnp.full((12, SIZE, worlds), float(NOTHING_HEARD))

    def step(radio, tick):
        said = jnp.broadcast_to(tick.astype(jnp.float32), first.shape)
        after = exchange(radio, said, sends[tick], tick, loss, faults, jax.random.fold_in(key, tick), jnp.inf)
        table = neighbour_table(after, tick + 1, PERIOD_S, faults)
        return after, (after.heard, after.content[0], after.acknowledged, table.age_s, after.silence)

    return jax.lax.scan(step, receive_messages(first, SLOTS), jnp.arange(ticks))[1]


def talk(faults, loss=0.0, sends=None, seed=0, ticks=60):
    """Return by tick what each robot had heard when the next tick began, each (T, K, N, E).

    Numbers, x of the content, acknowledged numbers, ages [s], ticks of silence.
    """
    worlds = faults.hostile_kind.shape[0]
    sends = np.ones((ticks, SIZE, worlds), bool) if sends is None else sends
    return map(np.asarray, _talk(faults, np.full(worlds, loss, np.float32), sends, jax.random.key(seed), ticks))


def reference(delay, ticks):
    """Return numbers heard and acknowledged by any robot of any peer after each tick, for one fixed delay."""
    heard = np.array([max(tick + 1 - delay, NOTHING_HEARD) for tick in range(ticks)], float)
    # message n was sent when the messages of tick n - 1 had been dealt with
    acknowledged = [2.0 * NOTHING_HEARD if n < 0 else NOTHING_HEARD if n == 0 else heard[int(n) - 1] for n in heard]
    return heard, np.array(acknowledged)


@pytest.mark.parametrize("delay", [1, 2, 5, 11])
def test_messages_arrive_after_their_delay_and_echo_what_was_heard_then(delay):
    faults = faults_of(message_ticks=[[delay], [delay]])
    heard, content, acknowledged, age_s, silence = talk(faults)
    numbers, echoed = reference(delay, len(heard))
    assert (heard == numbers[:, None, None, None]).all()
    assert (content == heard).all()
    late = numbers >= 1
    assert (acknowledged[late] == echoed[late][:, None, None, None]).all()
    # in the end: both ways of the message
    assert age_s[-1] == pytest.approx(2 * delay * PERIOD_S)
    assert (silence[delay:] == 0).all()


def random_faults(seed, worlds=24):
    """Return worlds with different delays, losses of links, phases and blackouts, and who sends when."""
    rng = np.random.default_rng(seed)
    low = rng.integers(1, 6, worlds)
    high = np.minimum(low + rng.integers(0, 6, worlds), SLOTS - 1)
    begin = rng.integers(0, 80, worlds)
    faults = faults_of(
        worlds,
        message_ticks=np.stack([low, high]),
        blackout=np.stack([begin, begin + rng.integers(0, 30, worlds)]),
        link_loss=(rng.random((SIZE - 1, SIZE, worlds)) < 0.2) * rng.random((SIZE - 1, SIZE, worlds)),
    )
    sends = jnp.asarray(rng.random((120, SIZE, worlds)) < rng.choice([0.3, 1.0], worlds))
    return faults, sends


@pytest.mark.parametrize("loss", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_ages_by_echo_are_never_below_the_truth(loss, seed):
    """Whatever is late, lost, overtaken, or silent; and a newer message never gives way to an older one."""
    faults, sends = random_faults(seed)
    heard, content, acknowledged, age_s, _ = talk(faults, loss, sends, seed, ticks=120)
    now = np.arange(1, 121)[:, None, None, None]
    assert (content == heard).all()
    assert (np.diff(heard, axis=0) >= 0).all()
    assert (np.diff(acknowledged, axis=0) >= 0).all()
    assert (acknowledged <= heard).all()
    truth = (now - heard) * PERIOD_S
    assert (age_s >= truth - 1e-4).all()
    assert (age_s <= (now + 2) * PERIOD_S + 1e-4).all()
    if loss < 0.9:
        assert (heard[-1] > 0).mean() > 0.9


def test_a_blind_age_is_below_the_truth():
    """Negative control: since arrival no time has passed, although the message took five ticks."""
    faults = faults_of(message_ticks=[[5], [5]], blind_age=[True])
    heard, _, _, age_s, _ = talk(faults)
    truth = (np.arange(1, 61)[:, None, None, None] - heard) * PERIOD_S
    assert (age_s[10:] < truth[10:] - 4.9 * PERIOD_S).all()


def test_in_a_blackout_nothing_arrives_and_ages_grow():
    faults = faults_of(blackout=[[20], [40]])
    heard, _, _, age_s, silence = talk(faults)
    assert (heard[19] == 19).all()
    assert (heard[20:40] == 19).all()
    assert (heard[40] == 40).all()
    assert np.diff(age_s[19:40], axis=0) == pytest.approx(PERIOD_S, abs=1e-4)
    assert (silence[39] == 20).all()


def test_a_link_may_be_lost_one_way():
    """Robot 0 never hears robot 1; robot 1 hears robot 0, which is told, but never by robot 1's acknowledgement."""
    link_loss = np.zeros((SIZE - 1, SIZE, 1))
    link_loss[0, 0] = 1.0  # slot 0 of robot 0 is robot 1
    heard, _, acknowledged, age_s, silence = talk(faults_of(link_loss=link_loss))
    assert (heard[:, 0, 0] == NOTHING_HEARD).all()
    assert silence[-1, 0, 0, 0] == 60
    assert age_s[-1, 0, 0, 0] >= 60 * PERIOD_S
    # slot of robot 0 in the table of robot 1: 0 = (1 + 1 + 1) % 3
    assert heard[-1, 1, 1, 0] == 59
    assert acknowledged[-1, 1, 1, 0] == NOTHING_HEARD  # robot 0 has nothing to acknowledge
    others = np.ones((SIZE - 1, SIZE), bool)
    others[0, 0] = others[1, 1] = False
    assert (heard[-1][others] == 59).all()
    assert (acknowledged[-1][others] == 58).all()


def test_who_does_not_send_is_not_heard():
    sends = jnp.ones((60, SIZE, 1), bool).at[30:, 2].set(False)
    heard, *_ = talk(faults_of(), sends=sends)
    for robot in range(SIZE):
        for slot in range(SIZE - 1):
            peer = (robot + 1 + slot) % SIZE
            assert heard[-1, slot, robot, 0] == (29 if peer == 2 else 59)


def test_lanes_and_points_come_out_as_they_went_in():
    rng = np.random.default_rng(0)
    place = jnp.asarray(rng.uniform(-1, 1, (2, SIZE, 4)), jnp.float32)
    space = replace(
        reserved_at_rest(place),
        owned_world=jnp.asarray(rng.uniform(-1, 1, (2, 2, SIZE, 4)), jnp.float32),
        announced_world=jnp.asarray(rng.uniform(-1, 1, (2, 2, SIZE, 4)), jnp.float32),
    )
    radio = receive_messages(message(place, 2 * place, space, 3 * place), 3)
    table = neighbour_table(radio, jnp.zeros((), jnp.int32), PERIOD_S, faults_of(4))
    reserves = jnp.asarray(rng.random((SIZE - 1, SIZE, 4)) < 0.5)
    peers = peer_spaces(radio, 5.0, reserves)
    assert (table.control_point_world == by_slot(place)).all()
    assert (table.control_velocity_world == by_slot(2 * place)).all()
    assert (table.wanted_world == by_slot(3 * place)).all()
    for robot in range(SIZE):
        for slot in range(SIZE - 1):
            other = (robot + 1 + slot) % SIZE
            assert (peers.owned_world[:, :, slot, robot] == space.owned_world[:, :, other]).all()
            assert (peers.announced_world[:, :, slot, robot] == space.announced_world[:, :, other]).all()
            assert (peers.first[slot, robot] == (robot < other)).all()
    assert (peers.acknowledged < 0).all()
    assert not peers.excused.any()
    assert (peers.reserves == reserves).all()
