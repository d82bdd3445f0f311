"""The hold-to-run switch at a guard: only a switch that was seen released and is held now lets commands pass."""

import pytest

from testudo_deploy.guard.command_guard import SENTENCES, CommandGuard
from testudo_deploy.guard.hold_to_run import HELD, RELEASED, UNHEARD, HoldToRun, beat_text

DEAD_MAN_S, PERIOD_S, SILENT_S = 0.1, 0.02, 0.5


class Drive:
    """A guard that gets a command every 20 ms, and the joystick's state as often as a joystick repeats it."""

    def __init__(self, hold_s=SILENT_S):
        self.guard = CommandGuard(dimension=2, dead_man_s=DEAD_MAN_S, hold_s=hold_s)
        self.now_s, self.beats, self.messages = 10.0, 0, 0

    def go(self, seconds, word=None, *, new=True, **command):
        """Drive on; return when commands passed, from the begin [s]. Without ``new`` the station repeats itself."""
        begin_s, passed = self.now_s, []
        for k in range(round(seconds / PERIOD_S)):
            if word is not None and k % 3 == 0:
                self.beats, self.messages = self.beats + 1, self.messages + new
                self.guard.hear_heartbeat(beat_text(self.beats, word, self.messages), self.now_s)
            self.guard.watch(self.now_s)
            if self.guard.command(self.now_s - 0.001, (0.1, 0.0), self.now_s, **command):
                passed.append(self.now_s - begin_s)
            self.now_s += PERIOD_S
        return passed


@pytest.fixture
def held():
    """A guard that passes commands, as its switch is held."""
    made = Drive()
    made.go(0.1, RELEASED)
    assert made.go(1.5, HELD)[-1] > 1.4
    assert made.guard.code == ""
    return made


@pytest.mark.parametrize("word", [None, UNHEARD, RELEASED, HELD])
def test_never_heard_released_or_held_from_the_beginning_nothing_passes(word):
    """A switch that is held before it was ever seen released may be jammed or tied down."""
    made = Drive()
    assert made.go(3.0, word) == []
    assert (made.guard.code, made.guard.may_take_off, made.guard.is_stopped) == ("not_held", False, False)
    assert made.guard.sentence == SENTENCES["not_held"]


def test_a_guard_without_a_switch_needs_none():
    """Control: the same commands pass, so that the switch is what holds them back above."""
    made = Drive(hold_s=0.0)
    assert made.go(3.0)
    assert not made.guard.hears_station


def test_released_brakes_at_once_and_pressing_again_goes_on_after_a_second_without_rearm(held):
    assert held.go(0.2, RELEASED) == []
    assert held.guard.code == "not_held"
    passed = held.go(1.5, HELD)
    assert passed[0] == pytest.approx(1.0, abs=2 * PERIOD_S)
    assert (held.guard.code, held.guard.stops) == ("", 0)


def test_silence_of_the_joystick_brakes_within_the_configured_time_though_the_station_speaks_on(held):
    """The station repeats the last message of a dead joystick: it counts once."""
    passed = held.go(1.0, HELD, new=False)
    assert passed[-1] < SILENT_S
    assert passed[-1] > SILENT_S - 5 * PERIOD_S
    assert held.guard.code == "not_held"


def test_the_time_of_silence_counts_from_the_last_message_that_is_new(held):
    """The guard's process wakes then: at 20 Hz it would else brake up to a period late, at the next command."""
    began_s = held.guard.held_s
    held.go(0.2, HELD, new=False)
    assert held.guard.held_s == began_s
    held.go(0.1, HELD)
    since_s = held.guard.held_s
    assert since_s > began_s
    held.guard.watch(since_s + held.guard.let_go_after_s - 1e-6)
    assert held.guard.code != "not_held"
    held.guard.watch(since_s + held.guard.let_go_after_s + 1e-6)
    assert (held.guard.code, held.guard.held_s) == ("not_held", None)
    assert held.guard.let_go_after_s < SILENT_S
    assert Drive(hold_s=0.0).guard.held_s is None


def test_after_silence_a_held_switch_must_be_released_first(held):
    held.go(1.0)
    assert held.go(3.0, HELD) == []
    held.go(0.1, RELEASED)
    assert held.go(1.5, HELD)


def test_two_joysticks_that_disagree_let_nothing_pass(held):
    passed = [at for _ in range(20) for word in (RELEASED, HELD) for at in held.go(0.1, word)]
    assert passed == []


def test_without_the_switch_a_vehicle_may_only_descend(held):
    held.go(0.1, RELEASED)
    assert held.go(0.1, RELEASED, lands=True)
    assert not held.guard.may_take_off


def test_an_emergency_stop_is_not_ended_by_holding_the_switch(held):
    held.guard.stop()
    assert held.go(2.0, HELD) == []
    assert held.guard.code == "estop"


def test_a_silence_that_nobody_watched_counts():
    switch = HoldToRun(SILENT_S)
    switch.hear(beat_text(1, RELEASED, 1), 0.0)
    switch.hear(beat_text(2, HELD, 2), 0.1)
    assert switch.is_held(0.1 + SILENT_S - 0.01)
    switch.hear(beat_text(3, HELD, 3), 0.1 + SILENT_S)
    assert not switch.is_held(0.1 + SILENT_S)


@pytest.mark.parametrize("content", ["", "7", "7 held", "7 HELD 9", "7 help 9"])
def test_what_is_no_state_of_the_switch_holds_nothing(content):
    switch = HoldToRun(SILENT_S)
    switch.hear(beat_text(1, RELEASED, 1), 0.0)
    switch.hear(content, 0.1)
    assert not switch.is_held(0.1)
