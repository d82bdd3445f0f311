"""`testudo bench import`: how many times real time logs of a team become a run folder."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from testudo_deploy.bench.result import BenchResult
from testudo_runs.importing.run_import import ImportRequest, import_run

DATA_VARIABLE = "TESTUDO_REAL_DATA"
"""Environment variable that names the folder of real recordings."""
_REAL = "mrclam6"
_DURATION_S, _ODOMETRY_HZ, _POSE_HZ = 772.0, 67.0, 64.0
_START_S = 1248444175.0
_BAR = 50.0


def bench_import(*, team_size: int = 5, repeats: int = 3, say: Callable[[str], None] = lambda _: None) -> BenchResult:
    """Import text logs of ground robots: read, check, convert, write, hash.

    Takes the real logs of five robots where the environment variable TESTUDO_REAL_DATA names their folder, and else
    logs of the same length, rates and form that are made before the clock starts. Real time is that of the longest
    series; medians are reported.

    Args:
        team_size: robots, where the logs are made.
        repeats: imports that are timed.
        say: is told what is going on.
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
            watch = _Watch()
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
        ("times real time", f"{values['times_real_time']:.0f}", f"≥ {_BAR:.0f}"),
        ("times 772 s, which all robots have in common", f"{values['times_real_time_of_772_s']:.0f}", f"≥ {_BAR:.0f}"),
        ("times real time by processor time", f"{values['times_real_time_by_processor']:.0f}", ""),
        ("wall clock", f"{wall:.2f} s", ""),
        ("reading and checking", f"{values['reading_s']:.2f} s", ""),
        ("writing", f"{values['writing_s']:.2f} s", ""),
        ("messages", f"{result.messages:,}", ""),
    ]
    title = f"import of {values['logs']} logs: {values['robots']} robots, {duration:.0f} s, {size / 1e6:.1f} MB of text"
    return BenchResult(title, ("what", "median", "bar"), rows, values)


def make_logs(folder: Path, team_size: int) -> Path:
    """Write odometry and ground truth of robots on circles, as the UTIAS robots wrote them; return the folder."""
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


class _Watch:
    """Takes the times at which an import began to do what."""

    def __init__(self) -> None:
        self._marks = [("reading", time.perf_counter())]

    def __call__(self, what: str, _: float) -> None:
        if what != self._marks[-1][0]:
            self._marks.append((what, time.perf_counter()))

    def seconds(self) -> dict[str, float]:
        """Return the seconds that each part took, the last until now."""
        ends = [at for _, at in self._marks[1:]] + [time.perf_counter()]
        return {what: end - at for (what, at), end in zip(self._marks, ends, strict=True)}
