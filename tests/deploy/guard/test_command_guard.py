"""The guard passes on what is sound and brakes for everything else; each case on a clock of the test."""

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testudo_deploy.guard.command_guard import EARLY_S, HEALTHY_S, SENTENCES, CommandGuard

PERIOD_S, DEAD_MAN_S = 0.02, 0.1


def guard():
    return CommandGuard(dimension=2, dead_man_s=DEAD_MAN_S)


def drive(guard, begin_s, duration_s, values=(0.1, 0.0)):
    """Send commands at 50 Hz as a policy does; return the time of the last and what was passed on."""
    passed, now_s = [], begin_s
    for k in range(round(duration_s / PERIOD_S) + 1):
        now_s = begin_s + k * PERIOD_S
        guard.watch(now_s)
        passed.append(guard.command(now_s - 0.001, values, now_s))
    return now_s, passed


@pytest.fixture
def passing():
    """A guard that passes commands on, and the time of the last one."""
    made = guard()
    now_s, passed = drive(made, 10.0, 1.5)
    assert passed[-1]
    assert made.code == ""
    return made, now_s


def test_it_begins_by_braking_and_passes_after_a_second_of_sound_commands():
    made = guard()
    assert made.watch(10.0)
    assert made.code == "starting"
    _, passed = drive(made, 10.0, 1.5)
    assert [k * PERIOD_S >= HEALTHY_S - 1e-9 for k in range(len(passed))] == passed


def test_it_brakes_before_the_dead_man_time_ends_and_not_sooner(passing):
    """The brake has to be at the actuators by then; the last command was stamped 1 ms before it came."""
    made, last_s = passing
    stamp_s = last_s - 0.001
    assert not made.watch(stamp_s + DEAD_MAN_S - EARLY_S - 1e-6)
    assert made.watch(stamp_s + DEAD_MAN_S - EARLY_S + 1e-6)
    assert made.code == "silence"
    assert not made.command(stamp_s + 0.2, (0.1, 0.0), stamp_s + 0.2)  # for a second more
    _, passed = drive(made, stamp_s + 0.22, 1.2)
    assert not passed[0]
    assert passed[-1]


@pytest.mark.parametrize("values", [(math.nan, 0.0), (0.1, math.inf), (0.1,), (0.1, 0.0, 0.0)], ids=str)
def test_a_command_that_is_not_finite_or_of_another_size_brakes(passing, values):
    made, now_s = passing
    assert not made.command(now_s + PERIOD_S, values, now_s + PERIOD_S)
    assert made.watch(now_s + PERIOD_S)
    assert made.code == "not_finite"
    _, passed = drive(made, now_s + 2 * PERIOD_S, 1.2)
    assert not passed[0]
    assert passed[-1]


@pytest.mark.parametrize("age_s", [DEAD_MAN_S, 2.0])
def test_a_command_of_a_process_that_slept_is_dropped(passing, age_s):
    """SIGSTOP, two seconds, SIGCONT: what was on its way then is old by its stamp."""
    made, now_s = passing
    assert not made.command(now_s + 3.0 - age_s, (0.1, 0.0), now_s + 3.0)


@pytest.mark.parametrize("stamp_s", [0.03, 3600.0, -0.2, -3600.0])
def test_a_stamp_of_another_clock_brakes_at_once(passing, stamp_s):
    """Of the future, or long before the last one: the policy's clock jumped, or somebody replays."""
    made, now_s = passing
    assert not made.command(now_s + stamp_s, (0.1, 0.0), now_s + PERIOD_S)
    assert made.watch(now_s + PERIOD_S)
    assert made.code == "clock"
    _, passed = drive(made, now_s + 2 * PERIOD_S, 1.2)
    assert not passed[0]
    assert passed[-1]


def test_a_repeated_or_reordered_command_is_dropped_and_the_robot_drives_on(passing):
    made, now_s = passing
    assert not made.command(now_s - 0.001, (0.1, 0.0), now_s + 0.001)
    assert not made.command(now_s - 0.005, (0.1, 0.0), now_s + 0.001)
    assert made.refused >= 2
    assert not made.watch(now_s + 0.002)
    assert made.command(now_s + 0.019, (0.1, 0.0), now_s + PERIOD_S)


def test_repeating_one_command_for_ever_is_silence(passing):
    made, now_s = passing
    for k in range(1, 20):
        assert not made.command(now_s - 0.001, (0.1, 0.0), now_s + k * PERIOD_S)
    assert made.watch(now_s + 20 * PERIOD_S)
    assert made.code == "silence"


