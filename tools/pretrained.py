# ruff: noqa: INP001 (a script, not a package)
"""Ships trained policies: a training run becomes a folder of `testudo_policies.pretrained`, and docs/pretrained.md.

A run is evaluated with layer 1 and with all layers, unless its evaluation.json is newer than its last checkpoint and
holds both; then it is exported with a fleet file and a model card, which replace those of its scenario.

Example: .venv/bin/python tools/pretrained.py runs/foraging runs/discovery   # ships two runs, and writes the page
         .venv/bin/python tools/pretrained.py          # writes cards and page again
         .venv/bin/python tools/pretrained.py --check  # exits with 1 where page and cards differ
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from testudo_deploy.contract.shipped_policies import CARD_FILE, FLEET_FILE, POLICY_FILE
from testudo_hardware.errors import TestudoError
from testudo_policies.commands.evaluate import Episodes, evaluate
from testudo_policies.commands.export import export, saved_evaluations
from testudo_policies.exporting import model_card
from testudo_policies.learning.checkpoints import load_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from testudo_policies.evaluation.evaluation import Evaluation
    from testudo_policies.exporting.model_card import ModelCard

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT / "policies" / "testudo_policies" / "pretrained"
PAGE = ROOT / "docs" / "pretrained.md"
LARGE_BYTES = 300_000
HEAD = """# Policies that ship

    testudo up --policy foraging
    testudo evaluate foraging --layers all
    testudo view foraging

Wherever a verb asks for a policy file, the name of a scenario below stands for the policy that ships with Testudo. A
file of that name in the current folder wins. `testudo up` without `--fleet` takes the fleet file beside the policy
file: the robots and the team size of the training, at a held-out start of the scenario. Each policy has a folder in
`policies/testudo_policies/pretrained` with `policy.onnx`, `fleet.yaml` and `card.json`, under the licence of Testudo.

To ship a training run in place of the policy of its scenario:

    make pretrained ARGS="runs/foraging --episodes 500"

It evaluates the run with layer 1 and with all layers, unless the run has a newer `evaluation.json` of both, exports it,
and writes fleet file, card and this page. `make pretrained` alone writes cards and page again. A test fails where a
scenario, a robot or the shield has changed since the training of a shipped policy. Another package ships policies with
an entry point of the group `testudo.policies`: a package with one folder for each policy.

Figures are of held-out episodes in the physics of the training, first with layer 1, then with all layers. "Untrained"
is the same network before training, "by hand" the hand-written velocities of the scenario.
"""
COLUMNS = {"trained": "trained", "hand-written": "by hand", "untrained": "untrained"}


def ship(run: Path, episodes: int) -> Path:
    """Evaluate and export a training run as the shipped policy of its scenario; return its folder."""
    config = load_config(run)
    model_card.train_command(config)  # refuses now what the card would refuse
    if not is_evaluated(run, config.team_size):
        options = {"chosen": Episodes(episodes), "physics": config.physics_choice, "json": run / "evaluation.json"}
        evaluate((run,), layers="all", **options)
    folder = SHIPPED / config.scenario
    with tempfile.TemporaryDirectory(dir=SHIPPED, prefix=".") as name:
        made = Path(name)
        export(run, out=made / POLICY_FILE, fleet=made / FLEET_FILE)
        card = model_card.card_of(made / POLICY_FILE, time.strftime("%Y-%m-%d"))
        model_card.check_current(made / POLICY_FILE)
        model_card.write_card(card, made)
        folder.mkdir(exist_ok=True)
        for file in (POLICY_FILE, FLEET_FILE, CARD_FILE):
            (made / file).replace(folder / file)
    note = f"; that is over {LARGE_BYTES:,}" if card.size_bytes > LARGE_BYTES else ""
    print(f"shipped {folder.relative_to(ROOT)}: {card.size_bytes:,} bytes{note}")  # noqa: T201
    return folder


def is_evaluated(run: Path, team_size: int) -> bool:
    """Return whether the run's evaluation.json is newer than its last checkpoint and holds all that a card needs."""
    checkpoints = [path.stat().st_mtime for path in (run / "checkpoints").glob("*")]
    file = run / "evaluation.json"
    if not file.is_file() or not checkpoints or file.stat().st_mtime < max(checkpoints):
        return False
    found = {(one.policy, one.layers) for one in saved_evaluations(run) if one.team_size == team_size}
    return found >= {(policy, layers) for policy in COLUMNS for layers in model_card.LAYERS}


