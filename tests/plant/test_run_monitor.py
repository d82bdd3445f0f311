import pytest

from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.spec import load_robot
from testudo_plant.plant.plant import Plant, PlantRobot
from testudo_plant.run_monitor import RunLimits, RunMonitor

SPEC = load_robot("gritsbot_x")
STEP_S = 0.005


def make(*, duration_s=20.0, starts=((-0.3, 0.0), (-0.3, 0.5)), goal_x=0.0, arrive=True):
    robots = [PlantRobot(f"r{k}", SPEC, start, 0.0) for k, start in enumerate(starts)]
    plant = Plant(robots, Arena((-1.6, -1.0), (1.6, 1.0)), seed=0, spread=0.0)
    goals = {robot.name: (goal_x, robot.initial_position_world[1]) for robot in robots}
    return plant, RunMonitor(RunLimits(goals, duration_s, start_patience_s=3.0, arrive=arrive), 0.0)


def play(plant, referee, until_s, command):
    """Return all events; ``command(robot, x)`` is the forward speed, or None for silence."""
    events = []
    for k in range(1, round(until_s / STEP_S)):
        now_s = STEP_S * k
        plant.step_to(now_s)
        if k % 6 == 0:
            for robot in plant.robots:
                speed = command(robot.name, plant.truth(robot.name).position_world[0], now_s)
                if speed is not None:
                    plant.command(robot.name, (speed, 0.0), now_s, now_s)
        events += referee.watch(plant, now_s)
        if referee.outcome:
            break
    return events


def kinds(events):
    return [event["event"] for event in events if event["event"] != "state"]


def test_a_run_starts_with_the_last_first_command_and_ends_when_all_have_stayed():
    plant, referee = make()

    def command(name, x, now_s):
        if name == "r1" and now_s < 1.0:
            return None
        return 0.15 if x < -0.02 else 0.0

    events = play(plant, referee, 15.0, command)
    assert kinds(events) == ["started", "finished"]
    started, finished = (event for event in events if event["event"] != "state")
    assert started["stamp_s"] == pytest.approx(1.02, abs=0.05)
    assert finished["outcome"] == "arrived"
    assert finished["contacts"] == 0
    assert finished["separation_m"] == pytest.approx(0.5, abs=0.01)
    assert max(finished["distance_m"].values()) < 0.1
    # the time is that of the arrival, not that of the wait after it
    assert finished["stamp_s"] - started["stamp_s"] == pytest.approx(finished["time_s"] + 1.0, abs=0.02)
    states = [event for event in events if event["event"] == "state"]
    assert len(states) == pytest.approx(finished["stamp_s"] / 0.2, abs=2)
    assert states[0]["silent"] == ["r0", "r1"]


def test_time_runs_out():
    plant, referee = make(duration_s=1.0)
    events = play(plant, referee, 5.0, lambda *_: 0.0)
    assert events[-1]["event"] == "state" or kinds(events)[-1] == "finished"
    assert referee.outcome == "timeout"


@pytest.mark.parametrize(("task_s", "ends_s"), [(None, 1.0), (0.6, 1.6)])
def test_the_time_of_a_task_counts_from_its_first_decision_once(task_s, ends_s):
    plant, referee = make(duration_s=1.0, arrive=False)

    def command(name, _, now_s):
        if task_s is not None and now_s >= task_s:
            referee.begin_task(now_s)
        return 0.0

    events = play(plant, referee, 3.0, command)
    assert referee.outcome == "timeout"
    assert events[-1]["stamp_s"] >= ends_s
    finished = next(event for event in events if event["event"] == "finished")
    assert finished["stamp_s"] == pytest.approx(ends_s, abs=0.05)


def test_a_robot_that_nobody_commands_ends_the_run():
    plant, referee = make()
    play(plant, referee, 6.0, lambda name, *_: 0.0 if name == "r0" else None)
    assert referee.outcome == "not_started"


def test_contacts_and_drivers_that_brake_are_told_once():
    plant, referee = make(starts=((-0.3, 0.0), (-0.14, 0.0)), goal_x=1.0, duration_s=3.0)

    def command(name, _, now_s):
        return None if now_s > 2.0 else (0.2 if name == "r0" else 0.0)

    events = play(plant, referee, 3.0, command)
    contact = next(event for event in events if event["event"] == "contact")
    assert {contact["first"], contact["second"]} == {"r0", "r1"}
    drivers = [event for event in events if event["event"] == "driver"]
    assert [(event["robot"], event["reason"]) for event in drivers] == [
        ("r0", "dead_man"),
        ("r1", "dead_man"),
    ]
    assert all(event["since_s"] <= 2.0 + 0.1 + 2 * STEP_S for event in drivers)


def test_a_run_of_a_task_ends_with_the_task_and_not_where_the_robots_stand():
    plant, referee = make(goal_x=-0.3, arrive=False)
    events = play(plant, referee, 3.0, lambda *_: 0.0)
    assert kinds(events) == ["started"]
    assert referee.outcome == ""
    end = referee.end(plant, 3.0, "success")
    assert (end["event"], end["outcome"], end["distance_m"], end["contacts"]) == ("finished", "success", {}, 0)
    assert kinds(play(plant, referee, 0.1, lambda *_: 0.0)) == []
