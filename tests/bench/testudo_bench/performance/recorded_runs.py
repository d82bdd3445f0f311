"""`testudo bench import` and `testudo bench replay`: speed of importing and of replaying recorded runs."""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testudo_analysis.gap.batch_rollout import by_robot, error_channels, roll_out_all
from testudo_analysis.gap.gap_analysis import HORIZONS_S
from testudo_analysis.gap.replayed_robots import robots_by_type
from testudo_bench.synthetic_data.synthetic_runs import synthetic_recording
from testudo_deploy.commands.report import BenchResult
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_runs.alignment import prepare
from testudo_runs.importing.run_import import ImportRequest, import_run
from testudo_runs.recording.load import load_recording
from testudo_runs.recording.recording import Recording
from testudo_sim.devices import devices

DATA_VARIABLE = "TESTUDO_REAL_DATA"  # environment variable with the folder of real recordings
_REAL = "mrclam6"
_DURATION_S, _ODOMETRY_HZ, _POSE_HZ = 772.0, 67.0, 64.0
_START_S = 1248444175.0
_IMPORT_BAR = 50.0


def bench_import(*, team_size: int = 5, repeats: int = 3, say: Callable[[str], None] = lambda _: None) -> BenchResult:
    """Import text logs of ground robots: read, check, convert, write, hash.

    Uses real logs of five robots if the environment variable TESTUDO_REAL_DATA is set, else synthetic logs of the same
    length, rates and format, which are written before the measurement. Real time is that of the longest series; medians
    are reported.

    Args:
        team_size: robots in synthetic logs.
        repeats: timed imports.
        say: called with progress messages.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(os.environ.get(DATA_VARIABLE, "")) / _REAL
        real = bool(os.environ.get(DATA_VARIABLE)) and folder.is_dir()
        if not real:
            say("making logs")
            folder = make_logs(Path(scratch) / "logs", team_size)
        walls, works, parts = [], [], {"reading": [], "writing": []}
        for repeat in range(repeats):
            say(f"import {repeat + 1} of {repeats}")
            watch = _PhaseTimer()
            wall, work = time.perf_counter(), time.process_time()
            result = import_run(ImportRequest((folder,)), Path(scratch) / f"run_{repeat}", watch)
            walls.append(time.perf_counter() - wall)
            works.append(time.process_time() - work)
            for name, seconds in watch.seconds().items():
                parts[name].append(seconds)
        size = sum(file.stat().st_size for file in folder.iterdir())
    wall, duration = statistics.median(walls), result.recording.duration_s
    values = {
        "logs": "real" if real else "made",
        "robots": len(result.recording.robots),
        "duration_s": duration,
        "bytes": size,
        "messages": result.messages,
        "wall_s": wall,
        "processor_s": statistics.median(works),
        "reading_s": statistics.median(parts["reading"]),
        "writing_s": statistics.median(parts["writing"]),
        "times_real_time": duration / wall,
        "times_real_time_of_772_s": _DURATION_S / wall,
        "times_real_time_by_processor": duration / statistics.median(works),
        "repeats": repeats,
    }
    rows = [
        ("times real time", f"{values['times_real_time']:.0f}", f"≥ {_IMPORT_BAR:.0f}"),
        ("times 772 s, the common duration", f"{values['times_real_time_of_772_s']:.0f}", f"≥ {_IMPORT_BAR:.0f}"),
        ("times real time by processor time", f"{values['times_real_time_by_processor']:.0f}", ""),
        ("wall clock", f"{wall:.2f} s", ""),
        ("reading and checking", f"{values['reading_s']:.2f} s", ""),
        ("writing", f"{values['writing_s']:.2f} s", ""),
        ("messages", f"{result.messages:,}", ""),
    ]
    title = f"import of {values['logs']} logs: {values['robots']} robots, {duration:.0f} s, {size / 1e6:.1f} MB of text"
    return BenchResult(title, ("what", "median", "bar"), rows, values)


def make_logs(folder: Path, team_size: int) -> Path:
    """Write odometry and ground truth of robots on circles, in the UTIAS format; return the folder."""
    folder.mkdir(parents=True)
    for robot in range(1, team_size + 1):
        for kind, rate in (("Odometry", _ODOMETRY_HZ), ("Groundtruth", _POSE_HZ)):
            stamps = np.arange(int(_DURATION_S * rate)) / rate
            yaw = (0.2 * stamps + np.pi) % (2 * np.pi) - np.pi
            columns = (
                (np.full_like(stamps, 0.08), np.full_like(stamps, 0.2))
                if kind == "Odometry"
                else (robot + 0.4 * np.sin(yaw), -0.4 * np.cos(yaw), yaw)
            )
            head = "forward velocity [m/s]" if kind == "Odometry" else "Robot Groundtruth Data Fomat"
            np.savetxt(
                folder / f"Robot{robot}_{kind}.dat",
                np.stack([_START_S + stamps, *columns], axis=1),
                fmt=["%.3f"] + ["%.8f"] * len(columns),
                delimiter=" \t ",
                header=head,
            )
    return folder


class _PhaseTimer:
    """Records when each phase of an import begins."""

    def __init__(self) -> None:
        self._marks = [("reading", time.perf_counter())]

    def __call__(self, what: str, _: float) -> None:
        if what != self._marks[-1][0]:
            self._marks.append((what, time.perf_counter()))

    def seconds(self) -> dict[str, float]:
        """Return the duration [s] of each phase; the last one lasts until now."""
        ends = [at for _, at in self._marks[1:]] + [time.perf_counter()]
        return {what: end - at for (what, at), end in zip(self._marks, ends, strict=True)}


_REPLAY_BAR = 1000.0


def bench_replay(
    *, robot: str = "irobot_create", team_size: int = 5, repeats: int = 5, say: Callable[[str], None] = lambda _: None
) -> BenchResult:
    """Replay every start of every robot of a run over all horizons, and compute the errors in every channel.

    Uses real logs of five ground robots if the environment variable TESTUDO_REAL_DATA is set, else a recording of the
    motion model of the same length. Real time is the time common to all robots, counted once. The measured time is from
    the prepared series in memory to the errors; reading the run and compilation are measured separately.

    Args:
        robot: registered robot, without logs.
        team_size: number of robots, without logs.
        repeats: timed replays.
        say: called with progress messages.
    """
    folder = Path(os.environ.get(DATA_VARIABLE, "")) / _REAL
    if not (os.environ.get(DATA_VARIABLE) and folder.is_dir()):
        say("driving a synthetic recording")
        return measure(synthetic_recording(load_robot(robot), robots=team_size, seconds=_DURATION_S), repeats, say)
    with tempfile.TemporaryDirectory() as scratch:
        say("importing")
        import_run(ImportRequest((folder,)), Path(scratch) / "run")
        return measure(load_recording(Path(scratch) / "run"), repeats, say)


def measure(recording: Recording, repeats: int, say: Callable[[str], None] = lambda _: None) -> BenchResult:
    """Time the replay of a recording with robots of one type.

    Raises:
        TestudoError: there are robots of several types, or none that can be replayed.
    """
    say("tidying the series")
    began = time.perf_counter()
    groups, left_out = robots_by_type(prepare(recording))
    tidy_s = time.perf_counter() - began
    if len(groups) != 1:
        raise TestudoError(
            f"{recording.folder}: found robots of {len(groups)} types that can be replayed, expected "
            "one; " + "; ".join(f"{name}: {why}" for name, why in left_out.items())
        )
    ((spec, robots),) = groups
    times, processor = [], []
    for repeat in range(repeats + 1):
        say(f"replay {repeat} of {repeats}" if repeat else "compiling")
        began, used = time.perf_counter(), time.process_time()
        outs = roll_out_all(robots, [spec], HORIZONS_S)
        by_robot(lambda out: error_channels(spec, out, 0), outs)
        times.append(time.perf_counter() - began)
        processor.append(time.process_time() - used)
    values = {
        "real": recording.folder is not None,
        "robots": len(robots),
        **_replay_figures(outs, times, processor),
        "tidy_s": tidy_s,
        "repeats": repeats,
        "device": devices().to_dict(),
    }
    rows = [
        ("times real time", f"{values['times_real_time']:,.0f}", f"≥ {_REPLAY_BAR:,.0f}"),
        ("wall time of one replay", f"{values['wall_s']:.2f} s", ""),
        ("processor time of one replay, all cores together", f"{values['processor_s']:.2f} s", ""),
        ("starts, windows", f"{values['starts']:,}, {values['windows']:,}", ""),
        ("tidying the series", f"{tidy_s:.2f} s", ""),
        ("compilation", f"{values['compile_s']:.1f} s", ""),
    ]
    title = f"open-loop replay of {values['real_s']:.0f} s of {len(robots)} {spec.name}; {devices().text}"
    return BenchResult(title, ("what", "median", "bar"), rows, values)


def _replay_figures(outs: Sequence[Any], times: Sequence[float], processor: Sequence[float]) -> dict[str, Any]:
    """Return the figures of timed replays [s]; the first of ``times`` includes compilation."""
    wall_s, processor_s = statistics.median(times[1:]), statistics.median(processor[1:])
    starts = [out.windows.start_s for out in outs]
    shared_s = float(min(s.max() for s in starts) - max(s.min() for s in starts))
    real_s = shared_s if shared_s > 0 else float(max(np.ptp(s) for s in starts))
    windows = sum(int(out.windows.valid.sum()) for out in outs)
    return {
        "real_s": real_s,
        "wall_s": wall_s,
        "times_real_time": real_s / wall_s,
        "starts": sum(map(len, starts)),
        "windows": windows,
        "windows_per_s": windows / wall_s,
        "fastest": real_s / min(times[1:]),
        "times_real_time_by_processor": real_s / processor_s,
        "processor_s": processor_s,
        "compile_s": times[0] - wall_s,
    }
