"""The doctor names each planted fault with a remedy, and nothing of a sound machine and fleet; on facts alone."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.deploy.turtlebots import load_turtlebots

from testudo_deploy.doctor.finding import Level, findings_values, has_failed
from testudo_deploy.doctor.fleet_checks import FleetFacts, PolicyFact, check_fleet_file
from testudo_deploy.doctor.live_checks import check_live
from testudo_deploy.doctor.live_facts import Endpoint, LiveFacts, Stream
from testudo_deploy.doctor.machine_checks import check_machine
from testudo_deploy.doctor.machine_facts import (
    AcceleratorFact,
    ClockFact,
    MachineCodeFact,
    MachineFacts,
    PackageFact,
    ProcessorFact,
)
from testudo_deploy.doctor.ros_checks import check_ros
from testudo_deploy.doctor.ros_facts import NetworkFact, RosFact
from testudo_deploy.fleet.robot_links import CommandsEntry, LinkEntry, link_choice
from testudo_deploy.station.fleet_status import RobotStatus
from testudo_hardware.spec import load_robot, robot_files

PROFILE = "/etc/no_such_profile.xml"
SHA = "a" * 64


@dataclass(frozen=True)
class Bed:
    """All facts of a station with a running fleet of two TurtleBot 4s."""

    machine: MachineFacts
    ros: RosFact
    network: NetworkFact
    fleet: FleetFacts
    live: LiveFacts
    hosts: bool = True

    def findings(self):
        found = [
            *check_machine(self.machine, runs_fleet=True, needs_clock=self.fleet.stamps_by_wall_clock),
            *check_ros(self.ros, self.network, self.machine.python, several_hosts=self.hosts),
            *check_fleet_file(self.fleet),
        ]
        return found + list(check_live(self.fleet.fleet, self.live)) if self.fleet.fleet else found

    def machine_with(self, **parts):
        return replace(self, machine=replace(self.machine, **parts))

    def environment(self, **variables):
        return replace(self, ros=replace(self.ros, environment=variables))

    def processor(self, **parts):
        return self.machine_with(processor=replace(self.machine.processor, **parts))

    def stream(self, **parts):
        streams = {**self.live.streams, "/tb1/odom": replace(self.live.streams["/tb1/odom"], **parts)}
        return replace(self, live=replace(self.live, streams=streams))

    def status(self, **parts):
        first, *others = self.live.robots
        return replace(self, live=replace(self.live, robots=(replace(first, **parts), *others)))

    def without(self, topic):
        ends = tuple(one for one in self.live.endpoints if one.topic != topic)
        return replace(self, live=replace(self.live, endpoints=ends))

    def also(self, *more):
        return replace(self, live=replace(self.live, endpoints=(*self.live.endpoints, *more)))


def endpoints(name):
    odom, twist = "nav_msgs/msg/Odometry", "geometry_msgs/msg/Twist"
    return (
        Endpoint(f"/{name}/odom", f"/{name}/create3", odom, True, False, False),
        Endpoint(f"/{name}/odom", f"/{name}/policy", odom, False, False, False),
        Endpoint(f"/{name}/cmd_vel", f"/{name}/guard", twist, True, True, False),
        Endpoint(f"/{name}/cmd_vel", f"/{name}/create3", twist, False, True, False),
        Endpoint(f"/{name}/cmd_vel", f"/{name}/teleop_twist_joy_node", twist, True, True, False),
        Endpoint(f"/{name}/peer_state", f"/{name}/policy", "std_msgs/msg/UInt8MultiArray", True, True, False),
    )


def status_of(name):
    return RobotStatus(name, "active", "", "", "", 0.2, 0.05, 0.03, 50.0, 50.0, 5000, 3, 10, 0, "80 %")


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    placed = {"link": "turtlebot4", "pose": {"source": "odom+initial", "frame": "map", "sigma": 0.01, "max_age": 0.15}}
    (folder / "measured.toml").write_text(
        robot_files()["turtlebot4"].read_text(encoding="utf-8").replace("engineering estimate", "measured")
    )
    fleet = load_turtlebots(folder, **{name: {**placed, "type": "measured.toml"} for name in ("tb1", "tb2")})
    key = folder / "fleet.key"
    package = PackageFact("numpy", "", ">=1.26", "2.0.0", fits=True)
    runtime = PackageFact("onnxruntime", "robot", ">=1.20", "1.22.0", fits=True)
    return Bed(
        MachineFacts(
            "3.12.3",
            "/usr/bin/python3",
            ">=3.12",
            (package, runtime),
            AcceleratorFact(True, "gpu", "RTX", gpu_present=True),
            ClockFact(True, 0.001, "tsc"),
            ProcessorFact(4, 1.0, ("performance",), 20, True),
        ),
        RosFact({"ROS_DOMAIN_ID": "42"}, ("jazzy",), ("3.12",), "", "/opt/ros/jazzy/rclpy", "rmw_fastrtps_cpp"),
        NetworkFact(("wlan0",)),
        FleetFacts(
            replace(fleet, key_file=key),
            fleet.file,
            policies=(PolicyFact("policy.onnx", SHA, SHA, ""),),
            hosts=("tb1", "tb2"),
            key_identifier="abcd",
        ),
        LiveFacts(
            42,
            (*endpoints("tb1"), *endpoints("tb2")),
            {f"/{name}/odom": Stream(100, 5.0, 0.03) for name in fleet.names},
            tuple(map(status_of, fleet.names)),
        ),
    )


def estimated(fleet):
    """Return the fleet whose first robot has the file that ships, which holds estimates."""
    first, *others = fleet.robots
    return replace(fleet, robots=(replace(first, spec=load_robot("turtlebot4")), *others))


def joystick(node):
    return Endpoint("/tb1/cmd_vel", node, "geometry_msgs/msg/Twist", True, True, False)


def commanded(fleet):
    """Return the fleet whose first robot follows the commands of another program."""
    first, *others = fleet.robots
    entry = LinkEntry("turtlebot4", commands=CommandsEntry("cmd_vel_nav"))
    link = link_choice(entry, first.name, first.spec, fleet.file, "robots.tb1")
    return replace(fleet, robots=(replace(first, link=link), *others))


OLD = PackageFact("numpy", "", ">=1.26", "1.24.0", fits=False)
ABSENT = PackageFact("onnxruntime", "robot", ">=1.20", None, fits=False)
NO_ROS = RosFact({}, error="No module named 'rclpy'", present=False)
CRASHED = "librcl.so: undefined symbol: rcutils_get_env"
FAULTS = {
    # name: planted fault, check that names it, words of what was found, words of the remedy
    "old Python": (lambda b: b.machine_with(python="3.10.12"), "interpreter", ">=3.12", "uv python install"),
    "old package": (lambda b: b.machine_with(packages=(OLD,)), "packages", "numpy 1.24.0", "pip install 'numpy>=1.26'"),
    "no runtime": (lambda b: b.machine_with(packages=(ABSENT,)), "packages", "onnxruntime: not", "'testudo[robot]'"),
    "no calibration": (
        lambda b: replace(b, fleet=replace(b.fleet, fleet=estimated(b.fleet.fleet))),
        *("calibration", "tb1: uncalibrated: dynamics.velocity_lag", "testudo calibrate tb1"),
    ),
    "GPU unused": (
        lambda b: b.machine_with(accelerator=AcceleratorFact(True, "cpu", "cpu", gpu_present=True)),
        *("device", "uses the CPU", "testudo[gpu]"),
    ),
    "JAX broken": (
        lambda b: b.machine_with(accelerator=AcceleratorFact(True, error="jaxlib is version 0.4")),
        *("device", "jaxlib is version 0.4", "force-reinstall"),
    ),
    "clock not set": (lambda b: b.machine_with(clock=ClockFact(False, 16.0, "tsc")), "clock", "nothing sets", "chrony"),
    "slow clock": (lambda b: b.machine_with(clock=ClockFact(True, 0.0, "hpet")), "clock source", "hpet", "tsc"),
    "powersave": (lambda b: b.processor(governors=("powersave",)), "CPU governor", "powersave", "performance"),
    "overloaded": (lambda b: b.processor(load=9.0), "load", "9.0 processes on 4", "top"),
    "no real-time rights": (
        lambda b: b.processor(realtime_limit=0, realtime_works=False),
        *("real-time rights", "0 for priorities", "limits.d"),
    ),
    "no ROS": (lambda b: replace(b, ros=NO_ROS), "ROS distribution", "not within reach", "source /opt/ros"),
    "wheels and sourced": (
        lambda b: replace(b, ros=replace(b.ros, wheels="kilted", error=CRASHED, rmw="")),
        *("ROS distribution", "jazzy (sourced) and kilted (wheels", "env -u AMENT_PREFIX_PATH"),
    ),
    "two sourced": (
        lambda b: replace(b, ros=replace(b.ros, sourced=("humble", "jazzy"))),
        *("ROS distribution", "humble (sourced) and jazzy (sourced)", "new shell"),
    ),
    "ROS of another Python": (
        lambda b: replace(b, ros=replace(b.ros, sourced_python=("3.10",), error="No module named rclpy", rmw="")),
        *("ROS distribution", "for Python 3.10; this is Python 3.12", "python3.10 -m venv"),
    ),
    "RMW not installed": (
        lambda b: replace(
            b.environment(RMW_IMPLEMENTATION="rmw_zenoh_cpp"),
            ros=replace(
                b.ros,
                environment={"RMW_IMPLEMENTATION": "rmw_zenoh_cpp"},
                rmw="",
                error="librmw_zenoh_cpp.so: not found",
            ),
        ),
        *("RMW", "rmw_zenoh_cpp, which is not installed", "unset RMW_IMPLEMENTATION"),
    ),
    "another RMW": (
        lambda b: replace(b, ros=replace(b.ros, rmw="rmw_cyclonedds_cpp")),
        *("RMW", "rmw_cyclonedds_cpp", "export RMW_IMPLEMENTATION=rmw_fastrtps_cpp"),
    ),
    "domain out of range": (lambda b: b.environment(ROS_DOMAIN_ID="300"), "domain", "'300'", "ROS_DOMAIN_ID=42"),
    "domain on ephemeral ports": (lambda b: b.environment(ROS_DOMAIN_ID="150"), "domain", "44910", "1 to 100"),
    "localhost only": (
        lambda b: b.environment(ROS_AUTOMATIC_DISCOVERY_RANGE="LOCALHOST"),
        *("discovery", "LOCALHOST", "unset ROS_AUTOMATIC_DISCOVERY_RANGE"),
    ),
    "profile missing": (
        lambda b: b.environment(FASTDDS_DEFAULT_PROFILES_FILE=PROFILE),
        *("discovery", PROFILE, "unset FASTDDS_DEFAULT_PROFILES_FILE"),
    ),
    "multicast blocked": (
        lambda b: replace(b, network=NetworkFact((), {"wlan0": "a packet to the group did not come back"})),
        *("multicast", "wlan0: a packet", "ip link set wlan0 multicast on"),
    ),
    "keystore missing": (
        lambda b: b.environment(ROS_SECURITY_ENABLE="true", ROS_SECURITY_KEYSTORE="/no/keys"),
        *("DDS security", "/no/keys", "testudo security"),
    ),
    "fleet file wrong": (
        lambda b: replace(b, fleet=FleetFacts(None, Path(__file__), "fleet.yaml: robot: unknown key")),
        *("fleet file", "unknown key", "correct this line"),
    ),
    "fleet file missing": (
        lambda b: replace(b, fleet=FleetFacts(None, Path("no.yaml"), "no.yaml: no such fleet file")),
        *("fleet file", "no such fleet file", "testudo export RUN"),
    ),
    "other policy": (
        lambda b: replace(b, fleet=replace(b.fleet, policies=(PolicyFact("p.onnx", SHA, "b" * 64, "sha256"),))),
        *("policy", "has the hash bbbb", f"policy_sha256: {'b' * 64}"),
    ),
    "host unknown": (
        lambda b: replace(b, fleet=replace(b.fleet, unknown_hosts=("tb2",))),
        *("hosts", "tb2: no address", "/etc/hosts"),
    ),
    "no key": (
        lambda b: replace(b, fleet=replace(b.fleet, fleet=replace(b.fleet.fleet, key_file=None))),
        *("fleet key", "has no key", "--key"),
    ),
    "driver missing": (
        lambda b: b.without("/tb1/odom"),
        "tb1 topics",
        "nothing publishes /tb1/odom",
        "start its driver",
    ),
    "nav2 missing": (
        lambda b: replace(b, fleet=replace(b.fleet, fleet=commanded(b.fleet.fleet))),
        *("tb1 topics", "nothing publishes /tb1/cmd_vel_nav", "start that program"),
    ),
    "best effort": (
        lambda b: b.also(Endpoint("/tb1/odom", "/nav", "nav_msgs/msg/Odometry", False, True, False)),
        *("QoS", "/tb1/create3 offers best_effort, /nav requests reliable", "qos_overrides"),
    ),
    "stamped twist": (
        lambda b: b.also(replace(joystick("/tb1/nav2"), type="geometry_msgs/msg/TwistStamped", publishes=False)),
        *("tb1 types", "TwistStamped on /tb1/cmd_vel", "enable_stamped_cmd_vel"),
    ),
    "second commander": (
        lambda b: b.also(joystick("/controller_server")),
        "tb1 commands",
        "/controller_server",
        "remap",
    ),
    "unknown robot": (
        lambda b: b.also(Endpoint("/tb9/peer_state", "/tb9/policy", "x", True, True, False)),
        *("unknown robots", "tb9", "ROS_DOMAIN_ID"),
    ),
    "slow odometry": (lambda b: b.stream(messages=8), "tb1 rates", "1.6 Hz", "power_save off"),
    "clock three minutes off": (lambda b: b.stream(lag_s=-180.0), "tb1 stamps", "180.00 s ahead", "chronyc makestep"),
    "localisation old": (lambda b: b.status(pose_age_s=2.0), "tb1 localisation", "2.00 s old", "localisation"),
    "no pose": (lambda b: b.status(pose_age_s=None), "tb1 localisation", "has no pose", "initial pose"),
    "robot stopped": (
        lambda b: b.status(mode="stopped", code="estop", sentence="stopped"),
        *("tb1 mode", "stopped", "testudo rearm tb1"),
    ),
    "no compiler for machine code": (
        lambda b: b.machine_with(machine_code=MachineCodeFact(asked_for=True, refused="no C compiler was found")),
        *("machine code", "TESTUDO_COMPILED=1 asks for it, and no C compiler was found", "apt install gcc"),
    ),
    "policy silent": (lambda b: b.status(mode=""), "tb1 mode", "not heard", "ROS_DOMAIN_ID"),
    "late ticks": (lambda b: b.status(late_ticks=900), "tb1 ticks", "18.0 %", "governor"),
}


def test_a_sound_machine_and_fleet_has_nothing_to_do(bed):
    found = bed.findings()
    assert not [finding for finding in found if finding.level != Level.OK or finding.remedy]
    assert not has_failed(found)
    assert {"clock", "ROS distribution", "multicast", "QoS", "rates", "fleet key"} <= {one.check for one in found}


@pytest.mark.parametrize(("plant", "check", "words", "remedy"), FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_named_with_its_remedy(plant, check, words, remedy, bed):
    worse = [finding for finding in plant(bed).findings() if finding.level != Level.OK]
    named = [finding for finding in worse if finding.check == check]
    assert len(named) == 1, worse
    assert words in named[0].found
    assert remedy in named[0].remedy
    assert all(finding.remedy for finding in worse)  # what follows from it has its remedy, too


def test_a_missing_middleware_is_not_blamed_on_the_distribution(bed):
    found = {one.check: one.level for one in FAULTS["RMW not installed"][0](bed).findings()}
    assert (found["RMW"], found["ROS distribution"]) == (Level.FAILED, Level.OK)


def test_there_are_at_least_twenty_faults():
    assert len(FAULTS) >= 20


def test_a_fleet_that_does_not_run_is_one_line(bed):
    (finding,) = check_live(bed.fleet.fleet, LiveFacts(7))
    assert "no robot of the file is heard in ROS_DOMAIN_ID=7" in finding.found
    assert finding.level == Level.WARNING


def test_drivers_without_nodes_are_checked_before_the_fleet_starts(bed):
    of_drivers = tuple(one for one in bed.live.endpoints if one.node.endswith("create3"))
    silent = tuple(replace(one, mode="", pose_age_s=None) for one in bed.live.robots)
    found = check_live(bed.fleet.fleet, replace(bed.live, endpoints=of_drivers, robots=silent))
    assert not has_failed(found)
    assert [one.found for one in found if one.level == Level.WARNING] == ["no guard and no policy runs for it"] * 2


def test_a_failure_is_in_the_json_values(bed):
    values = findings_values(bed.environment(ROS_DOMAIN_ID="x").findings())
    assert values["failed"]
    assert [one["check"] for one in values["findings"] if one["level"] == "failed"] == ["domain"]
