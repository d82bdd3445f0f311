"""The modes of a robot: every transition of the table, every watchdog, and nothing beside them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testudo_deploy.guard.command_guard import HEALTHY_S, STOP_CODES
from testudo_deploy.supervision.modes import TRANSITIONS, WATCHDOGS, Event, Mode, Reaction, VehicleKind, code_of
from testudo_deploy.supervision.supervisor import GUARD_GONE_S, GUARD_LATE_S, GuardReport, Supervisor

TICK_S = 0.0625
MODES = (Mode.IDLE, Mode.ARMED, Mode.ACTIVE, Mode.HOLDING, Mode.STOPPED, Mode.FAULT)


class Robot:
    """A supervisor with a guard that reports and a loop that ticks."""

    def __init__(self):
        self.now_s, self.guard_code, self.guard_alive = 100.0, "", True
        self.guard_life, self.rearms, self.stops = "first", 0, 0
        self.supervisor = Supervisor(now_s=self.now_s)

    def tick(self, doubt="", count=1):
        for _ in range(count):
            self.now_s += TICK_S
            if self.guard_alive:
                self.hear_guard()
            self.supervisor.observe(self.now_s, doubt)
        return self.supervisor.mode

    def hear_guard(self):
        report = GuardReport(self.now_s, self.guard_code, "", self.guard_life, self.rearms, self.stops)
        self.supervisor.hear_guard(report)

    def ask(self, event):
        return self.supervisor.request(event, self.now_s)

    def rearm(self):
        """Take the emergency stop back by hand; the guard then wants a sound second."""
        self.guard_code, self.rearms = "starting", self.rearms + 1

    def renew_guard(self):
        """Start the guard anew: it knows nothing of before."""
        self.guard_code, self.guard_life, self.rearms, self.stops = "starting", f"after {self.now_s}", 0, 0


def robot_in(mode):
    """Return a robot that came to a mode by what operators and faults do."""
    robot = Robot()
    robot.tick(count=2)
    if mode is Mode.IDLE:
        return robot
    assert robot.ask(Event.ARM).granted
    if mode is Mode.ARMED:
        return robot
    assert robot.ask(Event.START).granted
    if mode is Mode.HOLDING:
        robot.tick("stale_pose")
    elif mode is Mode.STOPPED:
        robot.guard_code = "estop"
        robot.tick()
    elif mode is Mode.FAULT:
        robot.tick("brakes_weak: 0.3 m")
    assert robot.supervisor.mode is mode
    return robot


@pytest.mark.parametrize("mode", MODES)
def test_only_an_active_robot_may_drive(mode):
    assert (robot_in(mode).supervisor.order == "") == (mode is Mode.ACTIVE)


@pytest.mark.parametrize("event", [Event.ARM, Event.START, Event.STOP, Event.LAND, Event.DEACTIVATE])
@pytest.mark.parametrize("mode", MODES)
def test_requests_are_granted_as_the_table_says(mode, event):
    """Nothing is wrong, so the table alone decides; a refusal names the mode that it would take."""
    robot = robot_in(mode)
    answer = robot.ask(event)
    target = TRANSITIONS[VehicleKind.GROUND].get((mode, event))
    assert answer.granted == (target is not None)
    assert robot.supervisor.mode is (target or mode)
    assert answer.granted or "must be" in answer.sentence or event is Event.LAND


@pytest.mark.parametrize("code", sorted(set(WATCHDOGS) - {"guard_silent", "guard_late", *STOP_CODES, "guard_brakes"}))
@pytest.mark.parametrize("mode", MODES)
def test_every_watchdog_does_in_every_mode_what_its_reaction_says(mode, code):
    robot = robot_in(mode)
    running = mode in (Mode.ARMED, Mode.ACTIVE, Mode.HOLDING)
    expected = {
        Reaction.BRAKE: mode,
        Reaction.REFUSE: mode,
        Reaction.HOLD: Mode.HOLDING if mode is Mode.ACTIVE else mode,
        Reaction.LAND: Mode.HOLDING if mode is Mode.ACTIVE else mode,  # on the ground it stands
        Reaction.FAULT: Mode.FAULT if running or mode is Mode.STOPPED else mode,
    }[WATCHDOGS[code].reaction]
    assert robot.tick(f"{code}: details") is expected
    if expected is Mode.HOLDING:
        assert code in robot.supervisor.order
        assert WATCHDOGS[code].sentence in robot.supervisor.sentence


def test_a_reason_that_nobody_knows_is_treated_as_the_worst():
    assert robot_in(Mode.ACTIVE).tick("something new: x") is Mode.FAULT


def test_a_robot_that_held_drives_on_after_a_second_in_which_nothing_was_wrong():
    robot = robot_in(Mode.HOLDING)
    ticks = round(HEALTHY_S / TICK_S)
    assert robot.tick(count=ticks) is Mode.HOLDING
    robot.tick("pose_jump")
    assert "pose_jump" in robot.supervisor.order
    assert robot.tick(count=ticks) is Mode.HOLDING
    assert robot.tick() is Mode.ACTIVE


@pytest.mark.parametrize("event", [Event.ARM, Event.START])
@pytest.mark.parametrize("doubt", ["peer_unheard: r1", "too_close: r1", "brakes_weak: x", "no_pose"])
def test_with_a_doubt_it_can_be_neither_armed_nor_started(event, doubt):
    robot = robot_in(Mode.IDLE if event is Event.ARM else Mode.ARMED)
    robot.tick(doubt)
    answer = robot.ask(event)
    assert not answer.granted
    if robot.supervisor.mode is not Mode.FAULT:
        assert answer.code == code_of(doubt)
        assert doubt in answer.sentence
        robot.tick()
        assert robot.ask(event).granted


def test_it_is_not_armed_before_it_looked_around_and_heard_its_guard():
    robot = Robot()
    assert robot.ask(Event.ARM).code == "not_ready"
    robot.guard_alive = False
    robot.tick()
    assert robot.ask(Event.ARM).code == "not_ready"
    robot.guard_alive = True
    robot.tick()
    assert robot.ask(Event.ARM).granted


@pytest.mark.parametrize("code", ["silence", "starting", ""])
def test_a_guard_that_waits_for_commands_keeps_nobody_from_arming(code):
    robot = Robot()
    robot.guard_code = code
    robot.tick()
    assert robot.ask(Event.ARM).granted


@pytest.mark.parametrize("code", ["silence", "starting", "not_finite", "second_publisher"])
def test_while_the_guard_brakes_the_robot_holds(code):
    robot = robot_in(Mode.ACTIVE)
    robot.guard_code = code
    assert robot.tick() is Mode.HOLDING
    assert code in robot.supervisor.sentence
    robot.guard_code = ""
    robot.tick()
    assert robot.tick(count=round(HEALTHY_S / TICK_S)) is Mode.ACTIVE


@pytest.mark.parametrize("mode", [Mode.ARMED, Mode.ACTIVE, Mode.HOLDING, Mode.STOPPED])
def test_without_its_guard_the_robot_becomes_inactive_and_stays_so(mode):
    robot = robot_in(mode)
    robot.guard_alive = False
    assert robot.tick(count=round(GUARD_GONE_S / TICK_S) + 2) is Mode.IDLE
    assert not robot.ask(Event.ARM).granted
    robot.guard_alive = True
    assert robot.tick(count=100) is Mode.IDLE


@pytest.mark.parametrize("mode", [Mode.ARMED, Mode.ACTIVE, Mode.HOLDING])
def test_a_guard_that_reports_late_holds_the_robot_which_then_drives_on(mode):
    """A loaded machine delayed the reports of a live guard; the robot became inactive, and no verb armed it again."""
    robot = robot_in(mode)
    robot.guard_alive = False
    held = Mode.ARMED if mode is Mode.ARMED else Mode.HOLDING
    assert robot.tick(count=round(GUARD_LATE_S / TICK_S) + 1) is held
    assert code_of(robot.supervisor.reason) == "guard_late"
    assert not robot.ask(Event.START).granted
    assert robot.tick(count=round((GUARD_GONE_S - GUARD_LATE_S) / TICK_S) - 2) is held
    robot.guard_alive = True
    assert robot.tick(count=round(HEALTHY_S / TICK_S) + 2) is (Mode.ARMED if mode is Mode.ARMED else Mode.ACTIVE)


def test_another_guard_after_a_late_one_makes_the_robot_inactive():
    """It knows nothing of what its predecessor latched."""
    robot = robot_in(Mode.ACTIVE)
    robot.guard_alive = False
    assert robot.tick(count=round(GUARD_LATE_S / TICK_S) + 1) is Mode.HOLDING
    robot.renew_guard()
    robot.guard_alive = True
    assert robot.tick() is Mode.IDLE


@pytest.mark.parametrize("code", STOP_CODES)
def test_an_emergency_stop_ends_in_armed_and_never_in_driving(code):
    """The loss of the station is one: its guard, too, waits for a person."""
    robot = robot_in(Mode.ACTIVE)
    robot.guard_code = code
    assert robot.tick() is Mode.STOPPED
    assert robot.tick(count=100) is Mode.STOPPED
    assert not robot.ask(Event.START).granted
    robot.rearm()
    assert robot.tick(count=100) is Mode.ARMED
    assert not robot.ask(Event.START).granted
    robot.guard_code = ""
    robot.tick()
    assert robot.ask(Event.START).granted


@pytest.mark.parametrize("code", STOP_CODES)
def test_an_emergency_stop_of_an_inactive_robot_keeps_it_from_being_armed(code):
    robot = robot_in(Mode.IDLE)
    robot.guard_code = code
    assert robot.tick() is Mode.IDLE
    assert robot.ask(Event.ARM).code == code


def test_a_station_that_was_not_heard_yet_needs_no_rearm_once_it_is():
    robot = robot_in(Mode.IDLE)
    robot.guard_code = "station_unheard"
    robot.tick()
    assert robot.ask(Event.ARM).code == "guard_brakes"
    robot.guard_code = "starting"
    robot.tick()
    assert robot.ask(Event.ARM).granted


@pytest.mark.parametrize("silent_ticks", [0, 20])
@pytest.mark.parametrize("mode", [Mode.IDLE, Mode.ACTIVE])
def test_a_guard_that_was_started_anew_ends_no_emergency_stop(mode, silent_ticks):
    """It knows nothing of it, whether it was missed or not; only a hand on its rearm service does."""
    robot = robot_in(mode)
    robot.guard_code = "estop"
    robot.tick()
    robot.guard_alive = False
    robot.tick(count=silent_ticks)
    robot.guard_alive = True
    robot.renew_guard()
    stands = robot.tick(count=2)
    assert stands in (Mode.IDLE, Mode.STOPPED)
    robot.guard_code = ""
    assert robot.tick(count=100) is stands
    assert not robot.ask(Event.ARM).granted
    if stands is Mode.IDLE:
        assert robot.ask(Event.ARM).code == "estop"
    robot.rearm()
    robot.tick()
    assert robot.ask(Event.ARM).granted if stands is Mode.IDLE else robot.supervisor.mode is Mode.ARMED


@pytest.mark.parametrize("heard", [True, False])
@pytest.mark.parametrize("mode", [Mode.ARMED, Mode.ACTIVE, Mode.HOLDING])
def test_an_emergency_stop_that_came_and_went_while_it_slept_ends_in_armed(mode, heard):
    """Pressed, released and taken back between two ticks: only an operator's start lets it drive again."""
    robot = robot_in(mode)
    robot.guard_code, robot.stops = "estop", 1
    if heard:
        robot.hear_guard()
    robot.rearm()
    assert robot.tick() is Mode.ARMED
    robot.guard_code = ""
    assert robot.tick(count=100) is Mode.ARMED
    assert robot.supervisor.by_hand


