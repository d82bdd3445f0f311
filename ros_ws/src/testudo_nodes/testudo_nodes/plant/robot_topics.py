"""ROS topics of one simulated robot: commands and requests in, measurements, truth and vehicle state out.

Those of a box: its measured poses.
"""

from typing import Any

from geometry_msgs.msg import PoseStamped, TransformStamped, TwistStamped
from nav_msgs.msg import Odometry
from rclpy.node import Node
from sensor_msgs.msg import BatteryState
from std_msgs.msg import String, UInt8MultiArray

from testudo_deploy.contract.messages import EnvelopeError
from testudo_deploy.fleet.fleet import FleetRobot
from testudo_deploy.fleet.pose_source import TRANSFORM_TYPE, absolute
from testudo_deploy.guard.flight_messages import FlightRequestMessage, VehicleMessage
from testudo_deploy.launch.fleet_topics import body_topic
from testudo_hardware.errors import TestudoError
from testudo_hardware.links.wire import (
    CommandReading,
    OdometryReading,
    PoseReading,
    TransformReading,
    WireError,
    fill_pose,
    fill_stamp,
    fill_transform,
)
from testudo_nodes.common.messages import (
    command_message,
    envelope_bytes,
    envelope_message,
    message_class,
    odometry_message,
)
from testudo_nodes.common.node_runner import WARN_EVERY_S
from testudo_nodes.common.qos import OFFERED, REQUESTED, measured
from testudo_nodes.plant.crazyflie_server_topics import CrazyflieServerTopics, PlantClock, SharedPoses
from testudo_plant.plant.injected_faults import read_faults
from testudo_plant.plant.link_emulation import LinkEmulation
from testudo_plant.plant.odometry_sensor import LatencyMeter
from testudo_plant.plant.plant import Plant
from testudo_plant.worlds.drone_dynamics import flies

_WARM_UP_S = 10.0  # commands of the first seconds do not count for the latency
_VEHICLE_PERIOD_S = 0.1


class BodyTopic:
    """The measured poses of one box of the plant, as a tracking system publishes them."""

    def __init__(self, clock: PlantClock, plant: Plant, body: str, frame: str) -> None:
        """Create the topic; ``frame`` is that of all positions of the fleet."""
        self._plant, self._body, self._frame = plant, body, frame
        self._poses = clock.publisher(PoseStamped, body_topic(body), measured(reliable=False))

    def drop_measurements(self) -> None:
        """Discard the measurements so far."""
        self._plant.body_poses(self._body)

    def publish(self) -> None:
        """Publish the poses that have arrived."""
        for sample in self._plant.body_poses(self._body):
            message = PoseStamped()
            message.header.frame_id = self._frame
            fill_stamp(message.header.stamp, sample.stamp_s)
            fill_pose(message.pose, sample.position_world, sample.yaw)
            self._poses.publish(message)


