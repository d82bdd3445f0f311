"""`testudo view`: shows a recorded run, or a simulated episode of a policy or of a scenario."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.text import Text

from testudo_analysis.rendering.animation import Animation
from testudo_analysis.rendering.interactive_viewer import has_display, play
from testudo_analysis.rendering.render_run import RenderOptions, check_film, recorded_animation, render_run
from testudo_analysis.rendering.scene_model import View
from testudo_deploy.contract.policy_archive import is_archived
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.shipped_policies import policy_file, shipped_policies
from testudo_deploy.launch.run_folder import INFO_FILE
from testudo_hardware.errors import TestudoError
from testudo_policies.commands.driven_by_hand import ByHandOptions
from testudo_policies.commands.json_output import check_output
from testudo_runs.run_reader import read_run
from testudo_sim.physics_choice import PhysicsChoice
from testudo_sim.scenarios.scenario import scenario_names

_CONFIG = "config.json"  # of a training run
_SIZE_PX = (960, 672)
_FRAMES_PER_S = {".mp4": 25.0}
_OTHER_FRAMES_PER_S = 12.5  # keeps .gif files small


@dataclass(frozen=True)
class EpisodeOptions:
    """Options of a simulated episode."""

    seed: int | None = None
    """Seed of the episode; default: first seed of `testudo evaluate`."""
    team_size: int | None = None
    """Robots in the episode; default: as in training, and 4 for a scenario."""
    shield: bool = True
    """`--no-shield` passes the episode's nominal commands without the shield."""
    failures: float = 0.0
    """Probability that a robot of the episode fails: it brakes, permanently or temporarily."""


_AS_EVALUATED = EpisodeOptions()


def view(
    source: Annotated[Path, tyro.conf.Positional],
    *,
    film: Path | None = None,
    html: Path | None = None,
    episode: Annotated[EpisodeOptions, tyro.conf.arg(name="")] = _AS_EVALUATED,
    by_hand: Annotated[ByHandOptions, tyro.conf.arg(name="")] = ByHandOptions(),  # noqa: B008
    physics: Annotated[PhysicsChoice, tyro.conf.arg(name="")] = PhysicsChoice(),  # noqa: B008
    speed: float = 1.0,
    camera: View = "oblique",
) -> None:
    """Show a run in a window, as a film, or as a page for a browser.

    Without --film and --html a window opens if there is a screen; else a film is written beside SOURCE.
    For a policy, one held-out episode is simulated. For the name of a scenario its rules are checked, and the episode
    is driven by its hand-written velocities: so a new scenario is seen before it is trained.

    Example:
        testudo view runs/mine/run
        testudo view coverage --team-size 3 --film coverage.mp4     (a scenario)
        testudo view policy.onnx --seed 7 --film episode.mp4
        testudo view foraging     (a policy that ships)
        testudo view runs/mine --team-size 6 --html episode.html

    Args:
        source: a recorded run, an exported policy.onnx, the name of one that ships, the folder of a training run, or a
            registered scenario.
        film: file to write: .mp4, .gif, .webp, or .png for the last moment with the paths.
        html: file for a self-contained page with the scene and a timeline, which needs no network; `testudo report`
            writes the whole page of a recorded run.
        episode: the simulated episode.
        by_hand: a scenario in place of a policy.
        physics: physics tier of the episode.
        speed: playback speed of window and film, as a multiple of real time.
        camera: first camera position.
    """
    console = Console()
    check_output(film, "--film")
    check_output(html, "--html")
    if film is not None:
        check_film(film, "--film")
    if not (math.isfinite(speed) and speed > 0):
        raise TestudoError(f"--speed: found {speed}, expected a number above 0, such as 2 for twice real time")
    is_scenario = by_hand.drives(source)
    chosen = policy_file(source) if str(source) in shipped_policies() and not is_scenario else source
    if not is_scenario and _is_recorded(chosen):
        for option, value in (("--seed", episode.seed), ("--team-size", episode.team_size)):
            if value is not None:
                raise TestudoError(f"{option} {value}: {source} is a recorded run; remove the option or give a policy")
        animation = _recorded(chosen, console)
    else:
        animation = _simulated(chosen, episode, physics, console, by_hand if is_scenario else None)
    if film is None and html is None and has_display():
        console.print("playing until the window is closed")
        play(animation, speed, camera)
        return
    _write(animation, source, film, html, (camera, speed), console)


