"""A drone that was sent off the ground and is not heard any more lands: nobody knows that it stands."""

import pytest
from tests.crazyflie.closed_loop import Loop

from testudo_crazyflie.firmware import crtp_packets
from testudo_crazyflie.firmware.firmware_supervisor import State
from testudo_crazyflie.udp_server import RadioConditions
from testudo_hardware.links.crazyflie.radio_link import CrazyflieRadio
from testudo_hardware.links.crazyflie.vehicle_messages import LinkPhase, VehicleAction
from testudo_hardware.spec import load_robot

LOST = (State.FREE_FALL, State.LOCKED, State.LEVEL_OUT)


class Deaf(Loop):
    """The log block can stop while the drone answers all else."""

    deaf = False

    def _hear(self, packet):
        if self.deaf and packet.port == crtp_packets.LOG:
            self.pilot.watch.hear(self.now_s)
        else:
            super()._hear(packet)


def took_off(after_s, **settings):
    loop = Deaf(**settings)
    loop.run(0.5)
    loop.ask("arm")
    loop.run(0.5)
    assert not loop.ask("take_off")
    loop.run(after_s)
    loop.deaf = True
    return loop


def stands(loop):
    return loop.height_m < 0.06 and not loop.craft.vehicle.motors_on


@pytest.mark.parametrize("auto_arm", [True, False])
@pytest.mark.parametrize("after_s", [0.02, 0.04, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5])
def test_a_log_that_ends_after_the_take_off_was_asked_for_ends_in_a_landing(after_s, auto_arm):
    loop = took_off(after_s, auto_arm=auto_arm)
    highest, falls = [], []
    loop.run(9.0, lambda: highest.append(loop.height_m) or falls.append(loop.craft.vehicle.velocity[2]))
    assert max(highest) > 0.2, "it did take off"
    assert min(falls) > -1.0, "and did not fall"
    assert stands(loop)
    assert not set(LOST) & set(loop.states)
    loop.deaf = False
    loop.run(3.0)
    assert loop.pilot.phase == LinkPhase.GROUND
    assert stands(loop)


@pytest.mark.parametrize("loss", [0.3, 0.5])
@pytest.mark.parametrize("seed", range(4))
def test_the_same_over_a_radio_that_loses_packets(loss, seed):
    loop = Deaf(RadioConditions(loss), seed=seed)
    assert loop.run(2.0, lambda: not loop.ask("take_off"))
    loop.run(0.3)
    loop.deaf = True
    loop.run(10.0)
    assert stands(loop)
    assert not {State.FREE_FALL, State.LOCKED} & set(loop.states)


@pytest.mark.parametrize("after_s", [0.02, 0.1, 0.3, 1.0])
def test_a_landing_that_is_asked_for_of_a_drone_that_is_not_heard_is_sent(after_s):
    loop = took_off(after_s)
    loop.run(0.3)
    loop.orders.clear()
    assert not loop.ask("land", 0.0, 3.0)
    assert loop.pilot.phase == LinkPhase.LANDING
    loop.run(0.05)
    loop.run(8.0)
    assert VehicleAction.LAND in {order.act for _, order in loop.orders}
    assert stands(loop)


def test_a_landing_right_after_the_take_off_went_out_is_not_forgotten():
    loop = Loop()
    loop.run(0.5)
    assert not loop.ask("take_off")
    loop.run(0.02)
    assert VehicleAction.TAKE_OFF in {order.act for _, order in loop.orders}
    assert not loop.ask("land", 0.04, 2.0)
    assert loop.pilot.phase == LinkPhase.LANDING
    assert loop.run(6.0, lambda: loop.pilot.phase == LinkPhase.GROUND)
    loop.run(3.0)
    assert stands(loop)


def test_a_log_that_comes_back_while_the_drone_lands_unseen_is_believed():
    loop = took_off(0.02)
    loop.run(1.3)
    assert loop.pilot.phase == LinkPhase.LANDING
    assert loop.pilot.holds(loop.now_s) == "landing"
    loop.deaf = False
    assert loop.run(8.0, lambda: loop.pilot.phase == LinkPhase.GROUND)
    assert stands(loop)
    assert not set(LOST) & set(loop.states)


def test_a_drone_that_stood_when_it_was_heard_last_is_left_alone():
    loop = Deaf()
    loop.run(1.0)
    loop.deaf = True
    loop.run(2.0)
    assert not loop.ask("land", 0.0, 2.0)
    loop.run(3.0)
    assert (loop.pilot.phase, loop.orders) == (LinkPhase.GROUND, [])


def test_closing_the_link_lands_a_drone_that_is_not_heard(monkeypatch):
    """`close` waits while the pilot lands, whatever it hears."""
    loop = took_off(0.02)
    loop.run(0.5)
    radio = CrazyflieRadio("cf1", load_robot("crazyflie_2x"), "udp://127.0.0.1:1")
    radio._pilot = loop.pilot
    module = "testudo_hardware.links.crazyflie.radio_link.time"
    monkeypatch.setattr(f"{module}.monotonic", lambda: loop.now_s)
    monkeypatch.setattr(f"{module}.sleep", loop.run)
    radio._land_and_wait()
    assert stands(loop)


def refuses(loop):
    """Let the planner of a vehicle refuse everything, as firmware that is busy does."""
    loop.craft.planner.block(True)
    loop.craft.planner.block = lambda blocked: None
    return loop


@pytest.mark.parametrize("auto_arm", [True, False])
@pytest.mark.parametrize("word", ["land", "disarm"])
def test_a_take_off_that_is_taken_back_turns_no_motor_on(word, auto_arm):
    """Neither by a take-off that is sent again, nor by a set-point."""
    loop = refuses(Loop(auto_arm=auto_arm))
    loop.run(0.5)
    loop.ask("arm")
    assert not loop.ask("take_off")
    loop.run(0.8)
    assert not loop.ask(word, 0.0, 2.0)
    loop.orders.clear()
    loop.run(3.0)
    assert loop.pilot.phase == LinkPhase.GROUND
    assert not {VehicleAction.TAKE_OFF, VehicleAction.SET_POINT} & {order.act for _, order in loop.orders}
    assert not loop.craft.vehicle.motors_on
    assert loop.supervisor.armed == auto_arm


@pytest.mark.parametrize("after_s", [0.02, 0.1, 0.5])
def test_a_drone_that_is_disarmed_as_it_leaves_the_ground_comes_down(after_s):
    loop = Loop(auto_arm=False)
    loop.run(0.5)
    loop.ask("arm")
    loop.run(0.5)
    assert not loop.ask("take_off")
    loop.run(after_s)
    assert not loop.ask("disarm")
    loop.run(6.0)
    assert loop.pilot.phase == LinkPhase.GROUND
    assert stands(loop)
    assert not set(LOST) & set(loop.states)


def test_the_end_of_set_points_is_never_refused():
    loop = Loop(auto_arm=False)
    loop.run(0.5)
    assert loop.ask("take_off")
    assert not loop.ask("notify_setpoints_stop")