@pytest.mark.parametrize("mode", [Mode.ARMED, Mode.ACTIVE, Mode.HOLDING, Mode.STOPPED])
def test_a_guard_in_place_of_the_one_before_is_the_loss_of_that_one(mode):
    """Also where it came so soon, or the process of the policy slept for so long, that no silence was noticed."""
    robot = robot_in(mode)
    robot.renew_guard()
    assert robot.tick() is Mode.IDLE
    robot.guard_code = ""
    assert robot.tick(count=100) is Mode.IDLE
    assert robot.ask(Event.ARM).granted is (mode is not Mode.STOPPED)


@pytest.mark.parametrize("word", ["stop", "deactivate", "estop"])
def test_what_an_operator_stopped_or_let_go_is_his_from_then_on(word):
    robot = robot_in(Mode.ARMED)
    assert not robot.supervisor.by_hand
    if word == "estop":
        robot.guard_code = "estop"
        robot.tick()
    else:
        robot.ask(Event(word))  # also if it is refused: to be started now is not what he wants
    assert robot.supervisor.by_hand
    robot = robot_in(Mode.ARMED)
    robot.guard_alive = False
    assert robot.tick(count=30) is Mode.IDLE
    robot.ask(Event.DEACTIVATE)  # what its node does of itself then
    assert not robot.supervisor.by_hand