def page(folders: list[Path]) -> str:
    """Return the text of the page."""
    cards = [model_card.read_card(folder) for folder in folders]
    head = ("policy", "robots", "trained with", "decisions", "", *COLUMNS.values(), "size")
    rows = [_overview(card) for card in cards]
    return "\n".join([HEAD, *_table(head, rows), "", *map(_section, cards)])


def _overview(card: ModelCard) -> tuple[str, ...]:
    has_success = card.found("trained", "1").has_success
    name, cell = ("success", _success) if has_success else ("return", _return)
    trained = card.algorithm if card.trainer == "testudo" else card.trainer
    return (
        f"[`{card.scenario}`](#{card.scenario})", f"{card.team_size} {card.robot}", f"`{trained}`",
        f"{card.decisions:,}", name, *_cells(card, cell), f"{card.size_bytes / 1000:.0f} kB",
    )  # fmt: skip


def _section(card: ModelCard) -> str:
    first = card.found("trained", "1")
    rows: dict[str, Callable[[Evaluation], str]] = {"return": _return}
    if first.has_success:
        rows = {"success": _success, "its 95 % interval": _interval, **rows}
        rows["median time to success [s]"] = lambda one: f"{one.time_to_success_s:.1f}" if one.success else "-"
    for name in first.metrics:
        rows[name] = lambda one, name=name: f"{one.metrics[name]:.2f}"
    rows |= {
        "episodes with a contact": lambda one: str(one.episodes_with_contact),
        "deadlocks": lambda one: str(one.deadlocks),
        "share of ticks the shield acts": lambda one: f"{one.intervention_rate:.2f}",
    }
    about = (
        f"{card.team_size} robots `{card.robot}`, command `{card.command}`, memory {card.memory}. Trainer "
        f"`{card.trainer}`, algorithm `{card.algorithm}`, seed {card.seed}, {card.decisions:,} decisions:"
    )
    file = (
        f"{card.size_bytes:,} bytes, made on {card.date}, sources {card.sources or 'without git'}, sha256 "
        f"`{card.sha256}`, contract `{card.contract_hash[:12]}`, licence {card.licence}."
    )
    lines = [
        f"## {card.scenario}", "", about, "", f"    {card.trained_by}", "",
        f"Held-out episodes ({first.episodes:,}), layer 1 / all layers, by:", "", f"    {card.evaluated_by}", "",
        *_table(("", *COLUMNS.values()), [(name, *_cells(card, cell)) for name, cell in rows.items()]), "", file,
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _cells(card: ModelCard, cell: Callable[[Evaluation], str]) -> tuple[str, ...]:
    return tuple(" / ".join(cell(card.found(policy, layers)) for layers in model_card.LAYERS) for policy in COLUMNS)


def _success(one: Evaluation) -> str:
    return f"{one.success:.3f}"


def _interval(one: Evaluation) -> str:
    return f"{one.success_low:.3f} to {one.success_high:.3f}"


def _return(one: Evaluation) -> str:
    return f"{one.mean_return:.2f}"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]


def main() -> None:
    """Ship runs, and write the page, or compare it."""
    parser = argparse.ArgumentParser(description="Ship trained policies, and write docs/pretrained.md.")
    parser.add_argument("runs", nargs="*", type=Path, help="training runs to ship, each as the policy of its scenario")
    parser.add_argument("--episodes", type=int, default=200, help="held-out episodes of each evaluation (200)")
    parser.add_argument("--check", action="store_true", help="only compare; exit with 1 if page and cards differ")
    given = parser.parse_args()
    try:
        for run in given.runs:
            ship(run, given.episodes)
        folders = sorted(file.parent for file in SHIPPED.glob(f"*/{POLICY_FILE}"))
        if not given.check:
            for folder in folders:
                date = model_card.read_card(folder).date
                model_card.write_card(model_card.card_of(folder / POLICY_FILE, date), folder)
            PAGE.write_text(page(folders), encoding="utf-8")
        elif page(folders) != PAGE.read_text(encoding="utf-8"):
            sys.exit(f"{PAGE.relative_to(ROOT)}: differs from the cards; run `make pretrained`")
    except TestudoError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
