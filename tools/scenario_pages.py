# ruff: noqa: INP001 (a script, not a package)
"""Writes docs/scenario_declarations.md: signals, reward terms, success, metrics and sizes of each registered scenario.

Example: .venv/bin/python tools/scenario_pages.py          # writes the page
         .venv/bin/python tools/scenario_pages.py --check  # exits with 1 where page and scenarios differ
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from testudo_deploy.contract.contract import NEIGHBOURS, Signal
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.spec import RobotSpec, load_robot
from testudo_sim.scenarios.declarations import declarations
from testudo_sim.scenarios.scenario import make_scenario

PAGE = Path(__file__).resolve().parents[1] / "docs" / "scenario_declarations.md"
HEAD = """# What scenarios declare

Use this page to look up what a policy of a scenario reads and what its evaluation counts. `make scenarios` writes it
from the scenarios themselves; what they mean is in [scenarios](scenarios.md). Every policy also has the common
signals of [navigation](scenarios.md#navigation). A signal is the robot's own, one of each entity of a group, or one
of each peer; `oldest` is the age at which a robot brakes for it. Sizes are those for the robot that is named; for a
scenario with maps, without obstacles.

"""
TEAM = 4
ROBOTS = {"escort": "crazyflie_2x"}
GROUND = "gritsbot_x"


def scenario_names() -> list[str]:
    """Return the registered scenarios of this project."""
    points = entry_points(group="testudo.scenarios")
    return sorted(point.name for point in points if point.value.startswith("testudo_sim."))


def owner(signal: Signal) -> str:
    """Return whose a signal is, as its shape says."""
    if NEIGHBOURS in signal.shape:
        return "each peer"
    return "own" if len(signal.shape) == 1 else f"each of {signal.shape[0]} entities"


def names(found: Any) -> str:
    """Return names as code, or that there are none."""
    return ", ".join(f"`{name}`" for name in found) or "none"


def section(name: str, spec: RobotSpec) -> str:
    """Return what one scenario declares, for a robot."""
    scenario = make_scenario(name, spec, projection_parameters(spec))
    declared = declarations(scenario, TEAM)
    size = " x ".join(
        f"{high - low:.1f} m" for low, high in zip(scenario.arena.low_world, scenario.arena.high_world, strict=True)
    )
    decision_s = scenario.decision_ticks * spec.control_period_s
    seen = scenario.observation
    rows = [
        f"## {name}",
        "",
        f"| `{spec.name}` | |",
        "|---|---|",
        f"| arena | {size} |",
        f"| decision, time limit | {decision_s:.2f} s, {scenario.horizon_s:.0f} s |",
        f"| success | {'ends the episode' if declared['has_success'] else 'none'} |",
        f"| reward terms | {names(declared['reward_terms'])} |",
        f"| metrics | {names(declared['metrics'])} |",
        f"| frame of features and actions | `{seen.frame}` |",
        f"| an untrained policy drives to | {names([seen.pull] if seen.pull else [])} |",
        *([f"| share of full speed | `{seen.speed}` |"] if seen.speed else []),
        *([f"| bodies that robots push | {names(declared['boxes'])} |"] if scenario.boxes else []),
        "",
        "| signal | shape | unit | frame | oldest | whose |",
        "|---|---|---|---|---|---|",
        *map(_row, scenario.task_signals),
    ]
    return "\n".join(rows) + "\n"


def _row(signal: Signal) -> str:
    shape = " x ".join(str(length) for length in signal.shape)
    age = "" if signal.max_age_s is None else f"{signal.max_age_s:g} s"
    return f"| `{signal.name}` | {shape} | {signal.unit} | {signal.frame} | {age} | {owner(signal)} |"


def page() -> str:
    """Return the page."""
    return HEAD + "\n".join(section(name, load_robot(ROBOTS.get(name, GROUND))) for name in scenario_names())


def main() -> None:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description="Write docs/scenario_declarations.md.")
    parser.add_argument("--check", action="store_true", help="only compare; exit with 1 if page and scenarios differ")
    check = parser.parse_args().check
    wanted = page()
    if not check:
        PAGE.write_text(wanted, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != wanted:
        sys.exit(f"{PAGE.name}: what the scenarios declare differs from the page; run `make scenarios`")


if __name__ == "__main__":
    main()
