"""Drones behind their supervisors and guards, with vehicles that take off, follow set-points and fall; without ROS."""

import copy
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np

from testudo_deploy.contract.messages import PeerMessage
from testudo_deploy.guard.command_guard import CommandGuard
from testudo_deploy.guard.flight_guard import FlightGuard
from testudo_deploy.guard.flight_messages import FlightOrder
from testudo_deploy.supervision.robot import Robot
from testudo_deploy.supervision.supervisor import GuardReport
from testudo_hardware.links.flight_link import FlightAct, VehicleState
from testudo_hardware.links.link_profile import FlightPart, Sourced
from testudo_hardware.spec import load_robot

SILENCE = load_robot("crazyflie_2x").silence
LEVELLED_S, CUT_S = SILENCE["silence.level_after"].value, SILENCE["silence.cut_after"].value
GROUND_M = 0.025
LAG_S = 0.15
READY_S = 0.08
"""After it was armed the firmware blocks take-offs for so long."""


def with_phases(fleet, **needs):
    """Return a fleet of drones whose links have flight phases."""
    part = FlightPart(Sourced("topics", "test"), **{key: Sourced(value, "test") for key, value in needs.items()})
    robots = tuple(
        replace(robot, link=replace(robot.link, profile=replace(robot.link.profile, flight=part), onboard_brake=True))
        for robot in fleet.robots
    )
    return replace(fleet, robots=robots)


class Vehicle:
    """A vehicle under its own planner or under velocity set-points."""

    def __init__(self, start):
        self.place = np.array([start[0], start[1], GROUND_M])
        self.velocity = np.zeros(3)
        self.state = "ground"
        self.armed = self.tumbled = self.locked = False
        self.can_fly, self.volts, self.controller, self.talks, self.latency_s = True, 4.0, "", True, 0.004
        self.set_point, self.heard_s, self.end_m, self.way_s = np.zeros(3), -math.inf, GROUND_M, 1.0
        self.acts, self.lifted_by_set_point, self.planned = [], False, False
        self.holds, self.says_why = "", True
        self.now_s = self.armed_s = -math.inf

    def obey(self, request):
        self.acts.append(request.act)
        if request.act in (FlightAct.ARM, FlightAct.DISARM):
            if request.act is FlightAct.ARM and not self.armed:
                self.armed_s = self.now_s
            self.armed = request.act is FlightAct.ARM
        elif request.act is FlightAct.EMERGENCY:
            self.armed, self.locked = False, True
            self.state = "falls"
        elif request.act is FlightAct.NOTIFY_SETPOINTS_STOP:
            if self.state == "set-points":
                self.velocity[:] = 0
                self.state = "planner" if self.planned else "falls"
        elif self.armed and (request.act is FlightAct.LAND or self.now_s > self.armed_s + READY_S):
            self.planned, self.end_m = True, request.height_m
            self.state = self.state if self.state == "set-points" else "planner"
            self.speed = abs(request.height_m - self.place[2]) / request.duration_s
            self.landing = request.act is FlightAct.LAND

    def command(self, values, now_s):
        if self.state == "ground" or not self.armed:
            self.lifted_by_set_point = True
            return
        self.state, self.set_point, self.heard_s = "set-points", np.array(values) * (not self.holds), now_s
        self.planned = False

    def advance(self, now_s, step_s):
        if self.state == "planner":
            left = self.end_m - self.place[2]
            self.velocity = np.array([0.0, 0.0, math.copysign(min(self.speed, abs(left) / step_s), left)])
        elif self.state == "set-points":
            silent_s = now_s - self.heard_s
            if silent_s > CUT_S:
                self.armed, self.state = False, "falls"
            elif silent_s <= LEVELLED_S:  # level: it drifts on
                self.velocity += (self.set_point - self.velocity) * (1 - math.exp(-step_s / LAG_S))
        elif self.state == "falls":
            self.velocity = np.array([0.0, 0.0, -2.0 if self.place[2] > GROUND_M else 0.0])
        self.place = self.place + step_s * self.velocity
        if self.place[2] <= GROUND_M + 1e-6 and self.state != "ground" and self.velocity[2] <= 0:
            self.place[2], self.velocity = GROUND_M, np.zeros(3)
            if self.state == "falls" or (self.state == "planner" and self.landing):
                self.state, self.armed = "ground", False

    def says(self, now_s):
        can_fly = self.can_fly and (not self.armed or now_s > self.armed_s + READY_S)
        return VehicleState(
            now_s,
            self.volts,
            self.armed,
            can_fly,
            bool(self.place[2] > GROUND_M + 0.01),
            self.tumbled,
            self.locked,
            self.controller,
            "",
            self.latency_s,
            self.holds if self.says_why else "",
        )


