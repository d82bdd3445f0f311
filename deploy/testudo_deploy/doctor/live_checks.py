"""Checks of a fleet while it runs: topics, types, quality of service, publishers, rates, ages, clocks; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from testudo_deploy.doctor.finding import Finding, failed, ok, warning
from testudo_deploy.doctor.live_facts import Endpoint, LiveFacts
from testudo_deploy.fleet.fleet import Fleet, FleetRobot
from testudo_deploy.fleet.link_topics import absolute
from testudo_deploy.fleet.pose_source import sensed_topics, signal_wires
from testudo_deploy.launch.fleet_topics import foreign_publishers, topics, unknown_robots
from testudo_deploy.launch.lock_step import CLOCK_TOPIC
from testudo_deploy.launch.topic_names import PEER_TOPIC

_LEAST_RATE = 0.8  # of the rate of the link profile
_AHEAD_S = 0.01  # a stamp later than this after its arrival comes from another clock
_PEER_AGE_S = 0.5
_LATE_SHARE = 0.01
_STOPPED = ("fault", "stopped", "emergency")


def check_live(fleet: Fleet, facts: LiveFacts) -> tuple[Finding, ...]:
    """Return the findings about a running fleet; one that says so if nothing of it is heard."""
    if not any(_is_of(fleet, endpoint) for endpoint in facts.endpoints):
        return (
            warning(
                "running fleet",
                f"no robot of the file is heard in ROS_DOMAIN_ID={facts.domain_id}: topics, QoS, rates, ages and "
                "clocks were not checked",
                "start the drivers and the fleet, then again with --domain of the fleet, and --local for a fleet of "
                "`testudo up`",
            ),
        )
    found: list[Finding] = []
    for name, findings, well in (
        ("topics", _topics(fleet, facts), "every robot has its pose source, guard, policy and driver"),
        ("types", _types(fleet, facts), "message types are those of the link profiles"),
        ("QoS", _qos(facts), "every subscription matches its publishers"),
        ("commands", _commands(fleet, facts), "only guards command robots"),
        ("unknown robots", _strangers(fleet, facts), "none in this domain"),
        ("rates", _rates(fleet, facts), _rates_text(fleet, facts)),
        ("stamps", _stamps(fleet, facts), "fit the clock of this machine"),
        ("simulated time", _simulated_time(facts), "off"),
        ("localisation", _localisation(fleet, facts), "poses are as young as the fleet file asks"),
        ("peers", _peers(facts), "robots hear each other"),
        ("modes", _modes(facts), ", ".join(f"{one.name} {one.mode}" for one in facts.robots if one.mode) or "none yet"),
        ("ticks", _ticks(facts), "on time"),
    ):
        found += list(findings) or [ok(name, well)]
    return tuple(found)


def _topics(fleet: Fleet, facts: LiveFacts) -> Iterator[Finding]:
    for robot in fleet.robots:
        for topic in sensed_topics(robot):
            if not facts.publishers(topic.absolute):
                yield failed(
                    f"{robot.name} topics",
                    f"nothing publishes {topic.absolute}, its {topic.kind}",
                    f"start its driver or localisation; `ros2 topic list | grep {topic.kind}` shows the real name: "
                    f"`remappings: {{{topic.wire.topic}: NAME}}` below its `link`, see docs/hardware.md",
                )
        for wire in signal_wires(robot):
            if not facts.publishers(wire.absolute):
                yield failed(
                    f"{robot.name} topics",
                    f"nothing publishes {wire.absolute}, from which its policy takes {wire.signal}: it would brake",
                    "start that program or sensor, and compare its topic with the link profile, or `commands` below "
                    "the robot's `link`",
                )
        command = _command_topic(robot)
        if not facts.subscriptions(command):
            yield failed(
                f"{robot.name} topics",
                f"nothing subscribes to {command}: the robot would not move",
                "start its driver, with its namespace; `ros2 topic list | grep cmd_vel` shows the real name",
            )
        missing = [one for one in ("guard", "policy") if not _runs(facts, f"/{robot.name}/{one}")]
        if missing:
            yield warning(
                f"{robot.name} topics",
                f"no {' and no '.join(missing)} runs for it",
                f"ros2 launch testudo_bringup robot.launch.py fleet:={fleet.file} robot:={robot.name}",
            )


def _types(fleet: Fleet, facts: LiveFacts) -> Iterator[Finding]:
    expected = {topic.name: topic for topic in topics(fleet)}
    for endpoint in facts.endpoints:
        topic = expected.get(endpoint.topic)
        if topic is not None and endpoint.type != topic.type:
            does = "publishes" if endpoint.publishes else "expects"
            yield failed(
                f"{topic.robot or 'fleet'} types",
                f"{endpoint.node} {does} {endpoint.type} on {endpoint.topic}, the fleet has {topic.type}",
                "set the link profile that has this type below `link` of the robot (`enable_stamped_cmd_vel` for "
                "TwistStamped), or the parameter of the driver",
            )


def _qos(facts: LiveFacts) -> Iterator[Finding]:
    for name in sorted({one.topic for one in facts.endpoints}):
        for source in facts.publishers(name):
            for sink in facts.subscriptions(name):
                what = _mismatch(source, sink)
                if what and source.type == sink.type:
                    yield failed(
                        "QoS",
                        f"{name}: {source.node} offers {what[0]}, {sink.node} requests {what[1]}: no message passes",
                        f"set {what[0]} in {sink.node}, or {what[1]} in {source.node} (parameters qos_overrides), "
                        "and `reliability` in the link profile as the driver offers it",
                    )


def _commands(fleet: Fleet, facts: LiveFacts) -> Iterator[Finding]:
    for robot in fleet.robots:
        topic = _command_topic(robot)
        found = [one.node for one in facts.publishers(topic)]
        for node in foreign_publishers(found, f"/{robot.name}/guard", robot.link.profile.command_publishers):
            yield failed(
                f"{robot.name} commands",
                f"{node} also publishes {topic}: it drives past the shield",
                f"end it, or remap it away: -r cmd_vel:=cmd_vel_unused; an idle joystick that must stay belongs into "
                f"`other_publishers` of the link profile {robot.link.profile.name}",
            )


def _strangers(fleet: Fleet, facts: LiveFacts) -> Iterator[Finding]:
    names = unknown_robots((one.topic for one in facts.endpoints if one.publishes), fleet.names)
    if names:
        yield failed(
            "unknown robots",
            f"{', '.join(names)} announces itself in ROS_DOMAIN_ID={facts.domain_id} and is not in the fleet file",
            "another domain for one of the fleets (export ROS_DOMAIN_ID=42 on its computers), or add the robot to the "
            "fleet file of every computer",
        )


def _rates(fleet: Fleet, facts: LiveFacts) -> Iterator[Finding]:
    for robot in fleet.robots:
        for topic in sensed_topics(robot):
            stream, wanted = facts.streams.get(topic.absolute), topic.wire.rate_hz
            if stream is None or not facts.publishers(topic.absolute) or math.isnan(wanted):
                continue
            if stream.rate_hz >= _LEAST_RATE * wanted:
                continue
            make = failed if stream.rate_hz * robot.pose.max_age_s < 1 else warning
            yield make(
                f"{robot.name} rates",
                f"{topic.absolute} comes at {stream.rate_hz:.1f} Hz, the link profile says {wanted:g} Hz",
                "bring the robot nearer to its access point, or turn off Wi-Fi power saving (iw dev wlan0 set "
                "power_save off); correct `rate` in the link profile if the driver is slower",
            )


def _stamps(fleet: Fleet, facts: LiveFacts) -> Iterator[Finding]:
    for robot in fleet.robots:
        if robot.link.profile.stamps.value != "ros":  # stamps of a steady clock are comparable on one machine only
            continue
        for topic in sensed_topics(robot):
            stream = facts.streams.get(topic.absolute)
            if stream is None or stream.lag_s is None or -_AHEAD_S <= stream.lag_s <= robot.pose.max_age_s:
                continue
            where = "ahead of" if stream.lag_s < 0 else "behind"
            yield failed(
                f"{robot.name} stamps",
                f"stamps of {topic.absolute} are {abs(stream.lag_s):.2f} s {where} the clock of this machine",
                f"run chrony on both (sudo apt install chrony; chronyc makestep), with one server: this machine, or "
                f"the host of {robot.name}; then restart its driver",
            )


def _simulated_time(facts: LiveFacts) -> Iterator[Finding]:
    sources = facts.publishers(CLOCK_TOPIC)
    if sources:
        yield warning(
            "simulated time",
            f"{sources[0].node} publishes {CLOCK_TOPIC}: nodes with use_sim_time stand still with it",
            "right in lock-step and with a simulator; on real robots end it, and set use_sim_time to false",
        )


def _localisation(fleet: Fleet, facts: LiveFacts) -> Iterator[Finding]:
    by_name = {one.name: one for one in facts.robots}
    for robot in fleet.robots:
        status = by_name.get(robot.name)
        if status is None or not status.mode or status.is_silent:
            continue
        if status.pose_age_s is None:
            yield failed(
                f"{robot.name} localisation",
                f"the robot has no pose from its source {robot.pose.source} in the frame {robot.pose.frame}",
                "start the localisation and give it the initial pose; `ros2 topic echo` of the topic shows frame_id, "
                "which must be the `frame` of its `pose`",
            )
        elif status.pose_age_s > robot.pose.max_age_s:
            yield failed(
                f"{robot.name} localisation",
                f"its newest pose is {status.pose_age_s:.2f} s old, expected at most {robot.pose.max_age_s:g} s",
                "look at the rate of its pose source, its clock, and whether the localisation hangs",
            )


def _peers(facts: LiveFacts) -> Iterator[Finding]:
    for status in facts.robots:
        if status.mode and not status.is_silent and (status.peer_age_s or 0.0) > _PEER_AGE_S:
            yield warning(
                f"{status.name} peers",
                f"the oldest message that it uses of a peer is {status.peer_age_s:.1f} s old",
                f"compare `ros2 topic hz /PEER/{PEER_TOPIC}` on its computer and on the peer's; nearer access points, "
                "or 5 GHz",
            )


def _modes(facts: LiveFacts) -> Iterator[Finding]:
    for status in facts.robots:
        if not _runs(facts, f"/{status.name}/policy"):
            continue  # `_topics` has said so
        if not status.mode or status.is_silent:
            yield failed(
                f"{status.name} mode",
                "its policy node is there, and not heard",
                "start it; if it runs, compare ROS_DOMAIN_ID and RMW_IMPLEMENTATION on both computers",
            )
        elif status.mode in _STOPPED:
            yield failed(
                f"{status.name} mode",
                f"{status.mode}: {status.sentence}",
                f"docs/troubleshooting.md has the code {status.code or status.mode}; then testudo rearm {status.name}",
            )


def _ticks(facts: LiveFacts) -> Iterator[Finding]:
    for status in facts.robots:
        if status.late_ticks and status.ticks and status.late_ticks > _LATE_SHARE * status.ticks:
            yield warning(
                f"{status.name} ticks",
                f"{100 * status.late_ticks / status.ticks:.1f} % of its ticks were late",
                "give its computer real-time rights, the governor performance, and nothing else to do",
            )


def _rates_text(fleet: Fleet, facts: LiveFacts) -> str:
    wires = [topic.absolute for robot in fleet.robots for topic in sensed_topics(robot)]
    rates = [facts.streams[name].rate_hz for name in wires if name in facts.streams]
    return f"pose sources at {min(rates):.0f} to {max(rates):.0f} Hz" if rates else "none measured"


def _mismatch(source: Endpoint, sink: Endpoint) -> tuple[str, str] | None:
    """Return what is offered and what is requested, if a publisher offers less than a subscription requests."""
    if sink.reliable and not source.reliable:
        return "best_effort", "reliable"
    if sink.latched and not source.latched:
        return "volatile", "transient_local"
    return None


def _command_topic(robot: FleetRobot) -> str:
    return absolute(robot.link.topics["cmd_vel"], robot.name)


def _runs(facts: LiveFacts, node: str) -> bool:
    return any(one.node == node for one in facts.endpoints)


def _is_of(fleet: Fleet, endpoint: Endpoint) -> bool:
    wires: Iterable[str] = (topic.absolute for robot in fleet.robots for topic in sensed_topics(robot))
    return endpoint.publishes and (endpoint.topic[1:].partition("/")[0] in fleet.names or endpoint.topic in wires)
