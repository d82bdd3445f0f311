"""Processor time of each test with the programs that it started, which a busy machine changes less than a clock.

The end of a run tells what each room took, and the dearest tests with the number of programs that JAX compiled for them
or took from its cache. Nothing is asserted.
"""

import os
import resource
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

_SHOWN = 10
_spent, _programs = Counter(), Counter()
"""Seconds and programs of each test, in the process that prints."""
_last = [0.0]
_spun = []
"""Seconds that programs of `CpuKeepAwake` took, in the process that tests."""
_compiled, _listens = [], []
"""One entry for each program since the last report, and one when JAX tells of programs; in the process that tests."""


def _now_s():
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime - sum(_spun)


def count_out_keep_awake():
    """Leave out what `CpuKeepAwake` takes: its programs spin while a core is idle, and are no work of a test."""
    from testudo_deploy.launch.child_processes import CpuKeepAwake

    leave, ticks_s = CpuKeepAwake.__exit__, os.sysconf("SC_CLK_TCK")

    def counted(awake, *details):
        for spinner in awake._spinners:
            fields = Path(f"/proc/{spinner.pid}/stat").read_text().rpartition(")")[2].split()
            _spun.append((int(fields[11]) + int(fields[12])) / ticks_s)  # utime and stime, see proc(5)
        leave(awake, *details)

    CpuKeepAwake.__exit__ = counted


def _note(event, seconds, **_):
    if event.endswith("/backend_compile_duration"):
        _compiled.append(seconds)


def pytest_runtest_logstart():
    monitoring = sys.modules.get("jax.monitoring")  # set up only where a test module imports JAX
    if monitoring is not None and not _listens:
        monitoring.register_event_duration_secs_listener(_note)
        _listens.append(True)
    _last[0] = _now_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Write into the report what set-up, call or end took; reports go from the workers to the process that prints."""
    report = yield
    now = _now_s()
    report.processor_s, _last[0] = now - _last[0], now
    report.programs = len(_compiled)
    _compiled.clear()
    return report


def pytest_runtest_logreport(report):
    _spent[report.nodeid] += getattr(report, "processor_s", 0.0)
    _programs[report.nodeid] += getattr(report, "programs", 0)


def pytest_terminal_summary(terminalreporter):
    """Print the sum, the rooms and the dearest tests; a fixture counts for the first test that asks for it."""
    if not _spent:
        return
    rooms = Counter()
    for name, seconds in _spent.items():
        rooms["/".join(name.split("::")[0].split("/")[:2])] += seconds
    terminalreporter.section(f"{_spent.total():.0f} s of processor time")
    told = [f"{room} {seconds:.0f}" for room, seconds in rooms.most_common() if seconds > 1]
    terminalreporter.write_line(", ".join(told))
    for name, seconds in _spent.most_common(_SHOWN):
        terminalreporter.write_line(f"{seconds:6.1f} s {_programs[name]:4d} programs {name}")