class RobotTopics:
    """The topics of one robot of the plant."""

    def __init__(
        self,
        node: Node,
        clock: PlantClock,
        plant: Plant,
        robot: FleetRobot,
        link: LinkEmulation,
        shared: SharedPoses,
    ) -> None:
        """Create the topics; ``shared`` are those of the poses of all robots.

        Raises:
            TestudoError: a message type is not installed.
        """
        self._node, self._clock, self._plant, self._link = node, clock, plant, link
        self.name = name = robot.name
        self._spec, self.latency = robot.spec, LatencyMeter(_WARM_UP_S)
        self._shared = shared
        self._sensed: dict[str, Any] = {}
        for topic in link.topics:
            if link.shares_poses:
                shared.open(topic)
                continue
            kind, quality = message_class(topic.type), measured(reliable=topic.wire.reliable)
            self._sensed[topic.kind] = kind, clock.publisher(kind, topic.absolute, quality)
        self._transforms = None
        if link.transform_topic:
            kind = message_class(TRANSFORM_TYPE)
            self._transforms = (kind, clock.publisher(kind, absolute(link.transform_topic, name), OFFERED["tf"]))
        self._truth = clock.publisher(Odometry, f"/{name}/truth", OFFERED["truth"])
        self._applied = clock.publisher(TwistStamped, f"/{name}/applied_cmd_vel", OFFERED["applied_cmd_vel"])
        command_topic = absolute(robot.link.topics["cmd_vel"], name)
        clock.subscribe(message_class(link.commands.type), command_topic, self._on_command, REQUESTED["cmd_vel"])
        clock.subscribe_outside(String, f"/{name}/plant_fault", self._on_fault, REQUESTED["plant_fault"])
        self._vehicle = VehicleTopics(node, clock, plant, robot, link) if flies(robot.spec) else None
        self.server = CrazyflieServerTopics(node, clock, plant, robot, link.status_s) if link.serves_flight else None
        """What Crazyswarm2 serves for a drone, where it is emulated."""
        # a node of its own, as the guard tells other publishers by their names
        self._others = [
            OtherPublisher(node, name, other, message_class(link.commands.type), command_topic)
            for other in link.other_publishers
        ]
        self._next_truth_s = self._next_applied_s = self._next_zero_s = 0.0
        self._applied_since_s = float("nan")

    def has_recorder(self) -> bool:
        """Return whether there is a subscriber to the truth."""
        return self._truth.get_subscription_count() > 0

    def drop_measurements(self) -> None:
        """Discard the measurements so far."""
        self._plant.odometry(self.name)

    def publish(self, now_s: float) -> None:
        """Publish everything that is due at a time [s]."""
        for sample in self._plant.odometry(self.name):
            reading = OdometryReading(sample.stamp_s, sample.position_world, sample.yaw, sample.velocity)
            self.latency.odometry(self._clock.now_s())
            for topic, measurement in self._link.say(reading, *self._clock.clocks(), sample.reckoned):
                if isinstance(measurement, TransformReading):
                    self._publish_transform(measurement)
                elif topic is not None and self._link.shares_poses and isinstance(measurement, PoseReading):
                    self._shared.add(self.name, topic, measurement)
                elif topic is not None:
                    kind, publisher = self._sensed[topic.kind]
                    publisher.publish(topic.wire.encode(kind(), measurement))
        for part in (self._vehicle, self.server):
            if part is not None:
                part.publish(now_s)
        self._publish_applied(now_s)
        if self._link.zeros_hz and now_s >= self._next_zero_s:
            self._next_zero_s = now_s + 1 / self._link.zeros_hz
            self._plant.command(self.name, (0.0,) * self._spec.dimension, now_s, now_s)
        if now_s >= self._next_truth_s:
            self._next_truth_s = now_s + self._spec.control_period_s
            pose = self._plant.truth(self.name)
            reading = OdometryReading(
                self._plant.time_s, pose.position_world, pose.yaw, pose.velocity, quaternion_xyzw=pose.quaternion_xyzw
            )
            self._truth.publish(odometry_message(self.name, self._spec, reading))

    def _publish_transform(self, reading: TransformReading) -> None:
        """Publish the pose of the odometry's frame in the fleet's, as a localisation does."""
        if self._transforms is not None:
            kind, publisher = self._transforms
            filled = fill_transform(TransformStamped(), *self._link.transform_frames, reading)
            publisher.publish(kind(transforms=[filled]))

    def _publish_applied(self, now_s: float) -> None:
        """Publish the command that acts, at each change and at the control rate."""
        applied = self._plant.applied(self.name)
        changed = applied.since_s != self._applied_since_s
        if not changed and now_s < self._next_applied_s:
            return
        self._applied_since_s = applied.since_s
        self._next_applied_s = now_s + self._spec.control_period_s
        reading = CommandReading(applied.since_s if changed else now_s, applied.values, applied.yaw_rate)
        self._applied.publish(command_message(self.name, self._spec, reading))

    def _on_command(self, message: Any) -> None:
        ros_now_s, received_s = self._clock.clocks()
        try:
            reading = self._link.command(message, ros_now_s, received_s)
        except WireError as error:
            self._node.get_logger().warning(str(error), throttle_duration_sec=WARN_EVERY_S)
            return
        self.latency.command(reading.stamp_s, received_s)
        self._plant.command(self.name, reading.command, reading.stamp_s, received_s, reading.yaw_rate)

    def _on_fault(self, message: String) -> None:
        where = f"/{self.name}/plant_fault"
        try:
            faults = read_faults(message.data, self._plant.faults(self.name), self._spec, where)
        except TestudoError as error:
            self._node.get_logger().warning(str(error))
            return
        self._plant.break_robot(self.name, faults)
        self._node.get_logger().warning(f"{where}: {faults}")


class OtherPublisher:
    """A node beside the guard that publishes commands, such as that of a joystick; silent over DDS.

    What it sends goes to the plant directly, so that a run in lock-step counts no message of it.
    """

    def __init__(self, node: Node, robot: str, name: str, kind: type, topic: str) -> None:
        """Create the node in the robot's namespace, with its publisher."""
        self._node = Node(name, context=node.context, namespace=robot, use_global_arguments=False)
        self._publisher = self._node.create_publisher(kind, topic, OFFERED["cmd_vel"])


class VehicleTopics:
    """The topics of a simulated drone beside set-points and odometry: requests in, vehicle state and battery out."""

    def __init__(self, node: Node, clock: PlantClock, plant: Plant, robot: FleetRobot, link: LinkEmulation) -> None:
        self._node, self._plant, self._name = node, plant, robot.name
        self._last_sequence = -1
        self._next_s = 0.0
        self._battery = clock.publisher(BatteryState, f"/{robot.name}/battery_state", OFFERED["battery_state"])
        self._state = None
        if robot.has_flight_phases and not link.serves_flight:
            self._state = clock.publisher(UInt8MultiArray, f"/{robot.name}/vehicle_state", OFFERED["vehicle_state"])
            request_topic = f"/{robot.name}/flight_request"
            clock.subscribe(UInt8MultiArray, request_topic, self._on_request, REQUESTED["flight_request"])

    def publish(self, now_s: float) -> None:
        """Publish everything that is due at a time [s]."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + _VEHICLE_PERIOD_S
        state = self._plant.vehicle(self._name)
        charge = self._plant.charge(self._name)
        self._battery.publish(BatteryState(voltage=float(state.battery_v or "nan"), percentage=charge, present=True))
        if self._state is not None:
            self._state.publish(envelope_message(VehicleMessage.of(self._name, state).encode()))

    def _on_request(self, message: Any) -> None:
        try:
            found = FlightRequestMessage.decode(envelope_bytes(message))
        except EnvelopeError as error:
            self._node.get_logger().warning(str(error), throttle_duration_sec=WARN_EVERY_S)
            return
        if found.robot == self._name and found.sequence > self._last_sequence:  # a repetition is the same request
            self._last_sequence = found.sequence
            self._plant.ask(self._name, found.request)
