"""`testudo view`: look at a recorded run, or at an episode that a policy drives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.text import Text

from testudo_analysis.rendering import Animation, RenderOptions, check_film, render_run
from testudo_analysis.rendering.interactive_viewer import has_display, play
from testudo_analysis.rendering.run_film import recorded_show
from testudo_analysis.rendering.scene_model import View
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.launch.run_folder import INFO_FILE
from testudo_hardware.errors import TestudoError
from testudo_policies.commands.json_output import check_output
from testudo_runs.run_reader import read_run
from testudo_sim.physics_choice import PhysicsChoice

_CONFIG = "config.json"  # of a training run
_SIZE_PX = (960, 672)
_FRAMES_PER_S = {".mp4": 25.0}
_OTHER_FRAMES_PER_S = 12.5  # each frame of a .gif weighs


@dataclass(frozen=True)
class _Wish:
    """What the episode of a policy shall be like."""

    seed: int | None
    team_size: int | None
    shield: bool
    physics: PhysicsChoice


def view(
    source: Annotated[Path, tyro.conf.Positional],
    *,
    film: Path | None = None,
    html: Path | None = None,
    seed: int | None = None,
    team_size: int | None = None,
    shield: bool = True,
    physics: Annotated[PhysicsChoice, tyro.conf.arg(name="")] = PhysicsChoice(),  # noqa: B008
    speed: float = 1.0,
    camera: View = "oblique",
) -> None:
    """Look at a run: in a window, as a film, or as a page for a browser.

    Without --film and --html a window opens, where there is a screen; else a film is written beside
    SOURCE. For a policy, one held-out episode is simulated.

    Example:
        testudo view runs/mine/run
        testudo view policy.onnx --seed 7 --film episode.mp4
        testudo view runs/mine --team-size 6 --html episode.html

    Args:
        source: a recorded run, an exported policy.onnx, or the folder of a training run.
        film: file to write: .mp4, .gif, .webp, or .png for the last moment with the ways.
        html: file for a page that needs nothing else, not even a network.
        seed: of the episode; by default the first that `testudo evaluate` runs.
        team_size: robots of the episode; by default as in training.
        shield: `--no-shield` lets the episode's nominal commands pass unchecked.
        physics: what moves the robots of the episode.
        speed: times real time, of window and film.
        camera: where it looks from, at first.
    """
    console = Console()
    check_output(film, "--film")
    check_output(html, "--html")
    if film is not None:
        check_film(film, "--film")
    if not (math.isfinite(speed) and speed > 0):
        raise TestudoError(f"--speed: found {speed}, expected a number above 0, such as 2 for twice real time")
    if _is_recorded(source):
        for option, value in (("--seed", seed), ("--team-size", team_size)):
            if value is not None:
                raise TestudoError(f"{option} {value}: {source} is no policy; a recorded run has its own")
        show = _recorded(source, console)
    else:
        show = _simulated(source, _Wish(seed, team_size, shield, physics), console)
    if film is None and html is None:
        if has_display():
            console.print("the run plays until its window is closed")
            play(show, speed, camera)
            return
        whole = source.resolve()
        film = whole.parent / f"{whole.stem if whole.is_file() else whole.name}.mp4"
        console.print(Text(f"no screen here (neither DISPLAY nor WAYLAND_DISPLAY is set): writing {film}"))
    if film is not None:
        rate = _FRAMES_PER_S.get(film.suffix.lower(), _OTHER_FRAMES_PER_S)
        with console.status("drawing"):
            render_run(show, film, RenderOptions(*_SIZE_PX, camera, rate, speed))
        console.print(Text(f"wrote {film}"))
    if html is not None:
        from testudo_analysis.rendering.html_viewer import write_page  # noqa: PLC0415 -- brax is slow to import

        console.print(Text(f"wrote {write_page(show, html)}"))


def _is_recorded(source: Path) -> bool:
    """Return whether SOURCE is a folder with a recorded run, and no policy.

    Raises:
        TestudoError: it is not there.
    """
    if not source.exists():
        raise TestudoError(f"{source}: no such file or folder; give a recorded run, a policy.onnx or a training run")
    return source.is_dir() and not (source / _CONFIG).is_file()


def _simulated(policy: Path, wish: _Wish, console: Console) -> Animation:
    # slow to import, and a recorded run needs none of it
    from testudo_policies.evaluation.episode_playback import play_episode  # noqa: PLC0415
    from testudo_policies.evaluation.evaluation import HELD_OUT_SEED  # noqa: PLC0415
    from testudo_policies.evaluation.policy_under_test import load_policy_under_test  # noqa: PLC0415
    from testudo_sim.devices import devices  # noqa: PLC0415

    console.print(devices().text)
    subject = load_policy_under_test(policy)
    size = subject.team_size if wish.team_size is None else wish.team_size
    environment = subject.environment(size, shielded=wish.shield, physics=wish.physics)
    seed = HELD_OUT_SEED if wish.seed is None else wish.seed
    with console.status("simulating"):
        episode = play_episode(environment, subject.policy, subject.memory, seed)
    end = "done" if episode.success else "not done"
    console.print(f"{episode.show.title}: {end} after {episode.time_s:.1f} s", highlight=False)
    return episode.show


def _recorded(folder: Path, console: Console) -> Animation:
    inside = folder / "run"
    found = inside if not (folder / INFO_FILE).is_file() and (inside / INFO_FILE).is_file() else folder
    if not (found / INFO_FILE).is_file():
        raise TestudoError(
            f"{folder}: neither a recorded run ({INFO_FILE} is missing) nor a training run ({_CONFIG} is missing)"
        )
    run = read_run(found)
    for warning in run.warnings:
        console.print(f"[yellow]warning:[/] {warning}", highlight=False)
    try:
        contract = PolicyArtefact.load(run.policy_path).contract
        arena, title = contract.arena, f"{contract.scenario}, {len(run.robots)} robots"
    except TestudoError as error:  # what happened can be seen without it
        console.print(Text(f"walls are guessed, the run's policy cannot be read: {error}"))
        arena, title = None, f"{len(run.robots)} robots"
    return recorded_show(run, arena, f"{title}, recorded in {folder.resolve().name}")