def test_a_new_configuration_remembers_what_operators_did():
    robot = robot_in(Mode.STOPPED)
    anew = Supervisor(now_s=robot.now_s)
    anew.remember(robot.supervisor)
    assert (anew.was_active, anew.by_hand, anew.mode) == (True, True, Mode.IDLE)
    robot.supervisor = anew
    robot.renew_guard()
    robot.tick(count=100)
    assert robot.ask(Event.ARM).code == "estop"


def test_what_a_guard_says_is_read_and_what_is_missing_is_a_reason_to_brake():
    values = {"code": "", "flight": "fly", "life": "a", "rearms": "2", "stops": "3"}
    assert GuardReport.of(values, 1.0) == GuardReport(1.0, "", "fly", "a", 2, 3)
    assert not GuardReport.of(values | {"speed_share": "1"}, 1.0).slows
    assert GuardReport.of(values | {"speed_share": "0.5"}, 1.0).slows  # no shortfall of the robot
    assert GuardReport.of({"rearms": "many"}, 1.0) == GuardReport(1.0, "unreadable")


def test_a_robot_outside_the_fleet_file_keeps_from_arming_and_stops_nobody():
    """It was taken out of the file while it drives on by the old one: nobody would keep clear of it."""
    robot = robot_in(Mode.IDLE)
    robot.supervisor.see_unknown_robots(["r2", "r3"])
    robot.tick()
    answer = robot.ask(Event.ARM)
    assert (answer.granted, answer.code) == (False, "stranger")
    assert "r2, r3" in answer.sentence
    robot.supervisor.see_unknown_robots([])
    robot.tick()
    assert robot.ask(Event.ARM).granted
    robot = robot_in(Mode.ACTIVE)
    robot.supervisor.see_unknown_robots(["r2"])
    assert robot.tick(count=10) is Mode.ACTIVE