def test_a_second_publisher_brakes_until_a_second_after_it_is_gone(passing):
    made, now_s = passing
    made.see_publishers(("/rogue",))
    assert made.watch(now_s)
    assert made.code == "second_publisher"
    assert "/rogue" in made.sentence
    now_s, passed = drive(made, now_s + PERIOD_S, 2.0)
    assert not any(passed)
    made.see_publishers(())
    _, passed = drive(made, now_s + PERIOD_S, 1.2)
    assert not passed[0]
    assert passed[-1]


def test_an_emergency_stop_stays_until_it_is_released_and_taken_back_by_hand(passing):
    made, now_s = passing
    made.hear_estop(True, "/estop")
    assert made.watch(now_s)
    assert made.code == "estop"
    assert not made.rearm().granted
    made.hear_estop(False, "/estop")
    now_s, passed = drive(made, now_s + PERIOD_S, 2.0)
    assert not any(passed)
    assert made.code == "estop"
    assert made.rearm().granted
    _, passed = drive(made, now_s + PERIOD_S, 1.2)
    assert not passed[0]
    assert passed[-1]


@pytest.mark.parametrize("first", ["/estop", "/r0/estop"])
def test_a_stop_that_is_pressed_in_one_place_is_not_released_in_another(passing, first):
    made, _ = passing
    second = {"/estop": "/r0/estop", "/r0/estop": "/estop"}[first]
    made.hear_estop(True, first)
    made.hear_estop(False, second)
    made.stop()  # the service is a press that is over
    answer = made.rearm()
    assert (answer.granted, answer.sentence.endswith(f"pressed on {first}")) == (False, True)
    made.hear_estop(True, second)
    made.hear_estop(False, first)
    assert not made.rearm().granted
    made.hear_estop(False, second)
    assert made.code == "estop"
    assert made.rearm().granted
    assert made.rearms == 1


def test_the_stop_of_the_service_is_latched(passing):
    made, now_s = passing
    made.stop()
    assert (made.code, made.watch(now_s)) == ("estop", True)
    assert made.rearm().granted


class Checked:
    """A guard, and beside it what its promise says, in its own words."""

    def __init__(self):
        self.guard, self.now_s = guard(), 10.0
        self.now_s, _ = drive(self.guard, self.now_s, 1.5)
        self.newest_s, self.trouble_s = self.now_s - 0.001, -math.inf
        self.pressed = {"/estop": False, "/r0/estop": False}
        self.stopped = self.foreign = False

    def wait(self, time_s):
        self.now_s += time_s

    def estop(self, word):
        pressed, source = word
        self.guard.hear_estop(pressed, source)
        self.pressed[source], self.stopped = pressed, self.stopped or pressed

    def stop(self, _):
        self.guard.stop()
        self.stopped = True

    def rearm(self, _):
        granted = self.guard.rearm().granted
        assert granted != any(self.pressed.values())
        if granted:
            self.stopped, self.trouble_s = False, self.now_s

    def others(self, publish):
        if self.foreign and not publish:
            self.trouble_s = self.now_s
        self.guard.see_publishers(("/x",) if publish else ())
        self.foreign = publish

    def command(self, what):
        age_s, value = what
        stamp_s = self.now_s - age_s
        passed = self.guard.command(stamp_s, (value, 0.0), self.now_s)
        other_clock = stamp_s > self.now_s + 0.002 or stamp_s < self.newest_s - DEAD_MAN_S
        if not math.isfinite(value) or other_clock:
            self.trouble_s = self.now_s
        sound = math.isfinite(value) and stamp_s > self.newest_s and -0.002 <= age_s < DEAD_MAN_S - EARLY_S
        troubled = self.stopped or self.foreign or self.trouble_s > self.now_s - HEALTHY_S + 1e-9
        assert not passed or (sound and not troubled)
        if sound:
            self.newest_s = stamp_s

    def look(self):
        brakes = self.guard.watch(self.now_s)
        if self.now_s - self.newest_s >= DEAD_MAN_S - EARLY_S:
            self.trouble_s = self.now_s
            assert brakes
        assert brakes == bool(self.guard.code)
        assert self.guard.code in SENTENCES


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("command"), st.tuples(st.floats(-0.3, 0.3), st.floats(width=32))),
            st.tuples(st.just("estop"), st.tuples(st.booleans(), st.sampled_from(["/estop", "/r0/estop"]))),
            st.tuples(st.just("others"), st.booleans()),
            st.tuples(st.sampled_from(["rearm", "stop"]), st.none()),
            st.tuples(st.just("wait"), st.floats(0, 0.3)),
        ),
        max_size=60,
    )
)
def test_whatever_happens_only_fresh_finite_commands_pass_and_only_after_a_sound_second(story):
    checked = Checked()
    for kind, value in story:
        checked.wait(0.01)
        getattr(checked, kind)(value)
        checked.look()


