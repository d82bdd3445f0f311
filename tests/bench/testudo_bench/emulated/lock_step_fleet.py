"""One episode of an emulated fleet in lock-step: plant, robots, their radio, and what comes of it."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from testudo_bench.emulated.emulated_drone import EmulatedDrone
from testudo_bench.emulated.emulated_robot import EmulatedRobot, PoseErrors
from testudo_deploy.admission.fleet_admission import world_arena
from testudo_deploy.fleet.fleet import Fleet
from testudo_hardware.links.emulation import value_of
from testudo_plant.plant.link_emulation import LinkEmulation
from testudo_plant.plant.plant import Plant
from testudo_plant.run_monitor import RunLimits, RunMonitor

STEP_S = 0.005
_RADIO_S = (0.005, 0.03)  # age of a message between robots on arrival: Wi-Fi of one hall
_RADIO_LOSS = 0.02
_AFTER_S = 1e-4  # zeros of a joystick come after a command of the same step


@dataclass(frozen=True)
class EpisodeOutcome:
    """What one episode counts."""

    outcome: str  # of `RunMonitor`
    time_s: float  # until all robots were at their goals
    contacts: int
    separation_m: float
    errors: PoseErrors  # of all robots
    ticks: dict[str, int] = field(default_factory=dict)  # of all robots while active, by status of the shield or reason
    left: dict[str, str] = field(default_factory=dict)  # where a robot did not arrive: how far from its goal, and why


class _Radio:
    """Messages between robots: each takes its own time, and some are lost."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random, self.now_s = random, 0.0
        self._waiting: deque[tuple[float, str, bytes]] = deque()

    def send(self, robot: str, data: bytes) -> None:
        if self._random.uniform() >= _RADIO_LOSS:
            self._waiting.append((self.now_s + self._random.uniform(*_RADIO_S), robot, data))

    def due(self) -> list[tuple[str, bytes]]:
        here = [one for one in self._waiting if one[0] <= self.now_s]
        self._waiting = deque(one for one in self._waiting if one[0] > self.now_s)
        return [(robot, data) for _, robot, data in here]


class LockStep:
    """A fleet on the plant; equal fleets and seeds give equal episodes."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        """Build the world; nothing moves yet."""
        random, arena = np.random.default_rng([seed, 23]), world_arena(fleet)
        links = [LinkEmulation(robot, emulates=True) for robot in fleet.robots]
        self.plant = Plant([link.plant_robot() for link in links], arena, seed)
        self._radio = _Radio(random)
        self.robots = [
            (EmulatedDrone if fleet.robot(name).has_flight_phases else EmulatedRobot)(
                fleet, name, self.plant, arena, float(random.uniform(0.0, 1000.0)), self._radio.send
            )
            for name in fleet.names
        ]
        periods_s = {name: _joystick_s(fleet, name) for name in fleet.names}
        self._joysticks = {
            name: [float(random.uniform(0.0, period_s)), period_s] for name, period_s in periods_s.items() if period_s
        }

    def step(self, now_s: float) -> None:
        """Advance plant, radio, robots and joysticks to a time."""
        self._radio.now_s = now_s
        for robot in self.robots:
            robot.note_truth(self.plant.time_s)
        self.plant.step_to(now_s)
        for sender, data in self._radio.due():
            for robot in self.robots:
                if robot.name != sender:
                    robot.hear_peer(data, now_s)
        for robot in self.robots:
            robot.step(now_s)
        for name, joystick in self._joysticks.items():
            if now_s >= joystick[0]:
                joystick[0] = now_s + joystick[1]
                self.plant.command(name, (0.0, 0.0), now_s + _AFTER_S, now_s)

    def outcome(self, finished: Mapping[str, Any], tolerance_m: float) -> EpisodeOutcome:
        """Return what the episode counts; ``finished`` is the event at its end."""
        errors, ticks = PoseErrors(), Counter[str]()
        for robot in self.robots:
            one = robot.errors
            errors.count, errors.square_m2 = errors.count + one.count, errors.square_m2 + one.square_m2
            errors.worst_m, errors.beyond = max(errors.worst_m, one.worst_m), errors.beyond + one.beyond
            ticks.update(robot.ticks)
        plant = self.plant
        off_m = finished["distance_m"]
        left = {
            robot.name: f"{off_m[robot.name]:.2f} m: {robot.robot.supervisor.sentence}"
            for robot in self.robots
            if off_m[robot.name] >= tolerance_m
        }
        outcome, time_s, apart_m = finished["outcome"], finished["time_s"], plant.watch.minimum_separation_m
        return EpisodeOutcome(outcome, time_s, len(plant.contacts), apart_m, errors, dict(ticks), left)


def run_episode(fleet: Fleet, seed: int, horizon_s: float, tolerance_m: float = 0.1) -> EpisodeOutcome:
    """Run a fleet until all robots are at their goals for a second, or the time is over; equal seeds, equal results."""
    world = LockStep(fleet, seed)
    goals = {robot.name: robot.goal_world for robot in fleet.robots}
    monitor, now_s = RunMonitor(RunLimits(goals, horizon_s, tolerance_m=tolerance_m), 0.0), 0.0
    while True:
        now_s += STEP_S
        world.step(now_s)
        for event in monitor.watch(world.plant, now_s):
            if event["event"] == "finished":
                return world.outcome(event, tolerance_m)


def _joystick_s(fleet: Fleet, name: str) -> float:
    """Return the time between two zeros of another publisher of commands; 0 for one that is silent, or none."""
    emulation = fleet.robot(name).link.profile.emulation
    rate_hz = 0.0 if emulation is None else value_of(emulation.joystick_rate, 0.0)
    return 1 / rate_hz if rate_hz else 0.0