def test_a_partner_that_does_not_match_keeps_from_arming_and_stops_nobody():
    robot = robot_in(Mode.IDLE)
    robot.supervisor.see_mismatch("cmd_vel: a subscriber wants more durability")
    robot.tick()
    answer = robot.ask(Event.ARM)
    assert (answer.granted, answer.code) == (False, "qos_mismatch")
    assert "cmd_vel" in answer.sentence
    robot = robot_in(Mode.ACTIVE)
    robot.supervisor.see_mismatch("cmd_vel: a subscriber wants more durability")
    assert robot.tick(count=10) is Mode.ACTIVE


@given(
    st.lists(
        st.sampled_from(
            [
                "",
                "stale_pose",
                "brakes_weak",
                "nonsense",
                "arm",
                "start",
                "stop",
                "deactivate",
                "guard dies",
                "guard lives",
                "guard is new",
                "estop",
                "rearmed",
            ]
        ),
        max_size=40,
    )
)
def test_whatever_happens_it_drives_only_when_started_and_nothing_was_wrong(story):
    """Driving begins by START or after a healthy second of holding, and no tick with a reason to hold drives."""
    robot, stopped = Robot(), False
    for word in story:
        before = robot.supervisor.mode
        if word in ("arm", "start", "stop", "deactivate"):
            granted = robot.ask(Event(word)).granted
            assert before is robot.supervisor.mode or granted
            continue
        robot.guard_alive = {"guard dies": False, "guard lives": True}.get(word, robot.guard_alive)
        if word == "guard is new":
            robot.renew_guard()
        elif word == "rearmed":
            robot.rearm()
        robot.guard_code = {"estop": "estop", "rearmed": ""}.get(word, robot.guard_code)
        stopped = (robot.guard_alive and robot.guard_code == "estop") or (stopped and word != "rearmed")
        doubt = word if word in ("stale_pose", "brakes_weak", "nonsense") else ""
        mode = robot.tick(doubt)
        if mode is Mode.ACTIVE:
            assert not doubt
            assert before in (Mode.ACTIVE, Mode.HOLDING)
            assert not stopped
        if before in (Mode.IDLE, Mode.ARMED, Mode.FAULT):
            assert mode is not Mode.ACTIVE


def test_a_robot_is_not_armed_before_its_first_observation():
    supervisor = Supervisor(now_s=1.0)
    supervisor.hear_guard(GuardReport(1.0, ""))
    assert supervisor.request(Event.ARM, 1.0).code == "not_ready"
    supervisor.observe(1.0, "")
    assert supervisor.request(Event.ARM, 1.0).granted