def test_the_guard_needs_no_runtime_of_policies():
    """Its process must not fall with onnxruntime, nor wait for it."""
    heavy = "('onnxruntime', 'numpy', 'onnx')"
    code = f"import sys, testudo_deploy.guard.command_guard; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_in_an_emergency_stop_only_what_lands_passes_and_only_if_nothing_else_is_wrong():
    made, now_s = CommandGuard(dimension=3, dead_man_s=0.1), 10.0

    def command(values=(0.0, 0.0, -0.2), *, lands=True):
        nonlocal now_s
        now_s += 0.02
        return made.command(now_s, values, now_s, lands=lands)

    assert not any(command() for _ in range(40))  # a second of sound commands comes first
    for _ in range(20):
        command()
    assert command(lands=False)
    made.hear_estop(True, "/estop")
    assert not command(lands=False)
    assert command()
    assert made.code == "estop"
    made.see_publishers(["/thief on cmd_vel"])
    assert not command()
    made.see_publishers([])
    assert not command()  # healthy again after a second only
    assert not command((math.nan, 0.0, -0.2))


def with_heartbeat(heartbeat_s=1.0, *, beats=True):
    """Return a guard that requires a heartbeat, driven for 1.5 s, and the time of the last command."""
    made = CommandGuard(dimension=2, dead_man_s=DEAD_MAN_S, heartbeat_s=heartbeat_s)
    for k in range(76):
        now_s = 10.0 + k * PERIOD_S
        if beats and k % 5 == 0:
            made.hear_heartbeat(str(k), now_s)
        made.watch(now_s)
        passed = made.command(now_s - 0.001, (0.1, 0.0), now_s)
    return made, now_s, passed


def test_a_guard_that_never_heard_the_station_passes_nothing_and_one_that_did_passes():
    made, now_s, passed = with_heartbeat(beats=False)
    assert (passed, made.code, made.is_stopped) == (False, "station_unheard", False)
    made.hear_heartbeat("1", now_s)
    assert made.command(now_s + PERIOD_S, (0.1, 0.0), now_s + PERIOD_S)
    assert with_heartbeat()[2]


def test_a_lost_station_stops_within_the_configured_time_until_it_is_back_and_somebody_rearms():
    made, now_s, _ = with_heartbeat(1.0)  # the last heartbeat came with the last command
    for k in range(1, 60):
        now_s += PERIOD_S
        made.hear_heartbeat("75", now_s)  # a relay that repeats the last one is no sign of life
        assert made.command(now_s, (0.1, 0.0), now_s) == (k * PERIOD_S < 1.0 - EARLY_S - 1e-9)
    assert (made.code, made.is_stopped, made.stops) == ("station_lost", True, 1)
    assert "heartbeat is not heard" in made.rearm(now_s).sentence
    made.hear_heartbeat("1", now_s)  # a restarted station begins anew
    now_s, passed = drive(made, now_s + PERIOD_S, 0.9)
    assert (any(passed), made.code) == (False, "station_lost")  # nothing drives on by itself
    assert made.rearm(now_s).granted
    assert made.rearms == 1


def test_a_gap_between_two_heartbeats_that_nobody_watched_is_a_loss_too():
    made, now_s, _ = with_heartbeat(0.5)
    made.hear_heartbeat("99", now_s + 0.6)
    assert made.code == "station_lost"


def test_without_a_required_heartbeat_silence_of_the_station_is_nothing():
    made = guard()
    _, passed = drive(made, 10.0, 5.0)
    assert passed[-1]
    assert made.lost_after_s == 0.0


@pytest.mark.parametrize("code", ["limits", "no_pose", "arena"])
def test_a_command_whose_content_is_refused_brakes_until_a_second_of_others(passing, code):
    made, now_s = passing
    now_s += PERIOD_S
    assert not made.command(now_s, (0.1, 0.0), now_s, refusal=code)
    assert (made.watch(now_s), made.code) == (True, code)
    assert made.sentence == SENTENCES[code]
    _, passed = drive(made, now_s + PERIOD_S, 1.2)
    assert not passed[0]
    assert passed[-1]


def test_what_holds_it_brakes_for_as_long_and_a_second_more(passing):
    """Somebody is too near: commands are sound, and none passes."""
    made, now_s = passing
    made.hold("scan_near")
    assert (made.watch(now_s), made.code) == (True, "scan_near")
    now_s, passed = drive(made, now_s + PERIOD_S, 2.0)
    assert not any(passed)
    made.hold("")
    assert made.code == "starting"
    _, passed = drive(made, now_s + PERIOD_S, 1.2)
    assert not passed[0]
    assert passed[-1]
