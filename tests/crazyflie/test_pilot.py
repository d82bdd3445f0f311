"""Every time-out and loss of a flight by radio ends in a sentence, and in standstill, a landing or motors off."""

import math
import struct

import numpy as np
import pytest
from tests.crazyflie.closed_loop import Loop

from testudo_crazyflie.firmware import crtp_packets
from testudo_crazyflie.firmware.crtp_packets import Packet, encode
from testudo_crazyflie.firmware.firmware_supervisor import State
from testudo_crazyflie.udp_server import RadioConditions
from testudo_hardware.links.crazyflie.vehicle_messages import LinkPhase, VehicleAction
from testudo_hardware.spec import load_robot

EAST = (0.5, 0.0, 0.0)


def speed(loop):
    return float(np.linalg.norm(loop.craft.vehicle.velocity))


def lands(loop, within_s):
    return loop.run(within_s, lambda: loop.pilot.phase == LinkPhase.GROUND and loop.height_m < 0.01)


@pytest.mark.parametrize("as_point", [True, False], ids=["point", "attitude"])
def test_it_takes_off_flies_the_command_and_lands_softly(as_point):
    # a point follows with the scale that the file says; an attitude has drag in its place
    reached = np.array(EAST) * (load_robot("crazyflie_2x").speed_scale if as_point else 1.0)
    loop = Loop(as_point=as_point).fly(EAST)
    assert abs(loop.height_m - 1.0) < 0.1
    assert np.allclose(loop.craft.vehicle.velocity, reached, atol=0.01 if as_point else 0.1)
    before = loop.craft.vehicle.position.copy()
    loop.run(2.0)
    assert np.allclose(loop.craft.vehicle.position - before, 2.0 * reached, atol=0.03 if as_point else 0.15)
    assert not loop.ask("land", 0.04, 3.0)
    falls = []
    loop.run(6.0, lambda: falls.append(loop.craft.vehicle.velocity[2]))
    assert loop.pilot.phase == LinkPhase.GROUND
    assert loop.height_m < 0.01
    assert min(falls) > -1.0, "no fall from a height"
    assert set(loop.codes) == {""}


def test_set_points_go_out_at_every_step_while_it_flies():
    loop = Loop().fly(EAST)
    loop.orders.clear()
    loop.run(10.0)
    assert len(loop.orders) == 500
    assert {order.act for _, order in loop.orders} == {VehicleAction.SET_POINT}


def test_commands_that_end_are_followed_by_standstill_and_a_landing():
    loop = Loop().fly(EAST)
    loop.command = None
    late_s = loop.run(1.0, lambda: loop.pilot.code == "commands_silent")
    assert late_s <= 0.1 + 0.02 + 0.01 + 1e-6
    loop.run(1.5)
    assert speed(loop) < 0.02
    assert loop.pilot.sentence.startswith("no command for")
    assert lands(loop, 12.0)
    assert State.LEVEL_OUT not in loop.states


@pytest.mark.parametrize(("up_only", "as_point"), [(False, True), (True, True), (False, False)])
def test_a_silent_radio_levels_after_half_a_second_and_cuts_the_motors_after_two(up_only, as_point):
    loop = Loop(as_point=as_point).fly((1.0, 0.0, 0.0))
    begin = loop.craft.vehicle.position.copy()
    if up_only:  # as if the process with the radio were stopped
        loop.pilot.step = lambda _: []
    else:
        loop.channel.air = RadioConditions(silent=True)
    assert 0.49 < loop.run(1.0, lambda: loop.supervisor.state == State.LEVEL_OUT) < 0.55
    cut_s = loop.run(3.0, lambda: not loop.supervisor.motors_allowed)
    assert 1.45 < cut_s < 1.55
    drift = loop.craft.vehicle.position[0] - begin[0]
    assert 1.4 < drift < 2.0, "it coasts, it does not brake"
    loop.run(1.0)
    assert loop.supervisor.state == State.LOCKED
    if not up_only:
        assert loop.pilot.code == "radio_silent"
        assert "cuts its motors" in loop.pilot.sentence


def test_a_radio_that_comes_back_in_time_brakes_before_it_flies_on():
    loop = Loop().fly(EAST)
    loop.channel.air = RadioConditions(silent=True)
    loop.run(0.8)
    assert loop.supervisor.state == State.LEVEL_OUT
    loop.channel.air = RadioConditions()
    loop.run(0.6)
    assert loop.supervisor.state == State.FLYING
    assert speed(loop) < 0.05, "standstill first"
    loop.run(1.5)
    assert np.allclose(loop.craft.vehicle.velocity, EAST, atol=0.02), "after a healthy second the command passes"


