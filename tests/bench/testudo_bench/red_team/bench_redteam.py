"""`testudo bench redteam`: every attack against a keyed fleet, with its control, one table row and JSON entry each."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from testudo_bench.red_team.episode import EpisodeOutcome, run_episode
from testudo_bench.red_team.rows import Effect, Row, rows
from testudo_bench.red_team.saved_outcomes import Arm, Outcomes, read_outcomes, source_hash
from testudo_bench.red_team.signed_network import Defences
from testudo_deploy.commands.report import BenchResult
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot

ROBOT = "robomaster_s1"
COLUMNS = ("row", "tier", "attack", "defence", "n", "moving", "3/n", "least [m]", "way [m]", "control", "as it must")
"""Episodes n; those with a contact at own speed; bound of their rate if there is none; least distance of two centres;
what a robot drove, on average; what the control showed."""
_EPISODES, _ON_MUJOCO, _CONTROLS = 1000, 50, 100
_QUICK, _QUICK_ON_MUJOCO, _QUICK_CONTROLS = 8, 2, 8
_ROUND = 10  # episodes of one arm in one task
_WORKERS = len(os.sched_getaffinity(0))  # processes: one on each core that this one may use
_SAVES_S = 60.0  # time between two writes of the file
_SLOWER = 0.75  # robots stand for long if they drive less than this share of their way with the defence


def bench_redteam(
    *,
    robot: str = ROBOT,
    repeats: int = _EPISODES,
    minutes: float = 600.0,
    quick: bool = False,
    saved: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Attack a keyed fleet in lock-step, kinematic and in MuJoCo, with and without the defence.

    Rows advance side by side, so that an end by Ctrl-C or after the time budget leaves equally many episodes in each.
    The same command then goes on, with further episodes. All cores that the process may use (`taskset`) take part.

    Args:
        robot: a registered robot on the ground.
        repeats: episodes of a row in the kinematic tier.
        minutes: time budget.
        quick: few episodes.
        saved: JSON file with the outcomes of all episodes, also of earlier runs; it counts the episodes under each
            state of the sources.
        say: called with progress messages.

    Raises:
        TestudoError: the robot flies, or the file is of another benchmark or robot.
    """
    spec = load_robot(robot)
    if spec.dimension != 2:
        raise TestudoError(f"testudo bench redteam: --robot: {robot}: found a drone, expected a robot on the ground")
    began = time.perf_counter()
    found = read_outcomes(saved, robot)
    interrupted = _measure(found, list(_tasks(found, repeats, quick=quick)), began + 60 * minutes, saved, say)
    figures = [row_figures(row, found.arms, mujoco=mujoco) for mujoco in (False, True) for row in rows()]
    figures = [one for one in figures if one is not None]
    values = {
        **found.values(),
        "quick": quick,
        "interrupted": interrupted,
        "rows": figures,
        "episodes": found.episodes(),
        "contacts_at_own_speed": sum(one["at_own_speed"] for one in figures),
        "all_hold": all(one["holds"] is not False for one in figures),
        "seconds": time.perf_counter() - began,
    }
    title = (
        f"{robot}: {values['contacts_at_own_speed']} contacts at own speed in "
        f"{sum(one['episodes'] for one in figures)} episodes with the defences; "
        f"{values['episodes']} episodes in all, {values['seconds']:.0f} s"
    )
    return BenchResult(title, COLUMNS, [table_row(one) for one in figures], values)


def _measure(
    found: Outcomes,
    tasks: list[tuple[Arm, int, int]],
    until_s: float,
    saved: Path | None,
    say: Callable[[str], None],
) -> bool:
    """Run tasks in processes and fill ``found``; return whether the time ended, or Ctrl-C came, before the tasks."""
    source, wanted = source_hash(), found.episodes() + sum(count for *_, count in tasks)
    saved_s = time.perf_counter()
    with ProcessPoolExecutor(_WORKERS, multiprocessing.get_context("spawn")) as pool:
        running: list[tuple[Arm, Any]] = []
        try:
            for arm, first, count in tasks:
                if time.perf_counter() > until_s:
                    break
                running.append((arm, pool.submit(_run, found.robot, arm, first, count)))
                while len(running) > 2 * _WORKERS:
                    done, future = running.pop(0)
                    found.add(done, future.result(), source)
                    say(f"{found.episodes()} of {wanted} episodes; last {done.name}")
                if time.perf_counter() > saved_s + _SAVES_S:
                    found.write(saved)
                    saved_s = time.perf_counter()
            for done, future in running:
                found.add(done, future.result(), source)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            return True
        finally:
            found.write(saved)
    return found.episodes() < wanted


