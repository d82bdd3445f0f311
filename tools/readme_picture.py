# ruff: noqa: INP001 (a script, not a package)
"""Makes the picture of README.md from a recorded run: the scene half-way, and all paths from above.

Example: .venv/bin/python tools/readme_picture.py runs/picture/run docs/images/fleet.png
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from testudo_analysis.rendering.animation import Animation, AnimationScene, Trajectory, arena_around
from testudo_analysis.rendering.render_run import RenderOptions, render_run
from testudo_analysis.report.report_data import FleetSection
from testudo_analysis.report.run_plots import trajectory_plot
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_runs.run_reader import RecordedRun, read_run

_WIDTH_PX = 720
_FRAMES_PER_S = 15.0


def main() -> None:
    """Read the words of the command line and write the picture."""
    parser = argparse.ArgumentParser(description="Make the picture of README.md from a run.")
    parser.add_argument("run", type=Path, help="run folder, recorded with the plant")
    parser.add_argument("out", type=Path, help="the PNG to write")
    parser.add_argument("--time", type=float, default=6.5, help="moment of the scene [s]")
    words = parser.parse_args()
    run = read_run(words.run)
    contract = PolicyArtefact.load(run.policy_path).contract
    section = FleetSection(run, contract, None)
    paths = Image.open(io.BytesIO(trajectory_plot(section).png)).convert("RGB")
    size = (_WIDTH_PX, round(paths.height * _WIDTH_PX / paths.width))
    both = Image.new("RGB", (2 * _WIDTH_PX, size[1]), "white")
    both.paste(scene_at(run, section, words.time, size), (0, 0))
    both.paste(paths.resize(size, Image.Resampling.LANCZOS), (_WIDTH_PX, 0))
    words.out.parent.mkdir(parents=True, exist_ok=True)
    both.save(words.out, optimize=True)


def scene_at(run: RecordedRun, section: FleetSection, time_s: float, size: tuple[int, int]) -> Image.Image:
    """Return the scene ``time_s`` [s] after the start, with the ways so far."""
    started = next(event.stamp_s for event in run.events if event.kind == "started")
    tracks = [run.truth[name] for name in run.robots]
    times = np.arange(started, started + time_s, 1 / _FRAMES_PER_S)
    position = np.stack(
        [[np.interp(times, track.stamp_s, axis) for axis in track.position_world.T] for track in tracks]
    ).transpose(2, 0, 1)
    yaw = np.stack([np.interp(times, track.stamp_s, track.yaw) for track in tracks], axis=1)
    robots = [run.fleet.robot(name) for name in run.robots]
    trajectory = Trajectory(times, position, yaw)
    goals = np.array([robot.goal_world for robot in robots])
    arena = section.contract.arena or arena_around(trajectory, goals)
    show = Animation(AnimationScene(tuple(robot.spec for robot in robots), arena, goals), trajectory)
    with tempfile.TemporaryDirectory() as folder:
        options = RenderOptions(width=size[0], height=size[1])
        file = render_run(show, Path(folder) / "scene.png", options)
        return Image.open(file).convert("RGB")


if __name__ == "__main__":
    main()
