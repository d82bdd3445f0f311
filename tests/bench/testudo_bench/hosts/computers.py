"""Computers on one machine: each has a network namespace, clocks, shared memory and an identity of its own.

What two real computers do not share is separated here as well: the network (a network namespace with one port of the
shaped switch), the steady clock (a time namespace, as after another uptime), the wall clock (`wall_clock.c` in its
processes, since no namespace has one), shared memory and the machine's id, by which DDS would find a way past the
network. The file system is shared, as after `scp` of the same files.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from testudo_bench.hosts.shaped_links import Link
from testudo_bench.hosts.shaped_switch import PORT
from testudo_deploy.launch.ros_domain import PEERS_PROFILE, PROFILE_VARIABLE
from testudo_hardware.errors import TestudoError

PROGRAMS = ("ip", "nsenter", "unshare", "mount", "cc")
DISCOVERIES = ("multicast", "peers", "server")
SUBNET = "10.77.0"
_SERVER_PORT, _SERVER_STARTS_S = 11811, 0.5
_WALL_CLOCK = Path(__file__).with_name("wall_clock.c")
_PATIENCE_S = 10.0
_SERVE = '"$@" < /dev/null & cat; kill $!'
_HOLD = """
set -e
mount -t tmpfs none /dev/shm
mkdir -m 700 /dev/shm/run
echo "$1" > /dev/shm/machine-id
mount --bind /dev/shm/machine-id /etc/machine-id
hostname "$2"
echo $$
exec cat > /dev/null
"""


@dataclass(frozen=True)
class Clocks:
    """How far the clocks of a computer are ahead of those of this machine [s]."""

    wall_s: float = 0.0
    steady_s: float = 0.0


@dataclass
class Computer:
    """One computer: its place in the network and the process that holds its namespaces."""

    name: str
    address: str
    namespace: str
    clocks: Clocks
    holder: subprocess.Popen[str] | None = None
    process_id: int = 0
    environment: dict[str, str] = field(default_factory=dict[str, str])

    def words(self, words: Sequence[str]) -> list[str]:
        """Return a command line that runs another one on this computer."""
        return ["nsenter", "-t", str(self.process_id), "--net", "--mount", "--uts", "--time", *words]


def missing() -> str:
    """Return why computers cannot be made here; empty if they can."""
    lacks = [program for program in PROGRAMS if shutil.which(program) is None]
    if lacks:
        return f"not installed: {', '.join(lacks)} (Debian: iproute2, util-linux, gcc)"
    if os.geteuid() != 0:
        return "network namespaces need the rights of root"
    if not Path("/dev/net/tun").exists():
        return "the kernel has no /dev/net/tun"
    return ""


class Computers:
    """Computers and the network between them; a context manager.

    ``discovery`` is how DDS finds the others: by multicast, by a list of peers, or by a discovery server on the last
    computer. Without multicast none passes the network either.
    """

    def __init__(
        self,
        names: Sequence[str],
        link: Link,
        *,
        domain_id: int,
        clocks: Mapping[str, Clocks] | None = None,
        discovery: str = "multicast",
        seed: int = 0,
    ) -> None:
        """Prepare.

        Raises:
            TestudoError: this machine cannot make computers, or the discovery is unknown.
        """
        if why := missing():
            raise TestudoError(f"several computers on one: {why}")
        if discovery not in DISCOVERIES:
            raise TestudoError(f"--discovery: found {discovery!r}, expected one of {', '.join(DISCOVERIES)}")
        self.link = Link(link.delay_ms, link.jitter_ms, link.loss, link.multicast and discovery == "multicast")
        self._seed, self._discovery = seed, discovery
        self._folder = tempfile.TemporaryDirectory()
        self._library = Path(self._folder.name) / "wall_clock.so"
        clocks = clocks or {}
        self.all = {
            name: Computer(name, f"{SUBNET}.{k + 1}", f"testudo-{os.getpid()}-{name}", clocks.get(name, Clocks()))
            for k, name in enumerate(names)
        }
        for computer in self.all.values():
            computer.environment = self._environment(computer, domain_id)
        self._switch: subprocess.Popen[str] | None = None
        self._server: subprocess.Popen[str] | None = None
        self.counts: dict[str, int] = {}
        """Of the network, once it has ended: frames between computers, lost ones, those that a partition stopped."""

    def __enter__(self) -> Self:
        try:
            remove_left_overs()
            _run("cc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(_WALL_CLOCK), "-ldl")
            for computer in self.all.values():
                _run("ip", "netns", "add", computer.namespace)
            self._begin_network()
            for computer in self.all.values():
                self._begin(computer)
            if self._discovery == "server":
                self._begin_server()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            _end(self._server)
        if self._switch is not None and self._switch.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
                said = self._switch.communicate(timeout=_PATIENCE_S)[0]
                self.counts = {k: v for k, v in json.loads(said or "{}").items() if k != "event"}
            self._switch.kill()
        for computer in self.all.values():
            if computer.holder is not None:
                _end(computer.holder)
            if Path(f"/run/netns/{computer.namespace}").exists():
                subprocess.run(["ip", "netns", "delete", computer.namespace], check=False)

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment of a computer's processes."""
        return os.environ | self.all[name].environment

    def start(self, name: str, words: Sequence[str], **options: object) -> subprocess.Popen[str]:
        """Start a program on a computer, in a session of its own."""
        given = {"env": self.environment(name), "text": True, "start_new_session": True, **options}
        return subprocess.Popen(self.all[name].words(words), **given)  # type: ignore[call-overload]

    def run(self, name: str, words: Sequence[str], timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a program on a computer to its end."""
        return subprocess.run(
            self.all[name].words(words),
            env=self.environment(name),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def part(self, *groups: Collection[str]) -> None:
        """Cut the network into groups of computers; without groups it is whole again."""
        if self._switch is None or self._switch.stdin is None:
            raise TestudoError("the network does not run")
        self._switch.stdin.write(json.dumps({"part": [sorted(group) for group in groups]}) + "\n")
        self._switch.stdin.flush()

    def _environment(self, computer: Computer, domain_id: int) -> dict[str, str]:
        made = {
            "ROS_DOMAIN_ID": str(domain_id),
            "XDG_RUNTIME_DIR": "/dev/shm/run",  # noqa: S108 -- that of the computer
            "OMP_NUM_THREADS": "1",
        }
        if self._discovery == "peers":
            others = [other.address for other in self.all.values()]
            made["ROS_STATIC_PEERS"] = ";".join(others)
            made[PROFILE_VARIABLE] = PEERS_PROFILE
        elif self._discovery == "server":
            made["ROS_DISCOVERY_SERVER"] = f"{self._server_address}:{_SERVER_PORT}"
        if computer.clocks.wall_s:
            made["LD_PRELOAD"] = str(self._library)
            made["TESTUDO_WALL_AHEAD_NS"] = str(round(1e9 * computer.clocks.wall_s))
        return made

    @property
    def _server_address(self) -> str:
        return list(self.all.values())[-1].address

    def _begin_network(self) -> None:
        ports = {name: f"/run/netns/{computer.namespace}" for name, computer in self.all.items()}
        given = {"ports": ports, "link": asdict(self.link), "seed": self._seed}
        self._switch = subprocess.Popen(
            [sys.executable, "-m", "testudo_bench.hosts.shaped_switch", json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._switch.stdout is not None
        if not self._switch.stdout.readline():
            raise TestudoError("the shaped network did not start; its own lines above give the reason")
        for computer in self.all.values():
            ip = ("ip", "-n", computer.namespace)
            _run("ip", "netns", "exec", computer.namespace, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
            _run(*ip, "address", "add", f"{computer.address}/24", "broadcast", f"{SUBNET}.255", "dev", PORT)
            for device in ("lo", PORT):
                _run(*ip, "link", "set", device, "up")
            _run(*ip, "route", "add", "default", "dev", PORT)

    def _begin(self, computer: Computer) -> None:
        steady = f"{computer.clocks.steady_s:.0f}"
        clocks = ("--time", "--monotonic", steady, "--boottime", steady)
        computer.holder = subprocess.Popen(
            [
                *("nsenter", f"--net=/run/netns/{computer.namespace}"),
                *("unshare", "--mount", "--uts", *clocks, "--fork", "--kill-child"),
                *("sh", "-c", _HOLD, "sh", uuid.uuid4().hex, computer.name),
            ],
            stdin=subprocess.PIPE,  # it ends with this process, in whatever way that ends
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert computer.holder.stdout is not None
        said = computer.holder.stdout.readline().strip()
        if not said.isdecimal():
            raise TestudoError(f"computer {computer.name} could not be made; the lines above give the reason")
        computer.process_id = int(said)

    def _begin_server(self) -> None:
        """Start the discovery server of Fast DDS, as `fastdds discovery` does."""
        name = list(self.all)[-1]
        words = ["fastdds", "discovery"]
        if (beside := Path(sys.executable).with_name("fast-discovery-server")).exists():
            words = [str(beside), "42"]  # from wheels `fastdds` does not run: this is what it calls
        elif shutil.which("fastdds") is None:
            raise TestudoError("--discovery server: fastdds is not installed; source a ROS 2 with Fast DDS")
        environment = {key: value for key, value in self.environment(name).items() if not key.startswith("ROS_")}
        wheels = [Path(sys.prefix) / "lib", Path(sysconfig.get_path("purelib")) / "ros_fastdds.libs"]
        where = ("-i", "0", "-l", self._server_address, "-p", str(_SERVER_PORT))
        libraries = [*(str(path) for path in wheels if path.is_dir()), environment.get("LD_LIBRARY_PATH", "")]
        self._server = subprocess.Popen(
            self.all[name].words(["sh", "-c", _SERVE, "sh", *words, *where]),
            env=environment | {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries))},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        time.sleep(_SERVER_STARTS_S)
        if self._server.poll() is not None:
            raise TestudoError("the discovery server ended at its start; its own lines above give the reason")


def remove_left_overs() -> None:
    """Delete the namespaces of runs that were killed."""
    for namespace in Path("/run/netns").glob("testudo-*-*"):
        owner = namespace.name.split("-")[1]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            subprocess.run(["ip", "netns", "delete", namespace.name], check=False)


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_PATIENCE_S)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestudoError(f"`{' '.join(words)}` failed: {done.stderr.strip()}")
