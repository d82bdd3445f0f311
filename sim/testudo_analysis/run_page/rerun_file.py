"""Export of a page to Rerun: real and predicted poses, plots over time, incidents as text."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from testudo_analysis.run_page.page_data import PageBody, PageClock, RunPage, Severity
from testudo_hardware.errors import TestudoError

_TIMELINE = "run_time"
_LEVELS = {Severity.BAD: "ERROR", Severity.DOUBT: "WARN", Severity.NOTE: "INFO", Severity.GOOD: "INFO"}


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


def write_rerun(page: RunPage, path: Path) -> Path:
    """Write an .rrd file of a page with a scene and return its path.

    Raises:
        TestudoError: Rerun is not installed, or the file cannot be written.
    """
    rr = rerun_library()
    if path.suffix != ".rrd":
        raise TestudoError(f"--rerun: found {path}, expected a file that ends in .rrd")
    if page.scene is None or page.clock is None:
        raise TestudoError("--rerun: found a page without a scene, expected poses")
    stream = rr.RecordingStream("testudo_report", recording_id=None)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream.save(str(path))
    except (OSError, RuntimeError) as error:
        raise TestudoError(f"--rerun: {path} cannot be written: {error}") from error
    stream.log("world", rr.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
    for body in page.scene.bodies:
        _log_body(rr, stream, body, page.clock)
    _log_plots(rr, stream, page, page.clock)
    for event in page.events:
        stream.set_time(_TIMELINE, duration=event.at_s)
        words = event.what + (f" ({event.doubt})" if event.doubt else "")
        stream.log("incidents", rr.TextLog(f"{event.kind}: {words}", level=_LEVELS[event.severity]))
    stream.flush()
    stream.disconnect()
    return path


def _log_body(rr: ModuleType, stream: Any, body: PageBody, clock: PageClock) -> None:
    rgb = [int(body.colour[k : k + 2], 16) for k in (1, 3, 5)]
    size = body.size_m if body.kind == "box" else (2 * body.size_m[0], 2 * body.size_m[0], body.size_m[-1])
    for kind, poses, alpha in (("real", body.poses, 255), ("model", body.model, 110)):
        good = None if poses is None else np.isfinite(poses).all(axis=1)
        if poses is None or good is None or not good.any():
            continue
        path = f"world/{body.name}/{kind}"
        drawn = {"half_sizes": [[side / 2 for side in size]], "colors": [[*rgb, alpha]]}
        shape = rr.Boxes3D(**drawn) if body.kind == "box" else rr.Ellipsoids3D(**drawn)
        stream.log(path, shape, rr.Arrows3D(vectors=[[0.8 * size[0], 0.0, 0.0]], colors=[[*rgb, alpha]]), static=True)
        stream.send_columns(
            path,
            indexes=[rr.TimeColumn(_TIMELINE, duration=clock.times_s[good])],
            columns=rr.Transform3D.columns(translation=poses[good][:, :3], quaternion=poses[good][:, 3:]),
        )
        if kind == "real":
            lines = rr.LineStrips3D([poses[good][:, :3]], colors=[[*rgb, 120]])
            stream.log(f"world/{body.name}/path", lines, static=True)


def _log_plots(rr: ModuleType, stream: Any, page: RunPage, clock: PageClock) -> None:
    for plot in page.plots:
        for row in plot.rows:
            for line in row.lines:
                good = np.isfinite(line.values)
                if good.any():
                    stream.send_columns(
                        f"plots/{plot.name.replace(' ', '_')}/{row.robot}/{line.name}",
                        indexes=[rr.TimeColumn(_TIMELINE, duration=clock.times_s[good])],
                        columns=rr.Scalars.columns(scalars=line.values[good]),
                    )
