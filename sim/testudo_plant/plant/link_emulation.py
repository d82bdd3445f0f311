"""Emulates the messages of driver and localisation of a robot in the format of its link; no ROS.

The inverse of `testudo_deploy.fleet.pose_source`, and the receiver of the commands that a guard sends.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.fleet.link_topics import TRANSFORM_TOPIC
from testudo_deploy.fleet.localiser import placed
from testudo_deploy.fleet.pose_source import SensedTopic, sensed_topics
from testudo_hardware.frames import PlanarTransform
from testudo_hardware.links.emulation import value_of
from testudo_hardware.links.link_profile import NAMED_POSES, ODOMETRY
from testudo_hardware.links.topics import CommandWire
from testudo_hardware.links.wire import (
    CommandReading,
    Measurement,
    OdometryReading,
    PoseReading,
    TransformReading,
    convert_clock_s,
)
from testudo_plant.plant.odometry_sensor import OdometryModel
from testudo_plant.plant.plant import PlantRobot

_AMCL_EVERY = 10  # odometry samples for each `amcl_pose`; nav2 sends one for every 0.25 m
_FRAME_PHASE = 0.5  # motion capture sees all robots at one moment
_STATUS_HZ = 10.0
_TRANSFORM_EVERY = 2  # odometry samples for each transform of a localisation


class LinkEmulation:
    """The driver side of the link of one robot."""

    def __init__(self, robot: FleetRobot, *, emulates: bool = False) -> None:
        """Look up the topics of the robot.

        It ``emulates`` the driver with the numbers of the profile's `[emulation]`; otherwise measurements and commands
        are as good as those of the plant's own robots.
        """
        self._robot, self._start = robot, PlanarTransform(robot.initial_position_world, robot.initial_yaw)
        self.commands = CommandWire(robot.name, robot.spec, robot.link.profile)
        self.topics = sensed_topics(robot)
        self.uses_ros_time = robot.link.profile.stamps.value == "ros"
        """Whether stamps are on the ROS clock; else on the steady clock."""
        self._samples = 0
        self._source = robot.pose.source if robot.pose else ""
        self.shares_poses = self.topics[0].type == NAMED_POSES
        """Whether the poses of all robots come in one message, as motion capture sends them."""
        profile = robot.link.profile
        self._emulation = profile.emulation if emulates else None
        self.transform_topic = (
            robot.link.remappings.get(TRANSFORM_TOPIC, TRANSFORM_TOPIC) if self._source == "tf" else ""
        )
        """Topic of the transforms of the localisation; empty if there are none."""
        odometry = profile.odometry
        child = "" if odometry is None else odometry.frames(robot.name)[0]
        self.transform_frames = (robot.pose.frame, child)
        """Parent and child of these transforms."""
        every = _TRANSFORM_EVERY if self._source == "tf" else _AMCL_EVERY
        if self._emulation is not None and self._emulation.localisation_rate is not None:
            every = max(1, round(self.rate_hz / self._emulation.localisation_rate.value))
        self._every = every
        self.other_publishers = profile.command.other_publishers.value if self._emulation is not None else ()
        """Names of the nodes beside the guard that publish commands, in the robot's namespace."""
        self.zeros_hz = 0.0 if self._emulation is None else value_of(self._emulation.joystick_rate, 0.0)
        """Rate at which they send zeros; 0: they are silent."""
        flight = profile.flight
        self.serves_flight = self._emulation is not None and flight is not None and flight.wire.value == "crazyswarm2"
        """Whether requests come by the services of crazyflie_server, and states as its `Status`."""
        self.status_s = 1 / value_of(None if self._emulation is None else self._emulation.status_rate, _STATUS_HZ)
        """Time between two states of a drone [s]."""

    @property
    def rate_hz(self) -> float:
        """Return the rate of odometry, or of poses."""
        return self.topics[0].wire.rate_hz

    def plant_robot(self, model: OdometryModel | None = None) -> PlantRobot:
        """Return the robot of the plant, with the rate of its pose source, and driver and noise as it emulates them.

        ``model`` is the plant's own; the numbers of the profile replace its.
        """
        robot, emulation = self._robot, self._emulation
        plain = PlantRobot(
            robot.name,
            robot.spec,
            robot.initial_position_world,
            robot.initial_yaw,
            self.rate_hz,
            grounded=robot.has_flight_phases,
            odometry_phase=_FRAME_PHASE if self.shares_poses else None,
        )
        if emulation is None:
            return plain
        model = model or OdometryModel()
        dead_man, reverse_way = emulation.dead_man, emulation.reverse_way
        return replace(
            plain,
            odometry=replace(
                model,
                latency_low_s=emulation.latency_low.value,
                latency_high_s=emulation.latency_high.value,
                position_sigma_m=emulation.position_noise.value,
                yaw_sigma_rad=emulation.yaw_noise.value,
                speed_sigma_m_s=value_of(emulation.speed_noise, model.speed_sigma_m_s),
                turn_rate_sigma_rad_s=value_of(emulation.turn_rate_noise, model.turn_rate_sigma_rad_s),
                drift=value_of(emulation.odometry_drift, 0.0),
            ),
            dead_man_s=None if dead_man is None else dead_man.value,
            reverse_way_m=None if reverse_way is None else reverse_way.value,
        )

    def say(
        self, sample: OdometryReading, ros_now_s: float, now_s: float, reckoned: PlanarTransform | None = None
    ) -> Iterator[tuple[SensedTopic | None, Measurement | TransformReading]]:
        """Yield the topics and messages of a sample in the frame of the fleet, stamped on the steady clock.

        A transform has no topic of the pose source, see `transform_topic`. ``ros_now_s`` is the ROS clock at the time
        ``now_s`` of the steady clock. ``reckoned`` is where the wheels say that the robot is, from its start; without
        it the odometry is as exact as the sample.
        """
        robot, first = self._robot, self.topics[0]
        if self.uses_ros_time:
            sample = replace(sample, stamp_s=convert_clock_s(sample.stamp_s, now_s, ros_now_s))
        pose = PoseReading(sample.stamp_s, sample.position_world, sample.yaw)
        if first.type != ODOMETRY:
            yield first, pose
            return
        # odometry starts at zero where the robot was switched on
        own = sample if self._source == "odom" else placed(sample, self._start.inverse(), robot.spec)
        if reckoned is not None and self._source != "odom":
            own = replace(own, position_world=reckoned.position, yaw=reckoned.yaw)
        yield first, own
        if self._source in ("tf", "amcl_pose") and self._samples % self._every == min(1, self._every - 1):
            # an `amcl_pose` never before the second sample: it is placed between two samples of odometry
            if self._source == "tf":
                body = PlanarTransform(own.position_world, own.yaw)
                seen = PlanarTransform(pose.position_world, pose.yaw)
                yield None, TransformReading(pose.stamp_s, seen.then(body.inverse()))
            elif self._samples:
                yield self.topics[1], pose
        self._samples += 1

    def command(self, message: Any, ros_now_s: float, now_s: float) -> CommandReading:
        """Return a received command, stamped on the steady clock.

        Raises:
            WireError: another frame, or an unreadable set-point.
        """
        if not self.uses_ros_time:
            return self.commands.decode(message, now_s)
        reading = self.commands.decode(message, ros_now_s)
        return replace(reading, stamp_s=convert_clock_s(reading.stamp_s, ros_now_s, now_s))