def _write(
    animation: Animation, source: Path, film: Path | None, html: Path | None, look: tuple[View, float], console: Console
) -> None:
    """Write the film and the page that are asked for; without either, a film beside SOURCE."""
    camera, speed = look
    if film is None and html is None:
        path = source.resolve()
        film = path.parent / f"{path.stem if path.is_file() else path.name}.mp4"
        console.print(Text(f"no screen here (neither DISPLAY nor WAYLAND_DISPLAY is set): writing {film}"))
    if film is not None:
        rate = _FRAMES_PER_S.get(film.suffix.lower(), _OTHER_FRAMES_PER_S)
        with console.status("drawing"):
            render_run(animation, film, RenderOptions(*_SIZE_PX, camera, rate, speed))
        console.print(Text(f"wrote {film}"))
    if html is not None:
        # slow to import
        from testudo_analysis.run_page.build_page import episode_page  # noqa: PLC0415
        from testudo_analysis.run_page.document import write_page  # noqa: PLC0415

        console.print(Text(f"wrote {write_page(episode_page(animation), html)}"))


def _is_recorded(source: Path) -> bool:
    """Return whether SOURCE is a folder with a recorded run and not a training run.

    Raises:
        TestudoError: it does not exist.
    """
    if not source.exists() and not is_archived(source):
        raise TestudoError(
            f"{source}: no such file, folder or scenario; give a recorded run, a policy.onnx, a training run or a "
            f"scenario: {', '.join(scenario_names())}"
        )
    return source.is_dir() and not (source / _CONFIG).is_file()


def _simulated(
    source: Path, options: EpisodeOptions, physics: PhysicsChoice, console: Console, scenario: ByHandOptions | None
) -> Animation:
    # imported here because they are slow to import and not needed for a recorded run
    from testudo_policies.evaluation.episode_playback import play_episode  # noqa: PLC0415
    from testudo_policies.evaluation.evaluation import HELD_OUT_SEED  # noqa: PLC0415
    from testudo_policies.evaluation.policy_under_test import by_hand, load_policy_under_test  # noqa: PLC0415
    from testudo_policies.train_config import TrainConfig  # noqa: PLC0415
    from testudo_sim.devices import devices  # noqa: PLC0415

    console.print(devices().text)
    if scenario is not None:
        size = options.team_size or TrainConfig.team_size
        with console.status("checking the rules of scenarios"):
            tested = by_hand(str(source), scenario.robot or TrainConfig.robot, size)
        console.print(f"{source} keeps the rules of scenarios; its hand-written velocities drive", highlight=False)
    else:
        tested = load_policy_under_test(source)
        size = tested.team_size if options.team_size is None else options.team_size
    environment = tested.environment(size, shielded=options.shield, physics=physics, failures=options.failures)
    seed = HELD_OUT_SEED if options.seed is None else options.seed
    with console.status("simulating"):
        episode = play_episode(environment, tested.policy, tested.memory, seed)
    end = "" if episode.success is None else "success after " if episode.success else "no success after "
    figures = "".join(f", {name} {value:g}" for name, value in episode.figures.items())
    console.print(f"{episode.animation.title}: {end}{episode.time_s:.1f} s{figures}", highlight=False)
    return episode.animation


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
        arena, title, signals = contract.arena, f"{contract.scenario}, {len(run.robots)} robots", contract.signals
    except TestudoError as error:  # the run can be shown without its policy
        console.print(Text(f"the run's policy cannot be read, so the arena is estimated from the motion: {error}"))
        arena, title, signals = None, f"{len(run.robots)} robots", ()
    return recorded_animation(run, arena, f"{title}, recorded in {folder.resolve().name}", signals)
