"""Faults of the simulated worlds do what they say: pauses, dead processes, drivers, jumps, and hostile neighbours.

One program runs all of them, a fault in each world: two robots far apart that drive along x. Robot 0 has the fault.
Layer 1 is left out, which takes the compiler longest; nothing here is near enough for it.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from tests.sim.deployed_team import apart, begin, deployed, drive, no_faults, places

from testudo_deploy.shield.velocity_projection import ShieldStatus
from testudo_sim.team.fault_schedule import FALSE_SENDER, FIELDS, NEVER, PURSUER

WORLDS = 6  # of all tests of two robots, which then share one program
FINE, DEAD, LATE, JUMP, TURN, RUNAWAY = range(WORLDS)
DRIVER_TICKS, BEGIN, END, TICKS = 4, 30, 60, 90


def zero_but(shape, where, value):
    values = np.zeros(shape, np.float32)
    values[where] = value
    return values


@pytest.fixture(scope="module")
def log():
    """Drive the six worlds and return what happened by tick, each (T, ..., N, E)."""
    team, deployment = deployed(longest=2, has_hostile_robot=True, project=False)
    worlds = WORLDS
    faults = no_faults(2, 2, worlds, driver_ticks=DRIVER_TICKS)
    dead = np.full((2, worlds), NEVER)
    dead[0, [DEAD, RUNAWAY]] = BEGIN
    until = np.full((2, worlds), NEVER)
    until[0, DEAD] = END
    jump = np.full((2, worlds), NEVER)
    jump[:, [JUMP, TURN]] = [[BEGIN], [END]]
    faults = replace(
        faults,
        dead_from=dead.astype(np.int32),
        dead_until=until.astype(np.int32),
        jump=jump.astype(np.int32),
        jump_world=zero_but((2, worlds), (0, JUMP), 1.0),
        jump_yaw=zero_but((worlds,), TURN, 0.52),
        late_chance=zero_but((worlds,), LATE, 1.0),
        late_ticks=np.full((2, worlds), 3, np.int32),
        driver_ticks=np.where(np.arange(worlds) == RUNAWAY, NEVER, faults.driver_ticks).astype(np.int32),
    )
    wanted = np.zeros((2, 2, worlds))
    wanted[0] = 0.1
    rows = []
    for state, result in drive(team, deployment, begin(team, deployment, *apart(2, worlds), faults), wanted, TICKS):
        rows.append(
            {
                "sent": state.sent[0],
                "heard": state.radio.heard,
                "place": places(state),
                "located": state.located,
                "pause": state.pause,
                "status": result.status,
                "owned": state.space.owned_world,
                "weak": state.weak,
            }
        )
    return {key: np.stack([np.asarray(row[key]) for row in rows]) for key in rows[0]}


def speed(log, robot, world):
    return np.linalg.norm(log["sent"][:, :, robot, world], axis=1)


def test_without_faults_all_drive(log):
    assert speed(log, 0, FINE)[10:].mean() > 0.09
    assert (log["heard"][:, 0, 0, FINE] == np.arange(TICKS)).all()
    assert log["located"][:, :, FINE].all()
    assert not log["weak"].any()
    assert speed(log, 1, FINE)[10:].mean() > 0.09


def test_the_robot_that_goes_second_waits_for_a_dead_one(log):
    """R4: however far away, it gets no lane that the dead one has not acknowledged."""
    assert speed(log, 1, RUNAWAY)[-20:].mean() < 0.01
    assert log["place"][-1, 0, 1, RUNAWAY] < log["place"][-1, 0, 1, FINE] - 0.05


def test_a_dead_process_sends_nothing_and_its_driver_brakes(log):
    """The last command acts for the driver's ticks, its own among them; then zero, until the process is back."""
    sent = log["sent"][:, :, 0, DEAD]
    last = BEGIN - 1 + DRIVER_TICKS
    assert (sent[BEGIN - 1 : last] == sent[BEGIN - 1]).all()
    assert (sent[last:END] == 0).all()
    assert speed(log, 0, DEAD)[END + 5 :].mean() > 0.08
    heard = log["heard"][:, 0, 1, DEAD]  # by robot 1 of robot 0
    assert (heard[BEGIN:END] == BEGIN - 1).all()
    assert heard[-1] == TICKS - 1
    owned = log["owned"][..., 0, DEAD]
    assert (owned[BEGIN:END] == owned[BEGIN - 1]).all()


