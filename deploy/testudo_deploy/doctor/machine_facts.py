"""Probes of this machine: interpreter, packages, accelerator, clock, processor. Nothing is changed."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from testudo_deploy.compiling.shared_library import NotCompiledError, is_asked_for, try_compiler
from testudo_hardware.errors import TestudoError

DISTRIBUTION = "testudo"
_EXTRAS = ("", "robot", "train")  # "" is what every machine needs; ROS 2 has checks of its own
_PROBE_S = 60.0  # time-out of a probe in another process; the first start of JAX takes some seconds
_CLOCK_UNSYNCHRONISED = 0x40  # STA_UNSYNC of adjtimex(2)
_CLOCK_ERROR = 5  # TIME_ERROR, the state that adjtimex(2) returns
_GPU_FILES = ("dev/nvidia0", "dev/kfd")


@dataclass(frozen=True)
class PackageFact:
    """A package that the distribution asks for."""

    name: str
    extra: str  # the extra that asks for it; empty: every machine needs it
    required: str  # versions, such as `>=1.26`
    found: str | None  # installed version; None if it is not installed
    fits: bool


@dataclass(frozen=True)
class AcceleratorFact:
    """What JAX computes on."""

    installed: bool
    backend: str = ""  # `cpu`, `gpu` or `tpu`; empty if JAX does not start
    devices: str = ""
    error: str = ""  # last line of the error, if it does not start
    gpu_present: bool = False  # the kernel has a driver of a GPU


@dataclass(frozen=True)
class ClockFact:
    """The wall clock; None where the system does not say."""

    synchronised: bool | None
    largest_error_s: float | None  # estimate of the kernel
    source: str  # hardware behind it, such as `tsc`; empty if unknown


@dataclass(frozen=True)
class ProcessorFact:
    """Cores, load and scheduling rights."""

    cores: int
    load: float  # of one minute: processes that run or wait for a core
    governors: tuple[str, ...]  # of the cores, each once; empty where the system has none
    realtime_limit: int  # highest real-time priority that a process may take; RLIMIT_RTPRIO
    realtime_works: bool  # the kernel grants it


@dataclass(frozen=True)
class MachineCodeFact:
    """Whether robots here compute their ticks as machine code; off by default."""

    asked_for: bool = False
    refused: str = ""  # why this computer cannot; empty if it can, or if it is not asked for


@dataclass(frozen=True)
class MachineFacts:
    """Everything that the checks of a machine need."""

    python: str
    executable: str
    python_required: str  # versions that the distribution asks for; empty if it is not installed as one
    packages: tuple[PackageFact, ...]
    accelerator: AcceleratorFact
    clock: ClockFact
    processor: ProcessorFact
    machine_code: MachineCodeFact = MachineCodeFact()


def machine_facts(root: Path = Path("/")) -> MachineFacts:
    """Return the facts of this machine; ``root`` is the folder of `proc`, `sys` and `dev`."""
    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        required, requirements = "", ()
    else:
        required, requirements = distribution.metadata.get("Requires-Python", ""), tuple(distribution.requires or ())
    return MachineFacts(
        platform.python_version(),
        sys.executable,
        required,
        package_facts(requirements),
        accelerator_fact(root),
        clock_fact(root),
        processor_fact(root),
        machine_code_fact(),
    )


def package_facts(requirements: Iterable[str], installed: Mapping[str, str] | None = None) -> tuple[PackageFact, ...]:
    """Return the packages behind requirements such as `numpy>=1.26` and `mcap>=1.6; extra == "robot"`.

    ``installed`` has versions by name; None asks this environment. Extras of ROS 2 and of development are left out.
    """
    found: dict[str, PackageFact] = {}
    for text in requirements:
        requirement = Requirement(text)
        if requirement.name == DISTRIBUTION:  # an extra that contains another one
            continue
        marker = requirement.marker
        extra = next((one for one in _EXTRAS if marker is None or marker.evaluate({"extra": one})), None)
        if extra is None:
            continue
        version = _version(requirement.name) if installed is None else installed.get(requirement.name)
        fits = version is not None and requirement.specifier.contains(version, prereleases=True)
        # an extra that contains another one repeats its packages
        found.setdefault(
            requirement.name, PackageFact(requirement.name, extra, str(requirement.specifier), version, fits)
        )
    return tuple(found.values())


def accelerator_fact(root: Path = Path("/")) -> AcceleratorFact:
    """Return what JAX computes on; it is started in a process of its own, which may die of a wrong driver."""
    gpu = any((root / name).exists() for name in _GPU_FILES)
    if util.find_spec("jax") is None:
        return AcceleratorFact(installed=False, gpu_present=gpu)
    code = "import jax, json; print(json.dumps([jax.default_backend(), str(jax.devices()[0].device_kind)]))"
    try:
        backend, device = probe(code)
    except TestudoError as error:
        return AcceleratorFact(installed=True, error=str(error), gpu_present=gpu)
    return AcceleratorFact(True, str(backend), str(device), gpu_present=gpu)


def clock_fact(root: Path = Path("/")) -> ClockFact:
    """Return the state of the wall clock as the kernel knows it."""
    source = _text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource")
    state = _Timex()
    try:
        returned = int(ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(state)))
    except (OSError, AttributeError):  # no Linux
        return ClockFact(None, None, source)
    if returned < 0:
        return ClockFact(None, None, source)
    synchronised = returned != _CLOCK_ERROR and not state.status & _CLOCK_UNSYNCHRONISED
    return ClockFact(synchronised, state.maxerror / 1e6, source)


def processor_fact(root: Path = Path("/")) -> ProcessorFact:
    """Return cores, load and scheduling rights of this process."""
    files = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"))
    governors = tuple(dict.fromkeys(text for file in files if (text := _text(file))))
    cores = len(os.sched_getaffinity(0)) if sys.platform.startswith("linux") else os.cpu_count() or 1
    limit = resource.getrlimit(resource.RLIMIT_RTPRIO)[0] if sys.platform.startswith("linux") else 0
    return ProcessorFact(cores, os.getloadavg()[0], governors, limit, _grants_realtime())


def machine_code_fact() -> MachineCodeFact:
    """Return whether machine code is asked for in this shell; the compiler is tried only then."""
    if not is_asked_for():
        return MachineCodeFact()
    try:
        try_compiler()
    except NotCompiledError as error:
        return MachineCodeFact(asked_for=True, refused=str(error))
    return MachineCodeFact(asked_for=True)


def probe(code: str, environment: Mapping[str, str] | None = None) -> Any:
    """Run Python code in a process of its own and return the JSON value of its last line.

    Raises:
        TestudoError: it failed, crashed or hangs; the last line of its error.
    """
    variables = None if environment is None else dict(environment)
    try:
        done = subprocess.run(  # noqa: S603 -- this interpreter with code of this package
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=_PROBE_S, check=False, env=variables
        )
    except subprocess.TimeoutExpired as error:
        raise TestudoError(f"no answer within {_PROBE_S:.0f} s") from error
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        try:
            return json.loads(lines[-1])
        except ValueError:
            pass
    said = [line for line in done.stderr.strip().splitlines() if line.strip()]
    raise TestudoError(said[-1].strip() if said else f"the process ended with status {done.returncode}")


class _Timex(ctypes.Structure):
    """`struct timex` of adjtimex(2); with `modes` 0 nothing is set."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),  # [us]
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )
    status: int
    maxerror: int


def _grants_realtime() -> bool:
    """Return whether the kernel gives this thread real-time scheduling; it is given back at once."""
    if not sys.platform.startswith("linux"):
        return False
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        return False
    os.sched_setscheduler(0, policy, priority)
    return True


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except OSError:
        return ""
