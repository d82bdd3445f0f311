"""Simulates drivers, physics and sensors of a team on one injected clock."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np

from testudo_deploy.shield.velocity_projection import Arena
from testudo_hardware.errors import TestudoError
from testudo_hardware.frames import PlanarTransform
from testudo_hardware.links.flight_link import FlightRequest, VehicleState
from testudo_hardware.links.wire import world_command
from testudo_hardware.schema import HOLONOMIC
from testudo_hardware.spec import RobotSpec
from testudo_plant.plant.driver import AppliedCommand, CommandVerdict, Driver, FlyingDriver, ReverseLimit
from testudo_plant.plant.drone_fleet import Battery, DroneOptions, Drones
from testudo_plant.plant.flight_firmware import CommandSilence, CrazyflieFirmware, FlightPhase
from testudo_plant.plant.injected_faults import RobotFaults, SetPointRadio
from testudo_plant.plant.odometry_sensor import (
    ContactEvent,
    ContactWatch,
    OdometryModel,
    OdometrySample,
    OdometrySensor,
)
from testudo_plant.plant.pushed_bodies import PlantBody, PushedBodies
from testudo_plant.worlds.drone_dynamics import flies
from testudo_plant.worlds.world import Contact, MujocoWorld, RobotPose
from testudo_plant.worlds.world_builder import PlantParameters, WorldRobot

_PARAMETER_STREAM, _SENSOR_STREAM, _RADIO_STREAM = 0, 1, 2
_GROUND = ("floor", "wall_z_low")  # geoms that a drone may stand on
_LOOK_STEPS = 2
"""Drivers brake this many steps before the dead-man time ends, so that a step one step late is still in time."""


@dataclass(frozen=True)
class PlantRobot:
    """A robot and its initial pose, at rest."""

    name: str
    spec: RobotSpec
    initial_position_world: tuple[float, ...]  # (D,) [m]
    initial_yaw: float  # [rad]
    odometry_rate_hz: float | None = None  # rate of its odometry; None for that of the odometry model
    odometry: OdometryModel | None = None  # of this robot alone; None for that of the plant
    odometry_phase: float | None = None
    """Share of a period at which it is first measured; None: apart from the others, which spreads the load."""
    dead_man_s: float | None = None  # of its base; None for that of its file
    reverse_way_m: float | None = None  # how far its base drives backwards, see `ReverseLimit`; None: no limit
    grounded: bool = False
    """Whether a drone with an attitude starts on the floor below its initial position, motors off."""


class Plant:
    """The robots of a team, and the boxes that they push, in one world, on the clock of the caller.

    The clock [s] begins at ``start_s``. Equal seeds and calls give equal results. ``parameters`` holds the drawn lag,
    delay and scale by robot, ``watch`` contacts and separations.

    Raises:
        TestudoError: a robot or a body that overlaps another or a wall at the start, or a position of the wrong size.
    """

    def __init__(
        self,
        robots: Sequence[PlantRobot],
        arena: Arena | None,
        seed: int,
        spread: float = 0.2,
        start_s: float = 0.0,
        odometry: OdometryModel | None = None,
        drones: DroneOptions | None = None,
        bodies: Sequence[PlantBody] = (),
    ) -> None:
        self.robots = tuple(robots)
        self.parameters: Mapping[str, PlantParameters] = {
            robot.name: PlantParameters.sample(robot.spec, _stream(seed, i, _PARAMETER_STREAM), spread)
            for i, robot in enumerate(self.robots)
        }
        self._world = MujocoWorld(
            [WorldRobot(robot.name, robot.spec, self.parameters[robot.name]) for robot in self.robots],
            arena,
            [body.box for body in bodies],
        )
        floor_m = arena.low_world[2] if arena is not None and len(arena.low_world) == 3 else 0.0
        starts = [_start_world(robot, floor_m) for robot in self.robots]
        for i, robot in enumerate(self.robots):
            self._world.place(i, starts[i], robot.initial_yaw)
        self._index = {robot.name: i for i, robot in enumerate(self.robots)}
        options, rng = drones or DroneOptions(), _stream(seed, len(self.robots), _RADIO_STREAM)
        self.radio = SetPointRadio(options.radio, len(self.robots), rng, start_s)
        self._drivers = [self._driver(i, start, floor_m, start_s) for i, start in enumerate(starts)]
        flying = {i: driver for i, driver in enumerate(self._drivers) if isinstance(driver, FlyingDriver)}
        self._drones = Drones(self._world, flying, options, self.radio)
        model = odometry or OdometryModel()
        noise = [_stream(seed, len(self.robots) + i, _SENSOR_STREAM) for i in range(len(bodies))]
        specs = [robot.spec for robot in self.robots]
        self._bodies = PushedBodies(self._world, bodies, specs, model, noise, start_s)
        self._world.look()
        contacts = self._contacts() + self._world.box_contacts()
        if contacts:
            one = contacts[0]
            raise TestudoError(
                f"plant: {one.first} and {one.second} overlap by {one.depth_m:.3g} m at the start; "
                f"give {one.first} another initial position"
            )
        self._odometers = [
            OdometrySensor(
                robot.spec,
                replace(robot.odometry or model, rate_hz=robot.odometry_rate_hz or model.rate_hz),
                _stream(seed, i, _SENSOR_STREAM),
                start_s,
                phase=(i + 0.5) / len(self.robots) if robot.odometry_phase is None else robot.odometry_phase,
            )
            for i, robot in enumerate(self.robots)
        ]
        self.watch = ContactWatch(combinations([robot.name for robot in self.robots], 2))
        self._reverse = _reverse_limits(self.robots)
        self._faults = {robot.name: RobotFaults() for robot in self.robots}
        self._commands = np.zeros((len(self.robots), 3))
        self._start_s, self._now_s, self._steps = start_s, start_s, 0

    @property
    def step_s(self) -> float:
        """Return the time step of the physics [s]."""
        return self._world.step_s

    @property
    def time_s(self) -> float:
        """Return the time [s] of the last step."""
        return self._now_s

    @property
    def contacts(self) -> tuple[ContactEvent, ...]:
        """Return all contacts so far, in order of their start."""
        return self.watch.events

    def step_to(self, now_s: float) -> int:
        """Advance to ``now_s`` [s] in whole steps and return their number; never back.

        Raises:
            TestudoError: the time is not finite.
        """
        if not math.isfinite(now_s):
            raise TestudoError(f"plant: now_s: found {now_s}, expected a finite time in seconds")
        steps = max(0, math.floor((now_s - self._start_s) / self.step_s + 1e-6) - self._steps)
        for _ in range(steps):
            self._step()
        self._now_s = max(self._now_s, now_s)
        return steps

    def command(
        self, name: str, values: Sequence[float], stamp_s: float, received_s: float, yaw_rate: float = 0.0
    ) -> CommandVerdict:
        """Give robot ``name`` a command (D,) sent at ``stamp_s``, arrived at ``received_s`` [s].

        The command is in the format of the wire: (forward [m/s], turn rate [rad/s]) or (x, y) [m/s] in the body, or
        (x, y, z) [m/s] in the world, with a yaw rate [rad/s] for a drone that turns; other robots refuse a yaw rate.
        """
        driver = self._drivers[self._find(name)]
        if isinstance(driver, FlyingDriver):
            return driver.receive(values, stamp_s, received_s, yaw_rate)
        # a driver without yaw control brakes, as for any other invalid command
        return driver.receive((*values, yaw_rate) if yaw_rate else values, stamp_s, received_s)

    def applied(self, name: str) -> AppliedCommand:
        """Return the command that the driver of robot ``name`` applies now, before the scale of the actuators."""
        return self._drivers[self._find(name)].applied

    def odometry(self, name: str) -> tuple[OdometrySample, ...]:
        """Return the samples of robot ``name`` that arrived since the last call, oldest first."""
        return self._odometers[self._find(name)].take(self._now_s)

    def body_poses(self, name: str) -> tuple[OdometrySample, ...]:
        """Return the samples of body ``name`` that arrived since the last call, oldest first; velocities are noise."""
        return self._bodies.take(name, self._now_s)

    def body_truth(self, name: str) -> RobotPose:
        """Return the true pose of body ``name`` after the last step."""
        return self._bodies.truth(name)

    def truth(self, name: str) -> RobotPose:
        """Return the true pose of robot ``name`` after the last step."""
        return self._world.pose(self._find(name))

    def faults(self, name: str) -> RobotFaults:
        """Return the injected faults of robot ``name``."""
        self._find(name)
        return self._faults[name]

    def break_robot(self, name: str, faults: RobotFaults) -> None:
        """Set the injected faults of robot ``name``; for tests."""
        index = self._find(name)
        self._world.weaken_brakes(index, faults.braking_share)
        self._world.block(index, faults.blocked)
        self.radio.kill(index, faults.radio_lost)
        self._faults[name] = faults

    def ask(self, name: str, request: FlightRequest) -> None:
        """Send a flight request to a drone; the radio delivers it as soon as it can.

        Raises:
            TestudoError: no such robot, or not a drone with an attitude.
        """
        self._drone(name).ask(request, self._now_s)

    def vehicle(self, name: str, *, tells_planner: bool = False) -> VehicleState:
        """Return the state that a drone reports, with ``tells_planner`` also that of its planner; raises as `ask`."""
        vehicle = self._drone(name).vehicle
        locked = vehicle.phase is FlightPhase.LOCKED
        battery_v = self.faults(name).battery_v or self._battery(name).voltage_v
        flight = (vehicle.armed, vehicle.can_fly(self._now_s), vehicle.flying, vehicle.tumbled, locked)
        planner = vehicle.planner_active if tells_planner else None
        return VehicleState(self._now_s, battery_v, *flight, "pid", "kalman", planner_active=planner)

    def charge(self, name: str) -> float:
        """Return the charge of the battery of a drone, 0 to 1; raises as `ask`."""
        return self._battery(name).charge

    def verdicts(self, name: str) -> Mapping[CommandVerdict, int]:
        """Return the number of commands of robot ``name`` by verdict."""
        return dict(self._drivers[self._find(name)].verdicts)

    def _step(self) -> None:
        time_s = self._start_s + self._steps * self.step_s
        self._world.look()
        self.watch.look(time_s, self._contacts(), self._world.distances())
        for i, odometer in enumerate(self._odometers):
            if odometer.wants(time_s):
                odometer.measure(time_s, self._world.pose(i))
        self._bodies.measure(time_s)
        # a command due within half a step acts from this step on, so that the mean delay is exact
        due_s = time_s + self.step_s / 2
        self._drones.update(self._steps, due_s)
        for i, driver in enumerate(self._drivers):
            applied = self._drones.fly(i, due_s) if isinstance(driver, FlyingDriver) else driver.advance(due_s)
            spec, values = self.robots[i].spec, applied.values
            # a holonomic base commands velocities in its body frame, the physics takes those of the world
            acting = world_command(spec, values, self._world.pose(i).yaw) if spec.kind == HOLONOMIC else values
            if i in self._reverse:
                pose = self._world.pose(i)
                acting = self._reverse[i].bounded(values, PlanarTransform(pose.position_world[:2], pose.yaw))
            self._commands[i, : len(acting)] = acting
            if flies(spec):
                self._world.turn(i, applied.yaw_rate)
        self._world.advance(self._commands)
        self._steps += 1

    def _contacts(self) -> tuple[Contact, ...]:
        """Return the contacts of the observed state, except of drones that stand, take off or land."""
        return tuple(
            one for one in self._world.contacts() if not (one.second in _GROUND and self._drones.may_stand(one.first))
        )

    def _driver(
        self, index: int, start_world: Sequence[float], floor_m: float, start_s: float
    ) -> Driver | FlyingDriver:
        robot = self.robots[index]
        drawn = self.parameters[robot.name]
        delay_s = drawn.attitude.get("attitude.link_delay", drawn.command_delay_s)
        if not flies(robot.spec):
            return Driver(robot.spec, delay_s, start_s, _LOOK_STEPS * self.step_s, robot.dead_man_s)
        vehicle = CrazyflieFirmware(
            CommandSilence.of(robot.spec),
            start_world,
            rest_m=floor_m + robot.spec.body_radius_m,
            hovers=not robot.grounded,
            start_s=start_s,
        )
        return FlyingDriver(robot.spec, delay_s, start_s, vehicle, partial(self.radio.carry, index))

    def _battery(self, name: str) -> Battery:
        self._drone(name)
        return self._drones.batteries[self._find(name)]

    def _drone(self, name: str) -> FlyingDriver:
        driver = self._drivers[self._find(name)]
        if not isinstance(driver, FlyingDriver):
            raise TestudoError(
                f"plant: {name}: found a robot that takes velocities only, expected a drone with [attitude] in its file"
            )
        return driver

    def _find(self, name: str) -> int:
        if name not in self._index:
            raise TestudoError(f"plant: robot {name!r} is not known; known are {', '.join(self._index)}")
        return self._index[name]


def _reverse_limits(robots: Sequence[PlantRobot]) -> dict[int, ReverseLimit]:
    """Return the backup limits of those robots that have one, by number."""
    ways_m = {i: robot.reverse_way_m for i, robot in enumerate(robots)}
    return {i: ReverseLimit(way_m) for i, way_m in ways_m.items() if way_m is not None}


def _stream(seed: int, robot: int, purpose: int) -> np.random.Generator:
    """Return random numbers of one robot for one purpose, independent of the other robots."""
    return np.random.default_rng([seed, robot, purpose])


def _start_world(robot: PlantRobot, floor_m: float) -> tuple[float, ...]:
    """Return the start position of a robot (D,) [m]."""
    place, size = robot.initial_position_world, robot.spec.dimension
    if len(place) != size or not all(math.isfinite(x) for x in (*place, robot.initial_yaw)):
        raise TestudoError(
            f"plant: {robot.name}: found initial position {place} and yaw {robot.initial_yaw}, "
            f"expected {size} finite coordinates and a finite angle"
        )
    return (*place[:2], floor_m + robot.spec.body_radius_m) if robot.grounded and flies(robot.spec) else place