def test_bursts_of_a_tenth_of_a_second_change_nothing():
    loop = Loop().fly(EAST)
    for _ in range(10):
        loop.channel.air = RadioConditions(silent=True)
        loop.run(0.1)
        loop.channel.air = RadioConditions()
        loop.run(0.4)
    assert set(loop.codes[-500:]) == {""}
    assert np.allclose(loop.craft.vehicle.velocity, EAST, atol=0.02)


def test_a_lost_log_block_is_told_apart_from_a_lost_radio_and_ends_in_a_landing():
    loop = Loop().fly(EAST)
    loop.craft.logs.reset()
    assert loop.run(1.0, lambda: loop.pilot.code == "block_silent") < 0.25
    assert "though the drone answers" in loop.pilot.sentence
    loop.run(0.6)
    assert speed(loop) < 0.1
    assert loop.run(12.0, lambda: loop.height_m < 0.01)
    assert State.FREE_FALL not in loop.states


@pytest.mark.parametrize("loss", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("repeats", [True, False], ids=["repeated", "dropped"])
def test_lost_packets_cost_smoothness_but_neither_flight_nor_landing(loss, repeats):
    loop = Loop(RadioConditions(loss, 0.002, repeats=repeats), seed=3, as_point=not repeats).fly(EAST)
    loop.run(10.0)
    assert State.LEVEL_OUT not in loop.states
    assert loop.craft.vehicle.position[0] > 4.0
    loop.ask("land", 0.04, 3.0)
    assert lands(loop, 10.0)
    assert State.FREE_FALL not in loop.states


def test_latency_makes_measurements_old_and_never_young():
    loop = Loop(RadioConditions(latency_s=0.04, jitter_s=0.02))
    loop.fly(EAST)
    assert min(loop.ages) >= 0.04 - 1e-3
    assert max(loop.ages) < 0.16
    loop.run(5.0)
    assert set(loop.codes) == {""}


def test_an_empty_battery_lands_and_forbids_the_next_take_off():
    loop = Loop().fly(EAST)
    loop.craft.vehicle.charge_v = 3.1  # 2.95 V under load
    assert 2.0 <= loop.run(4.0, lambda: loop.pilot.phase == LinkPhase.LANDING) < 2.2
    assert lands(loop, 10.0)
    loop.run(4.0)
    assert loop.ask("take_off").startswith("take-off refused: the battery is at 3.0")


def test_a_low_battery_is_left_to_the_supervisor_for_some_time():
    loop = Loop().fly()
    loop.craft.vehicle.charge_v = 3.23  # 3.08 V under load
    assert 14.9 < loop.run(20.0, lambda: loop.pilot.phase == LinkPhase.LANDING) < 15.2


def test_a_landing_before_the_take_off_moves_nothing():
    loop = Loop(auto_arm=False)
    loop.run(0.5)
    loop.ask("arm")
    assert not loop.ask("take_off")
    assert not loop.ask("land", 0.0, 1.0)
    loop.run(2.0)
    assert loop.pilot.phase == LinkPhase.GROUND
    assert not loop.craft.vehicle.motors_on


def test_a_tumbled_drone_stops_and_is_not_armed():
    loop = Loop().fly(EAST)
    loop.craft.vehicle.upside_down = True
    assert loop.run(1.0, lambda: loop.pilot.phase == LinkPhase.STOPPED) < 0.3
    assert not loop.supervisor.motors_allowed
    loop.run(1.0)
    assert loop.pilot.code == "tumbled"
    assert "put it upright" in loop.ask("arm")


def test_a_locked_drone_says_what_to_do():
    loop = Loop().fly(EAST)
    loop.supervisor.emergency = True
    loop.run(1.0)
    assert (loop.pilot.phase, loop.pilot.code) == (LinkPhase.STOPPED, "locked")
    assert loop.ask("take_off") == "take-off refused: the drone is locked: switch it off and on"


def test_arming_is_asked_for_and_its_refusal_is_told():
    loop = Loop(auto_arm=False)
    loop.run(0.5)
    assert loop.ask("take_off") == "take-off refused: the drone is not armed"
    loop.craft.supervisor.request_arming = lambda _: bytes([0, 0])
    assert not loop.ask("arm")
    loop.run(2.5)
    assert loop.pilot.refusal == "the drone was not armed within 2 s"
    upside_down = Loop(auto_arm=False)
    upside_down.craft.vehicle.upside_down = True
    upside_down.run(0.5)
    assert "tumbled" in upside_down.ask("arm")


@pytest.mark.parametrize("loss", [0.0, 0.5])
def test_a_drone_that_needs_arming_is_armed_flown_and_disarmed(loss):
    loop = Loop(RadioConditions(loss), seed=5, auto_arm=False).fly(EAST)
    assert loop.supervisor.armed
    loop.ask("land", 0.04, 2.0)
    assert lands(loop, 12.0)
    loop.run(1.0)
    assert not loop.supervisor.armed


def test_a_second_commander_is_noticed_and_the_drone_held():
    loop = Loop().fly((0.0, 0.0, 0.0))
    assert set(loop.codes) == {""}
    foreign = encode(Packet(crtp_packets.GENERIC, 0, struct.pack("<Bffff", 8, 0.0, 0.4, 0.0, 0.0)))

    def other():
        loop.craft.receive(foreign, loop.now_s)
        return loop.pilot.code == "second_commander"

    loop.command = EAST
    assert loop.run(1.0, other) < 0.2
    loop.orders.clear()
    loop.run(0.5, lambda: other() and False)
    assert {order.velocity_world for _, order in loop.orders} == {(0.0, 0.0, 0.0)}
    loop.run(0.9)
    assert (loop.pilot.code, loop.pilot.holds(loop.now_s)) == ("", "second_commander"), "and says why it waits"
    loop.run(1.1)
    assert not loop.pilot.holds(loop.now_s), "once it is gone all is well again"


@pytest.mark.parametrize("loss", [0.0, 0.5])
def test_an_emergency_turns_the_motors_off_whatever_is_lost(loss):
    loop = Loop(RadioConditions(loss), seed=7).fly(EAST)
    loop.ask("emergency")
    assert loop.run(2.0, lambda: not loop.supervisor.motors_allowed) < (0.06 if not loss else 1.0)
    loop.run(2.0)
    assert loop.supervisor.state == State.LOCKED
    assert loop.pilot.sentence == "emergency stop: motors are off; switch the drone off and on"


def test_a_drone_that_was_switched_off_and_on_is_not_flown_on():
    loop = Loop(clock_ahead_s=600.0).fly(EAST)
    loop.craft.restart(loop.now_s)
    loop._start_log()
    loop.run(0.3)
    assert (loop.pilot.phase, loop.pilot.code) == (LinkPhase.STOPPED, "restarted")


def test_a_drone_in_the_air_is_caught_by_a_pilot_that_comes_late():
    loop = Loop().fly(EAST)
    before, loop.pilot = loop.pilot, type(loop.pilot)(dead_man_s=0.1, speed_limit_m_s=1.0)
    assert before.phase == LinkPhase.FLYING
    loop.run(0.2)
    assert loop.pilot.phase == LinkPhase.FLYING
    assert State.LEVEL_OUT not in loop.states


def test_the_notice_before_the_landing_would_let_the_motors_stop():
    """The negative control of landing first: what set-points end with is an idle planner, which wants motors off."""
    loop = Loop().fly((0.0, 0.0, 0.0))
    loop.pilot.step = lambda _: []
    loop.craft.receive(encode(Packet(crtp_packets.GENERIC, 1, struct.pack("<BI", 0, 0))), loop.now_s)
    loop.run(0.1)
    assert not loop.craft.vehicle.motors_on
    assert loop.craft.vehicle.velocity[2] < -0.5


def test_the_set_point_that_cflib_ends_with_drops_the_drone():
    """The negative control of the quiet end of a link."""
    loop = Loop().fly((0.0, 0.0, 0.0))
    loop.pilot.step = lambda _: []
    loop.craft.receive(encode(Packet(crtp_packets.COMMANDER, 0, struct.pack("<fffH", 0.0, 0.0, 0.0, 0))), loop.now_s)
    loop.run(0.1)
    assert not loop.craft.vehicle.motors_on


def test_a_command_is_shortened_to_the_speed_limit():
    loop = Loop().fly((3.0, 0.0, 4.0))
    assert math.isclose(math.hypot(*loop.orders[-1][1].velocity_world), 1.0)


def test_set_points_end_a_climb_and_those_from_before_do_not():
    loop = Loop()
    loop.command = (0.0, 0.0, 0.0)
    loop.run(0.5)
    loop.command = None
    assert not loop.ask("take_off")
    loop.run(1.0)
    assert loop.pilot.phase == LinkPhase.TAKING_OFF
    loop.command = (0.0, 0.0, 0.0)
    loop.run(1.5)
    assert loop.pilot.phase == LinkPhase.FLYING
    assert speed(loop) < 0.05
    assert loop.height_m < 0.9


@pytest.mark.parametrize("after_s", [0.5, 1.0, 1.9, 2.5, 6.0])
def test_a_landing_asked_for_while_the_planner_climbs_or_hovers_lands(after_s):
    loop = Loop()
    loop.run(0.5)
    assert not loop.ask("take_off")
    loop.run(after_s)
    assert not loop.ask("land", 0.04, 3.0)
    assert lands(loop, 8.0)
    assert not loop.craft.vehicle.motors_on


def test_a_take_off_asked_for_with_the_arming_waits_for_it():
    loop = Loop(RadioConditions(0.3), seed=2, auto_arm=False)
    loop.run(0.5)
    assert not loop.ask("arm")
    assert not loop.ask("take_off")
    assert loop.run(6.0, lambda: loop.pilot.phase == LinkPhase.HOVERING)
    assert loop.height_m > 0.9


def test_a_drone_that_has_taken_off_hovers_by_itself_until_it_is_commanded():
    loop = Loop()
    loop.run(0.5)
    assert not loop.ask("take_off")
    loop.run(12.0)
    assert (loop.pilot.phase, loop.pilot.holds(loop.now_s)) == (LinkPhase.HOVERING, "")
    assert abs(loop.height_m - 1.0) < 0.1
    assert set(loop.codes) == {""}, "silence before the first command is no fault"
    assert VehicleAction.SET_POINT not in {order.act for _, order in loop.orders}
    loop.command = EAST
    loop.run(0.3)
    assert (loop.pilot.phase, loop.pilot.holds(loop.now_s)) == (LinkPhase.FLYING, "")
    assert speed(loop) > 0.1, "the first command passes at once"


def test_a_drone_that_nobody_commands_lands_by_itself():
    loop = Loop()
    loop.run(0.5)
    assert not loop.ask("take_off")
    loop.run(14.0)
    assert loop.height_m > 0.9
    loop.run(6.0, lambda: loop.pilot.phase == LinkPhase.LANDING)
    assert loop.pilot.holds(loop.now_s) == "landing"
    assert lands(loop, 12.0)


@pytest.mark.parametrize(
    "air",
    [RadioConditions(0.5, 0.005), RadioConditions(0.3, 0.02, 0.04), RadioConditions(latency_s=0.048)],
    ids=["half lost", "out of order", "late"],
)
@pytest.mark.parametrize("seed", [0, 3, 9])
def test_no_landing_stops_the_motors_in_the_air(air, seed):
    """Neither a notice that is early or late, nor a set-point that comes late, nor a planner that is too fast."""
    loop = Loop(seed=seed).fly(EAST)
    loop.channel.air = air
    loop.run(0.5)
    loop.ask("land", 0.04, 0.5)
    fallen = []
    assert loop.run(
        12.0, lambda: fallen.append(not loop.craft.vehicle.motors_on and loop.height_m > 0.15) or loop.height_m < 0.01
    )
    assert not any(fallen)
    assert State.FREE_FALL not in loop.states


def test_a_brake_on_board_stands_still_when_the_radio_is_lost_and_flies_on_after():
    loop = Loop(onboard_brake=True).fly(EAST)
    loop.channel.air = RadioConditions(silent=True)
    begin = loop.craft.vehicle.position.copy()
    loop.run(3.0)
    assert speed(loop) < 0.01
    assert np.linalg.norm(loop.craft.vehicle.position - begin) < 0.25
    assert not set(loop.states[-400:]) & {State.LEVEL_OUT, State.FREE_FALL, State.LOCKED}


def test_a_brake_on_board_is_no_second_commander():
    loop = Loop(onboard_brake=True).fly(EAST)
    for _ in range(6):
        loop.channel.air = RadioConditions(silent=True)
        loop.run(0.16)
        loop.channel.air = RadioConditions()
        loop.run(0.3)
    assert "second_commander" not in loop.codes
