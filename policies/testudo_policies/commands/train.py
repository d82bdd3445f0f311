"""`testudo train`: train a coordination policy with the shield at every control tick."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import jax
import tyro
from rich.console import Console

from testudo_policies.brax_trainers import prepared, train_run_with_brax
from testudo_policies.build import build
from testudo_policies.checkpoints import load_config
from testudo_policies.config import TrainConfig
from testudo_policies.progress import TrainingDisplay
from testudo_policies.training import train_run

_STOPPED = 130  # as for every other verb that Ctrl-C ends


def train(scenario: Annotated[str, tyro.conf.Positional] = "navigation", *, run: Path | None = None,
          config: Annotated[TrainConfig, tyro.conf.arg(name="")] = TrainConfig()) -> int:  # noqa: B008
    """Train a coordination policy for a team, with the shield at every control tick.

    Ctrl-C saves a checkpoint; the same --run goes on from there.

    Example:
        testudo train navigation --robot gritsbot_x --team-size 4
        testudo train navigation --run runs/mine --algorithm ippo --memory 64
        testudo train --run runs/mine      (goes on where it stopped)
        testudo train navigation --trainer brax-ppo --run runs/brax

    Args:
        scenario: registered scenario.
        run: run folder; one that exists is resumed with its own configuration.
        config: the configuration of a new run.
    """
    console = Console()
    if run is not None and (run / "config.json").exists():
        chosen = load_config(run)
        console.print(f"going on in {run} with its own configuration")
    else:
        chosen, note = prepared(replace(config, scenario=scenario))
        if note:
            console.print(note)
    folder = run or Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{chosen.scenario}"
    console.print(f"device {jax.devices()[0].device_kind} ({jax.default_backend()}), run folder {folder}")
    workshop = build(chosen)
    with TrainingDisplay(console) as display:
        learn = train_run if chosen.trainer == "testudo" else train_run_with_brax
        result = learn(workshop, folder, display.show)
    goes_on = "the same command with --run goes on" if chosen.trainer == "testudo" else "it cannot go on"
    end = "finished" if result.finished else f"stopped; {goes_on}"
    console.print(f"{end}: {result.updates} of {chosen.updates} updates, {result.seconds:.1f} s "
                  f"and {result.compile_s:.1f} s of compilation")
    console.print(f"next: testudo evaluate {folder}   testudo export {folder}")
    return 0 if result.finished else _STOPPED