def test_with_a_wrong_dead_man_time_the_last_command_acts_for_ever(log):
    """Negative control."""
    assert (speed(log, 0, RUNAWAY)[BEGIN:] > 0.05).all()
    # out of all that it owns
    assert log["place"][-1, 0, 0, RUNAWAY] > log["owned"][-1, :, 0, 0, RUNAWAY].max() + 0.1


def test_a_late_process_runs_once_in_four_ticks(log):
    runs = log["pause"][:, 0, LATE] == 3
    assert np.diff(np.flatnonzero(runs)).tolist() == [4] * (TICKS // 4 - 1 + (TICKS % 4 > 0))
    changed = (np.diff(log["sent"][:, :, 0, LATE], axis=0) != 0).any(axis=1)
    assert not changed[~runs[1:]].any()  # four ticks is what the driver holds


@pytest.mark.parametrize("world", [JUMP, TURN])
def test_a_jump_of_the_pose_brakes_and_silences_until_it_is_over(log, world):
    located = log["located"][:, 0, world]
    assert located[:BEGIN].all()
    assert not located[BEGIN:END].any()
    assert located[END:].all()
    braked = slice(BEGIN + 1, END + 1)  # the pose of a tick serves the next one
    assert (speed(log, 0, world)[braked] == 0).all()
    assert (log["status"][braked, 0, world] == int(ShieldStatus.BRAKED)).all()
    assert (log["heard"][braked, 0, 1, world] == BEGIN).all()
    assert speed(log, 0, world)[END + 5 :].mean() > 0.08


def test_hostile_robots_behave_as_specified_and_are_flagged():
    """A pursuer drives at its neighbour, unshielded and silent; only a false sender is flagged."""
    team, deployment = deployed(longest=2, has_hostile_robot=True, project=False)
    faults = replace(
        no_faults(2, 2, WORLDS, driver_ticks=DRIVER_TICKS),
        hostile_kind=np.array([0, PURSUER, FALSE_SENDER] + [0] * (WORLDS - 3), np.int32),
        false_offset_world=zero_but((2, WORLDS), 0, 2.0),
    )
    place, yaw = apart(2, WORLDS, distance=4.0)
    wanted = np.zeros((2, 2, WORLDS))
    wanted[0] = 0.1
    states = [state for state, _ in drive(team, deployment, begin(team, deployment, place, yaw, faults), wanted, 60)]
    flagged = np.stack([np.asarray(state.flagged) for state in states])  # (T, K, N, E)
    assert not flagged[:, 0, :, 0].any()
    assert flagged[:, 0, 0, 1].all()
    assert flagged[5:, 0, 0, 2].all()
    assert not flagged[:, 0, 1].any()  # what the hostile robot knows of robot 0
    last = states[-1]
    assert places(last)[1, 1, 1] < 4.0 - 0.2  # the pursuer is nearer, against the wanted command
    assert (np.asarray(last.radio.heard)[0, 0, :3] == [59, -1, 59]).all()
    seen = np.asarray(last.table.control_point_world)[:, 0, 0]
    assert seen[:, 1:3] == pytest.approx(places(last)[:, 1, 1:3], abs=0.05)
    assert np.asarray(last.table.untrusted)[0, 0].tolist() == [False, True, True] + [False] * (WORLDS - 3)


def test_a_false_sender_lies_in_the_chosen_fields_only_and_is_not_flagged_without_tracking():
    """World f has a lie in field f alone, of the segments until they meet, and the last world has none.

    Nobody flags, as a negative control.
    """
    team, deployment = deployed(longest=2, has_hostile_robot=True, project=False)
    worlds = WORLDS
    faults = replace(
        no_faults(2, 2, worlds, driver_ticks=DRIVER_TICKS),
        hostile_kind=np.full(worlds, FALSE_SENDER, np.int32),
        false_offset_world=zero_but((2, worlds), 0, 2.0),
        false_fields=np.eye(len(FIELDS), worlds, dtype=bool),
        blind_tracking=np.ones(worlds, bool),
        message_ticks=np.full((2, worlds), 2, np.int32),
    )
    place, yaw = apart(2, worlds, distance=4.0)
    wanted = np.zeros((2, 2, worlds))
    *_, (state, _) = drive(team, deployment, begin(team, deployment, place, yaw, faults), wanted, 10)
    content = np.asarray(state.radio.content)[:, 0, 0]  # (7 D, E): what robot 0 heard
    truth = content[:, FIELDS.index("acknowledged")]
    lies = np.abs(content - truth[:, None]).reshape(7, 2, worlds)[:, 0] > 1.0
    assert lies.T.astype(int).tolist() == [
        [1, 0, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0, 0],
        [0, 0, 1, 1, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0],
    ]
    acknowledged = np.asarray(state.radio.acknowledged)[0, 0]
    lied = FIELDS.index("acknowledged")
    assert (acknowledged[lied] > np.delete(acknowledged, lied)).all()
    assert not np.asarray(state.flagged).any()


def test_a_robot_that_is_pushed_goes_on_talking_and_is_found_out():
    """Robot 1 stands because its brakes were found weak; the pursuer pushes it on at 0.2 m/s in one of two worlds.

    There robot 0 no longer trusts it, however old its messages are (all are late).
    """
    team, deployment = deployed(size=3, longest=10, has_hostile_robot=True, project=False)
    place, yaw = apart(3, 2, distance=4.0)
    faults = replace(
        no_faults(2, 3, 2, driver_ticks=DRIVER_TICKS),
        hostile_kind=np.array([PURSUER, PURSUER], np.int32),
        message_ticks=np.full((2, 2), 10, np.int32),
    )
    state = begin(team, deployment, place, yaw, faults)
    state = replace(state, weak=state.weak.at[1].set(True))
    way = np.zeros((2, 3, 2))
    way[0, 1, 0] = 0.2 * team.model.spec.control_period_s

    def pushed(state):
        moved = replace(state.physics, position_world=state.physics.position_world + jnp.asarray(way, jnp.float32))
        return replace(state, physics=moved)

    ticks = round(1.0 / team.model.spec.control_period_s)
    *_, (state, _) = drive(team, deployment, state, np.zeros((2, 3, 2)), ticks, before=pushed)
    assert np.asarray(state.flagged)[0, 0].tolist() == [True, False]
    assert (np.asarray(state.radio.silence)[0, 0] <= 2).all()  # heard, but not believed
    assert np.asarray(state.table.age_s)[0, 0, 1] > 0.5


def test_no_faults_are_none():
    faults = no_faults(3, 4, 5, driver_ticks=7)
    assert (faults.driver_ticks == 7).all()
    for field in (faults.dead_from, faults.blackout, faults.jump):
        assert (field == NEVER).all()
    assert (faults.message_ticks == 1).all()
    for field in (
        faults.phase,
        faults.late_chance,
        faults.link_loss,
        faults.jump_world,
        faults.jump_yaw,
        faults.hostile_kind,
        faults.false_offset_world,
        faults.blind_tracking,
        faults.blind_age,
        faults.blind_take,
    ):
        assert not jnp.any(field)
    assert faults.link_loss.shape == (3, 4, 5)
    assert faults.jump_world.shape == (3, 5)
