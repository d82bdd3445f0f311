"""Links of a fleet file: `host` and `link` of each robot, both optional.

The default is a robot that a driver of this project or the plant moves on this computer.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from testudo_hardware.errors import TestudoError
from testudo_hardware.links.link_profile import DEFAULT_LINK, LinkProfile, load_link
from testudo_hardware.links.signal_wire import TWIST, TWIST_STAMPED, SignalTopic
from testudo_hardware.links.sourced import Sourced
from testudo_hardware.links.topics import CommandWire
from testudo_hardware.spec import RobotSpec
from testudo_hardware.strict_files import OPTIONAL, is_table

DRIVER_FILES = ("crazyflies", "motion_capture", "server")  # files of a Crazyswarm2 configuration; the first is required
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_URI = re.compile(r"(radio|usb|udp|tcp|serial)://[\w.:/?=&-]+")
_TOPIC = re.compile(r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*")

COMMANDED_VELOCITY = "commanded_velocity"
"""Signal of a policy that drives by the commands of another program, see `LinkEntry.commands`."""


class FleetError(TestudoError):
    """A fleet file is invalid: the text names file, key, what was found and what is expected."""


@dataclass(frozen=True)
class CommandsEntry:
    """Topic of another program, such as nav2, in the file: its commands are the robot's nominal ones."""

    topic: str
    stamped: bool = field(default=False, metadata=OPTIONAL)  # TwistStamped, else Twist, whose age counts from arrival


@dataclass(frozen=True)
class LinkChoice:
    """Link of a robot."""

    name: str  # of a known profile, or the path of a .toml file, relative to the fleet file
    profile: LinkProfile = field(repr=False)
    remappings: Mapping[str, str] = field(default_factory=dict[str, str])
    """Topic names of the profile, and their names on this robot."""
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    """Configuration files of its driver by kind (`DRIVER_FILES`), relative to the fleet file."""
    types: tuple[str, ...] = ()
    """Robot types of that configuration that the robot file describes, given at import; empty: unknown."""
    uri: str = ""  # address of the robot's radio, for profiles with a driver of this project
    onboard_brake: bool = False  # the user confirms that the vehicle brakes by itself when its radio is silent
    commands: CommandsEntry | None = None  # topic of another program whose commands the robot follows, shielded

    @property
    def topics(self) -> dict[str, str]:
        """Return the names on this robot of `cmd_vel`, `odom`, `pose` and `battery_state`, if its driver has them."""
        profile = self.profile
        parts = (profile.command, profile.odometry, profile.pose, profile.battery)
        names = ("cmd_vel", "odom", "pose", "battery_state")
        found = {name: part.topic.value for name, part in zip(names, parts, strict=True) if part is not None}
        return {name: self.remappings.get(topic, topic) for name, topic in found.items()}


@dataclass(frozen=True)
class LinkEntry:
    """A link in the file."""

    profile: str
    remappings: dict[str, str] = field(default_factory=dict[str, str], metadata=OPTIONAL)
    config: dict[str, str] = field(default_factory=dict[str, str], metadata=OPTIONAL)
    types: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    uri: str = field(default="", metadata=OPTIONAL)
    onboard_brake: bool = field(default=False, metadata=OPTIONAL)
    commands: CommandsEntry | None = field(default=None, metadata=OPTIONAL)


@functools.cache
def default_link() -> LinkChoice:
    """Return the link of a robot whose file names none."""
    return LinkChoice(DEFAULT_LINK, load_link(DEFAULT_LINK))


def spelled_out(values: Any) -> Any:
    """Return a robot's table with a table for a `link` that is a plain name."""
    if is_table(values) and isinstance(values.get("link"), str):
        return {**values, "link": {"profile": values["link"]}}
    return values


def check_host(host: str, where: str) -> str:
    """Return the name of a host; empty is this computer.

    Raises:
        FleetError: not a host name.
    """
    if host and not _HOST.fullmatch(host):
        raise FleetError(f"{where}.host: found {host!r}, expected the name or address of a computer")
    return host


