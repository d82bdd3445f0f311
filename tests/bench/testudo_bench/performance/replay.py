"""`testudo bench replay`: how fast every start of a run is replayed open loop."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from testudo_analysis.gap.gap_analysis import HORIZONS_S, recorded_motions
from testudo_analysis.gap.prediction.batch_rollout import by_robot, roll_out_all
from testudo_analysis.gap.prediction.prediction_errors import error_channels
from testudo_analysis.gap.prediction.synthetic_recording import synthetic_recording
from testudo_bench.performance.importing import DATA_VARIABLE
from testudo_deploy.bench.result import BenchResult
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_runs.importing.run_import import ImportRequest, import_run
from testudo_runs.recording import Recording, load_recording
from testudo_sim.devices import devices

_BAR = 1000.0
_SECONDS = 772.0


def bench_replay(
    *, robot: str = "irobot_create", team_size: int = 5, repeats: int = 5, say: Callable[[str], None] = lambda _: None
) -> BenchResult:
    """Replay every start of every robot of a run over all horizons, and take the errors in every channel.

    Takes the real logs of five ground robots where the environment variable TESTUDO_REAL_DATA names their folder, and
    else a recording of the motion model itself of the same length. Real time is counted once, not once for each robot:
    the time that all of them share. What is timed is everything from the tidy series in memory to the errors; reading
    the run and compilation are timed apart.

    Args:
        robot: registered robot, where there are no logs.
        team_size: robots, where there are no logs.
        repeats: timed replays.
        say: is told what is going on.
    """
    folder = Path(os.environ.get(DATA_VARIABLE, "")) / "mrclam6"
    if not (os.environ.get(DATA_VARIABLE) and folder.is_dir()):
        say("driving a synthetic recording")
        return measure(synthetic_recording(load_robot(robot), robots=team_size, seconds=_SECONDS), repeats, say)
    with tempfile.TemporaryDirectory() as scratch:
        say("importing")
        import_run(ImportRequest((folder,)), Path(scratch) / "run")
        return measure(load_recording(Path(scratch) / "run"), repeats, say)


def measure(recording: Recording, repeats: int, say: Callable[[str], None] = lambda _: None) -> BenchResult:
    """Time the replay of a recording.

    Args:
        recording: of robots of one type.
        repeats: timed replays.
        say: is told what is going on.

    Raises:
        TestudoError: robots of several types, or none that can be replayed.
    """
    say("tidying the series")
    began = time.perf_counter()
    groups, left_out = recorded_motions(recording, None)
    tidy_s = time.perf_counter() - began
    if len(groups) != 1:
        raise TestudoError(
            f"{recording.folder}: found robots of {len(groups)} types that can be replayed, expected "
            "one; " + "; ".join(f"{name}: {why}" for name, why in left_out.items())
        )
    ((spec, motions),) = groups
    times, processor = [], []
    for repeat in range(repeats + 1):
        say(f"replay {repeat} of {repeats}" if repeat else "compiling")
        began, used = time.perf_counter(), time.process_time()
        outs = roll_out_all(motions, [spec], HORIZONS_S)
        by_robot(lambda out: error_channels(spec, out, 0), outs)
        times.append(time.perf_counter() - began)
        processor.append(time.process_time() - used)
    wall_s = statistics.median(times[1:])
    starts = [out.windows.start_s for out in outs]
    shared_s = float(min(s.max() for s in starts) - max(s.min() for s in starts))
    real_s = shared_s if shared_s > 0 else float(max(np.ptp(s) for s in starts))
    windows = int(sum(out.windows.valid.sum() for out in outs))
    values = {
        "real": recording.folder is not None,
        "robots": len(motions),
        "real_s": real_s,
        "wall_s": wall_s,
        "times_real_time": real_s / wall_s,
        "starts": sum(map(len, starts)),
        "windows": windows,
        "windows_per_s": windows / wall_s,
        "fastest": real_s / min(times[1:]),
        "times_real_time_by_processor": real_s / statistics.median(processor[1:]),
        "tidy_s": tidy_s,
        "processor_s": statistics.median(processor[1:]),
        "compile_s": times[0] - wall_s,
        "repeats": repeats,
        "device": devices().to_dict(),
    }
    rows = [
        ("times real time", f"{values['times_real_time']:,.0f}", f"≥ {_BAR:,.0f}"),
        ("wall time of one replay", f"{wall_s:.2f} s", ""),
        ("processor time of one replay, all cores together", f"{values['processor_s']:.2f} s", ""),
        ("starts, windows", f"{values['starts']:,}, {windows:,}", ""),
        ("tidying the series", f"{tidy_s:.2f} s", ""),
        ("compilation", f"{values['compile_s']:.1f} s", ""),
    ]
    title = f"open-loop replay of {real_s:.0f} s of {len(motions)} {spec.name}; {devices().text}"
    return BenchResult(title, ("what", "median", "bar"), rows, values)