def _tasks(found: Outcomes, repeats: int, *, quick: bool) -> Iterator[tuple[Arm, int, int]]:
    """Yield arms with the first and the number of the episodes that are missing, all arms side by side."""
    wanted = {}
    for mujoco in (False, True):
        whole = (_QUICK_ON_MUJOCO if quick else _ON_MUJOCO) if mujoco else _QUICK if quick else repeats
        few = min(whole, _QUICK_CONTROLS if quick else _CONTROLS)
        for row in rows():
            wanted[Arm(row.name, mujoco, control=False)] = whole
            if row.control is not None:
                wanted[Arm(row.name, mujoco, control=True)] = few
    for first in range(0, max(wanted.values()), _ROUND):
        for arm, count in wanted.items():
            begin, end = max(first, len(found.arms.get(arm, ()))), min(first + _ROUND, count)
            if begin < end:
                yield arm, begin, end - begin


def _run(robot: str, arm: Arm, first: int, count: int) -> list[EpisodeOutcome]:
    """Run episodes of an arm, in a process of its own."""
    row = next(row for row in rows() if row.name == arm.name)
    defences = row.control if arm.control and row.control is not None else Defences()
    run = partial(run_episode, load_robot(robot), row, defences, mujoco=arm.mujoco)
    return [run(number) for number in range(first, first + count)]


def row_figures(row: Row, found: dict[Arm, list[EpisodeOutcome]], *, mujoco: bool) -> dict[str, Any] | None:
    """Return the results of a row, JSON-ready; None if no episode of it ran."""
    with_it = found.get(Arm(row.name, mujoco, control=False), [])
    without = found.get(Arm(row.name, mujoco, control=True), [])
    if not with_it:
        return None
    numbers = len(with_it)
    moving, way_m = _moving(with_it), _way_m(with_it)
    quiet = next(one for one in rows() if one.attack is None and one.gives_way == row.gives_way)
    quiet_m = _way_m(found.get(Arm(quiet.name, mujoco, control=False), []))
    failed = _control_failed(row, with_it, without)
    return {
        "row": row.name,
        "tier": "mujoco" if mujoco else "kinematic",
        "attack": row.what,
        "defence": row.defence,
        "size": row.size,
        "episodes": numbers,
        "with_contact": sum(one.contacts > 0 for one in with_it),
        "at_own_speed": moving,
        "rate_high": 3 / numbers if moving == 0 else None,
        "least_m": min(one.least_m for one in with_it),
        "way_m": way_m,
        "way_share": way_m / quiet_m if quiet_m else None,
        "control": None if row.control is None else asdict(row.control),
        "control_effect": row.effect.value,
        "control_episodes": len(without),
        "control_at_own_speed": _moving(without),
        "control_way_m": _way_m(without) if without else None,
        "control_failed": failed,
        "holds": moving == 0 and failed is not False,
    }


def _moving(outcomes: list[EpisodeOutcome]) -> int:
    return sum(one.contacts_at_own_speed > 0 for one in outcomes)


def _way_m(outcomes: list[EpisodeOutcome]) -> float:
    return float(np.mean([one.way_m for one in outcomes])) if outcomes else 0.0


def _control_failed(row: Row, with_it: list[EpisodeOutcome], without: list[EpisodeOutcome]) -> bool | None:
    """Return whether the control shows what the defence prevents; None without a control."""
    if row.control is None or not without:
        return None
    if row.effect is Effect.CONTACT:
        return _moving(without) > 0
    return _way_m(without) < _SLOWER * _way_m(with_it[: len(without)])


def table_row(figures: dict[str, Any]) -> tuple[str, ...]:
    """Return the table row of a row."""
    high, count = figures["rate_high"], figures["control_episodes"]
    control = ""
    if count and figures["control_effect"] == Effect.CONTACT:
        control = f"moving {figures['control_at_own_speed']} of {count}"
    elif count:
        control = f"way {figures['control_way_m']:.2f} m"
    return (
        figures["row"],
        figures["tier"],
        figures["attack"],
        figures["defence"],
        f"{figures['episodes']}",
        f"{figures['at_own_speed']}",
        "" if high is None else f"{high:.1e}",
        f"{figures['least_m']:.3f}",
        f"{figures['way_m']:.2f}",
        control,
        "yes" if figures["holds"] else "NO",
    )