class Drone:
    """One robot with everything between its policy and its motors."""

    def __init__(self, fleet, name, now_s):
        entry = fleet.robot(name)
        self.robot = Robot(fleet, name, str(fleet.policy), epoch=name, now_s=now_s)
        self.guard = CommandGuard(dimension=3, dead_man_s=entry.spec.dead_man_s)
        self.flight, self.vehicle = FlightGuard(), Vehicle(entry.initial_position_world)
        self.policy_lives, self.sees, self.landed_s, self.reasons = True, True, -math.inf, []
        self.tilt_rad, self.records = 0.0, []

    @property
    def mode(self):
        return self.robot.supervisor.mode

    @property
    def stopped(self):
        return self.guard.code == "estop"

    def tick(self, now_s, period_s):
        vehicle, robot = self.vehicle, self.robot
        vehicle.now_s = now_s
        announcement = None
        if vehicle.talks:
            state = vehicle.says(now_s)
            self.flight.hear_vehicle(state, now_s)
            robot.hear_vehicle(state, now_s)
        if self.policy_lives:
            robot.hear_guard(GuardReport(now_s, self.guard.code, str(self.flight.phase), "first", self.guard.rearms))
            if self.sees:
                robot.flight.hear_tilt(self.tilt_rad)
                robot.loop.on_odometry(now_s - 0.01, now_s, tuple(vehicle.place), 0.0, tuple(vehicle.velocity))
            outcome = robot.tick(now_s)
            announcement = outcome.announcement
            self.reasons.append(outcome.record.reason)
            self.records.append(outcome.record)
            order = FlightOrder.decode(robot.flight_order(now_s).encode())
            self.flight.hear_order(order, now_s)
            if outcome.commands:
                self.pass_on(outcome.record, now_s)
        self.guard.watch(now_s)
        for request in self.flight.step(now_s, stopped=self.stopped):
            vehicle.obey(request)
        if self.guard.code and now_s - self.landed_s >= self.guard.silent_after_s:
            self.send((0.0, 0.0, 0.0), now_s)
        for _ in range(4):
            vehicle.advance(now_s, period_s / 4)
        return announcement

    def pass_on(self, record, now_s):
        values = record.sent_command
        if self.guard.command(record.stamp_s, values, now_s, lands=self.flight.may_descend(values, now_s)):
            if self.guard.code:
                self.landed_s = now_s
            self.send(values, now_s)

    def send(self, values, now_s):
        if self.flight.streams:
            self.vehicle.command(values, now_s)


class World:
    """Drones that hear each other."""

    def __init__(self, fleet):
        self.now_s, self.fleet = 50.0, fleet
        self.period_s = fleet.robots[0].spec.control_period_s
        self.drones = [Drone(fleet, name, self.now_s) for name in fleet.names]
        self.least_m = math.inf

    def copy(self):
        """Return a world that goes on from here by itself; what never changes is the same in both."""
        robots = [drone.robot for drone in self.drones]
        fixed = [self.fleet, *(robot.loop._policy._artefact for robot in robots), *(robot.spec for robot in robots)]
        # a record is never changed; to copy those of ten seconds would cost as much as to fly on for one
        fixed += [record for drone in self.drones for record in drone.records]
        return copy.deepcopy(self, {id(one): one for one in fixed})

    def tick(self, count=1):
        for _ in range(count):
            self.now_s += self.period_s
            said = [(drone, drone.tick(self.now_s, self.period_s)) for drone in self.drones]
            for speaker, announcement in said:
                for hearer in self.drones:
                    if announcement is not None and hearer is not speaker and hearer.policy_lives:
                        message = PeerMessage.decode(announcement.encode())
                        hearer.robot.loop.on_peer(message, self.now_s + 0.001)
            places = [drone.vehicle.place for drone in self.drones]
            self.least_m = min([self.least_m, *(math.dist(*pair) for pair in pairwise(places))])
        return self.drones[0].mode

    def seconds(self, duration_s):
        return self.tick(round(duration_s / self.period_s))

    def until(self, mode, limit_s):
        """Go on until the first drone is in a mode; returns how long that took [s]."""
        begin_s = self.now_s
        while self.drones[0].mode is not mode:
            assert self.now_s - begin_s < limit_s, (self.drones[0].mode, self.drones[0].robot.supervisor.reason)
            self.tick()
        return self.now_s - begin_s

    def ask(self, event, index=0):
        return self.drones[index].robot.request(event, self.now_s)