def link_choice(entry: LinkEntry | None, robot: str, spec: RobotSpec, file: Path, where: str) -> LinkChoice:
    """Return the link of a robot; ``file`` is the fleet file, the base of relative paths.

    Raises:
        FleetError: no such profile, an invalid one or one for another kind of robot, a remapping that is no topic name,
            or a URI that is missing or unused.
    """
    if entry is None:
        return default_link()
    try:
        profile = load_link(file.parent / entry.profile if entry.profile.endswith(".toml") else entry.profile)
        CommandWire(robot, spec, profile)  # refuses a link for other kinds of robots
    except TestudoError as error:
        raise FleetError(f"{where}.link: {error}") from error
    if entry.commands is not None:
        profile = _with_commands(profile, entry.commands, where)
    for text in (text for pair in entry.remappings.items() for text in pair):
        if not _TOPIC.fullmatch(text):
            raise FleetError(f"{where}.link.remappings: found {text!r}, expected the name of a topic")
    wrong = [name for name in entry.config if name not in DRIVER_FILES]
    if wrong or (entry.config and (DRIVER_FILES[0] not in entry.config or profile.wire != "crazyswarm2")):
        raise FleetError(
            f"{where}.link.config: found {', '.join(entry.config)} for wire {profile.wire!r}, expected "
            f"{', '.join(DRIVER_FILES)} for wire 'crazyswarm2', the first of them at least"
        )
    if entry.types and not entry.config:
        raise FleetError(
            f"{where}.link.types: found {', '.join(entry.types)}, expected them beside config: they are "
            "robot types of its crazyflies.yaml"
        )
    _check_uri(entry.uri, profile, where)
    return LinkChoice(
        entry.profile,
        profile,
        dict(entry.remappings),
        dict(entry.config),
        entry.types,
        entry.uri,
        entry.onboard_brake,
        entry.commands,
    )


def _with_commands(profile: LinkProfile, commands: CommandsEntry, where: str) -> LinkProfile:
    """Return a link whose topic of another program's commands is a sensor of the signal `COMMANDED_VELOCITY`."""
    if not _TOPIC.fullmatch(commands.topic):
        raise FleetError(f"{where}.link.commands.topic: found {commands.topic!r}, expected the name of a topic")
    source = "fleet file: link.commands"
    topic = SignalTopic(
        Sourced(commands.topic, source),
        Sourced(TWIST_STAMPED if commands.stamped else TWIST, source),
        Sourced("best_effort", source),  # requested, so that any publisher matches
        None if commands.stamped else Sourced(0.0, source),
    )
    return replace(profile, signals={**profile.signals, COMMANDED_VELOCITY: topic})


def check_radios(links: Mapping[str, tuple[str, LinkChoice]], file: Path) -> None:
    """Refuse two drones on one radio, which one driver uses; ``links`` by robot: its host, and its link.

    Raises:
        FleetError: one Crazyradio of one computer, or one address, for two robots.
    """
    taken: dict[tuple[str, str], str] = {}
    for robot, (host, link) in links.items():
        if not link.uri:
            continue
        dongle = re.match(r"radio://[^/]+", link.uri)
        radio = (host, dongle[0]) if dongle else ("", link.uri)
        if radio in taken:
            raise FleetError(
                f"{file}: robots.{robot}.link.uri: found {radio[1]}, which {taken[radio]} has; expected "
                "another radio: one driver uses it (many drones on one radio need Crazyswarm2)"
            )
        taken[radio] = robot


def link_tables(choice: LinkChoice, name: str, config: Mapping[str, str]) -> dict[str, Any]:
    """Return the entry `link` of a fleet file with the names of its profile and driver files; empty for the default."""
    if choice == default_link():
        return {}
    tables = {
        "remappings": dict(choice.remappings),
        "config": dict(config),
        "types": list(choice.types),
        "uri": choice.uri,
        "onboard_brake": choice.onboard_brake,
        "commands": None if choice.commands is None else asdict(choice.commands),
    }
    given = {key: table for key, table in tables.items() if table}
    return {"link": {"profile": name, **given} if given else name}


def _check_uri(uri: str, profile: LinkProfile, where: str) -> None:
    if profile.driver is None and uri:
        raise FleetError(f"{where}.link.uri: unknown key for link {profile.name!r}, which is reached by topics")
    if profile.driver is not None and not _URI.fullmatch(uri):
        raise FleetError(
            f"{where}.link.uri: found {uri!r}, expected the address of the drone as cflib writes it, such "
            "as radio://0/80/2M/E7E7E7E701"
        )
