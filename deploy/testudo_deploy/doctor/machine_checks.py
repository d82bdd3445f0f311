"""Checks of a machine: interpreter, packages, device, clock, processor; pure, from facts to findings."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

from testudo_deploy.compiling.shared_library import SWITCH
from testudo_deploy.doctor.finding import Finding, failed, ok, warning
from testudo_deploy.doctor.machine_facts import (
    DISTRIBUTION,
    AcceleratorFact,
    ClockFact,
    MachineCodeFact,
    MachineFacts,
    PackageFact,
    ProcessorFact,
)

NEEDED_PRIORITY = 6
"""Highest real-time priority of the nodes, that of the emergency stop: `process_priority.PRIORITIES`."""
_LIMIT_PRIORITY = 20  # the limit that the remedy sets: above every node's, below the threads of the kernel
_LARGEST_CLOCK_ERROR_S = 0.05
_SLOW_CLOCK_SOURCES = ("hpet", "acpi_pm", "jiffies")
_NOT_ON_ROBOTS = "a robot needs none, as it does not learn"


def check_machine(facts: MachineFacts, *, runs_fleet: bool, needs_clock: bool) -> tuple[Finding, ...]:
    """Return the findings about a machine.

    Args:
        facts: of the machine.
        runs_fleet: it is to run nodes of a fleet, which need the packages of the robot side.
        needs_clock: a robot of the fleet stamps its messages with a wall clock.
    """
    return (
        check_interpreter(facts),
        check_packages(facts.packages, runs_fleet=runs_fleet),
        check_accelerator(facts.accelerator),
        check_clock(facts.clock, needed=needs_clock),
        check_clock_source(facts.clock),
        check_governor(facts.processor),
        check_load(facts.processor),
        check_realtime(facts.processor),
        check_machine_code(facts.machine_code),
    )


def check_interpreter(facts: MachineFacts) -> Finding:
    """Check the Python version, and that the distribution is installed for it."""
    name, found = "interpreter", f"Python {facts.python} ({facts.executable})"
    if not facts.python_required:
        return warning(
            name,
            f"{found}, in which the distribution {DISTRIBUTION} is not installed: versions of packages are not known",
            f"install it there: {facts.executable} -m pip install {DISTRIBUTION}, or `make setup` in the sources",
        )
    if not SpecifierSet(facts.python_required).contains(facts.python, prereleases=True):
        return failed(
            name,
            f"{found}, expected {facts.python_required}",
            "uv python install 3.12, then install again with it: PYTHON=/path/to/python3.12 make setup",
        )
    return ok(name, found)


def check_packages(packages: tuple[PackageFact, ...], *, runs_fleet: bool) -> Finding:
    """Check that packages are there and of the versions that the distribution asks for."""
    name = "packages"
    wrong = [one for one in packages if one.found is not None and not one.fits]
    if wrong:
        texts = [f"{one.name} {one.found}, expected {one.required}" for one in wrong]
        wanted = " ".join(f"'{one.name}{one.required}'" for one in wrong)
        make = failed if any(one.extra in ("", "robot") for one in wrong) else warning
        return make(name, f"found {'; '.join(texts)}", f"pip install {wanted}")
    missing: dict[str, list[str]] = {}
    for one in packages:
        if one.found is None:
            missing.setdefault(one.extra, []).append(one.name)
    needed = ("", "robot") if runs_fleet else ("",)
    for extra in needed:
        if extra in missing:
            what = f"{DISTRIBUTION}[{extra}]" if extra else DISTRIBUTION
            return failed(name, f"{', '.join(missing[extra])}: not installed", f"pip install '{what}'")
    versions = f"{sum(one.found is not None for one in packages)} found, all of versions that fit"
    absent = [f"{extra} ({len(names)} packages)" for extra, names in missing.items()]
    rest = f"; the extra {', '.join(absent)} is not installed: {_NOT_ON_ROBOTS}" if absent else ""
    return ok(name, versions + rest)


def check_accelerator(fact: AcceleratorFact) -> Finding:
    """Check that JAX starts, and that it uses a GPU that is there."""
    name = "device"
    if not fact.installed:
        return ok(name, f"JAX is not installed: {_NOT_ON_ROBOTS}")
    if fact.error:
        return failed(
            name,
            f"JAX does not start: {fact.error}",
            "install it again: pip install --force-reinstall 'testudo[train]'; JAX_PLATFORMS=cpu works without the GPU",
        )
    if fact.gpu_present and fact.backend == "cpu":
        return warning(
            name,
            "JAX uses the CPU, and this machine has a GPU",
            "pip install 'testudo[gpu]' (NVIDIA driver 580 or newer), and unset JAX_PLATFORMS and CUDA_VISIBLE_DEVICES",
        )
    return ok(name, f"JAX on {fact.backend} ({fact.devices})")


def check_clock(fact: ClockFact, *, needed: bool) -> Finding:
    """Check that the wall clock is set by the network: stamps of a robot's driver are compared with it."""
    name = "clock"
    if fact.synchronised is None:
        return warning(name, "the system does not say whether its clock is set", "compare it: chronyc tracking")
    remedy = "sudo apt install chrony && sudo systemctl enable --now chrony, on this and every computer of the fleet"
    make = failed if needed else warning
    if not fact.synchronised:
        why = ", and robots of this fleet stamp with a wall clock" if needed else ""
        return make(name, f"nothing sets the clock of this machine{why}", remedy)
    if fact.largest_error_s is not None and fact.largest_error_s > _LARGEST_CLOCK_ERROR_S and needed:
        return warning(
            name,
            f"the clock is set, and may be off by {fact.largest_error_s:.2g} s",
            "chronyc tracking, and a time server nearby: `server HOST iburst` in /etc/chrony/chrony.conf",
        )
    return ok(name, "the clock is set by the network")


