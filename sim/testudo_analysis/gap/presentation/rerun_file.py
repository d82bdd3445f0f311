"""Export to Rerun: real and replayed poses, and the errors over time."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from testudo_analysis.gap.gap_analysis import TypeReplay
from testudo_analysis.gap.gap_report import GapReport
from testudo_analysis.gap.presentation.top_view import ReplayedCourse
from testudo_analysis.report.plot_style import robot_colour
from testudo_hardware.errors import TestudoError

_TIMELINE = "run_time"


def rerun_library() -> ModuleType:
    """Return the `rerun` package.

    Raises:
        TestudoError: it is not installed.
    """
    try:
        import rerun  # noqa: PLC0415 -- an optional extra
    except ImportError as error:
        raise TestudoError(
            "--rerun: the package rerun-sdk is not installed; install it with pip install 'testudo[rerun]'"
        ) from error
    return rerun


def write_rerun(
    path: Path, report: GapReport, replays: Sequence[TypeReplay], courses: Sequence[Sequence[ReplayedCourse]]
) -> Path:
    """Write an .rrd file and return its path.

    ``report`` names the run, ``replays`` have the errors at every start, ``courses`` real and replayed poses, by type
    of robot.

    Raises:
        TestudoError: Rerun is not installed, or the file cannot be written.
    """
    rr = rerun_library()
    if path.suffix != ".rrd":
        raise TestudoError(f"--rerun: found {path}, expected a file that ends in .rrd")
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = rr.RecordingStream("testudo_gap", recording_id=None)
    try:
        stream.save(str(path))
    except (OSError, RuntimeError) as error:
        raise TestudoError(f"--rerun: {path} cannot be written: {error}") from error
    stream.log("world", rr.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
    index = 0
    for replay, own in zip(replays, courses, strict=True):
        for k, out in enumerate(replay.outs):
            if own:
                _log_course(rr, stream, own[k], replay.spec.body_radius_m, robot_colour(index))
            errors = replay.errors[list(replay.models)[-1]][k]
            for channel, values in errors.items():
                for h, horizon in enumerate(report.horizons_s):
                    good = np.isfinite(values[h])
                    if good.any():
                        stream.send_columns(
                            f"errors/{channel}/{horizon:g}s/{out.robot.name}",
                            indexes=[rr.TimeColumn(_TIMELINE, duration=out.windows.start_s[good])],
                            columns=rr.Scalars.columns(scalars=values[h][good]),
                        )
            index += 1
    stream.flush()
    stream.disconnect()
    return path


def _log_course(rr: ModuleType, stream: Any, course: ReplayedCourse, radius_m: float, colour: str) -> None:
    rgb = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    for kind, poses, alpha in (("real", course.real, 255), ("replayed", course.replayed, 110)):
        path = f"world/{course.robot}/{kind}"
        good = np.isfinite(poses).all(axis=1)
        if not good.any():
            continue
        places = np.pad(poses[good][:, :-1], ((0, 0), (0, 4 - poses.shape[1])))
        half = 0.5 * poses[good][:, -1]
        turns = np.stack([np.zeros_like(half), np.zeros_like(half), np.sin(half), np.cos(half)], axis=1)
        times = [rr.TimeColumn(_TIMELINE, duration=course.time_s[good])]
        stream.log(
            path,
            rr.Ellipsoids3D(half_sizes=[[radius_m, radius_m, 0.3 * radius_m]], colors=[[*rgb, alpha]]),
            rr.Arrows3D(vectors=[[1.6 * radius_m, 0.0, 0.0]], colors=[[*rgb, alpha]]),
            static=True,
        )
        stream.send_columns(path, indexes=times, columns=rr.Transform3D.columns(translation=places, quaternion=turns))
        if kind == "real":
            stream.log(f"world/{course.robot}/path", rr.LineStrips3D([places], colors=[[*rgb, 120]]), static=True)