def check_clock_source(fact: ClockFact) -> Finding:
    """Check that reading the clock is quick: a tick reads it many times."""
    name = "clock source"
    if fact.source in _SLOW_CLOCK_SOURCES:
        return warning(
            name,
            f"{fact.source}, which takes microseconds to read",
            "add tsc=reliable clocksource=tsc to GRUB_CMDLINE_LINUX, then sudo update-grub and restart",
        )
    return ok(name, fact.source or "not named by the system")


def check_governor(fact: ProcessorFact) -> Finding:
    """Check that cores do not sleep through the beginning of a tick."""
    name = "CPU governor"
    slow = [one for one in fact.governors if one != "performance"]
    if slow:
        return warning(
            name,
            f"{', '.join(slow)}: a core that slows down between ticks begins the next one late",
            "sudo cpupower frequency-set -g performance (apt install linux-tools-generic)",
        )
    return ok(name, ", ".join(fact.governors) or "the system has none, as in most virtual machines and containers")


def check_load(fact: ProcessorFact) -> Finding:
    """Check that cores are free."""
    name = "load"
    text = f"{fact.load:.1f} processes on {fact.cores} cores in the last minute"
    if fact.load > fact.cores:
        return warning(name, text, "end what needs the processor (top), or give the fleet cores of its own: taskset")
    return ok(name, text)


def check_realtime(fact: ProcessorFact) -> Finding:
    """Check that the nodes may take the priorities that they ask for."""
    name = "real-time rights"
    limit = f"{fact.realtime_limit} for priorities" if fact.realtime_limit >= 0 else "no limit for priorities"
    if fact.realtime_works:
        if 0 <= fact.realtime_limit < NEEDED_PRIORITY:
            return ok(name, f"granted by a privilege of this user ({limit})")
        return ok(name, f"granted ({limit})")
    if 0 <= fact.realtime_limit < NEEDED_PRIORITY:
        return warning(
            name,
            f"found {limit}, the nodes ask for up to {NEEDED_PRIORITY}: on a loaded machine a guard brakes late",
            f"echo '@dialout - rtprio {_LIMIT_PRIORITY}' | sudo tee /etc/security/limits.d/testudo.conf (a group of "
            f"yours in place of dialout), and log in again; in a container: --ulimit rtprio={_LIMIT_PRIORITY}",
        )
    return warning(
        name,
        f"found {limit}, and the kernel refuses all the same",
        "sudo sysctl kernel.sched_rt_runtime_us=-1; in a container: --cap-add=SYS_NICE and a CPU budget for real time",
    )


def check_machine_code(fact: MachineCodeFact) -> Finding:
    """Check that there is a compiler where robots are to compute their ticks as machine code."""
    name = "machine code"
    if fact.refused:
        return warning(
            name,
            f"{SWITCH}=1 asks for it, and {fact.refused}: ticks stay in NumPy and take about three times as long",
            f"sudo apt install gcc libc6-dev, or unset {SWITCH}",
        )
    return ok(name, "asked for, and the C compiler works" if fact.asked_for else f"not asked for ({SWITCH} is not 1)")
