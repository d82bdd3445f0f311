"""`testudo dataset`: an offline dataset from recorded runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from testudo_hardware.errors import TestudoError
from testudo_policies.commands.json_output import check_output, write_output
from testudo_policies.dataset.composition import GOOD, MEDIUM, POOR
from testudo_policies.dataset.coverage import COARSE, FINE
from testudo_policies.dataset.dataset_file import (
    Dataset,
    DatasetSource,
    find_runs,
    read_source,
    save_arrays,
    save_card,
    sha256_of,
)
from testudo_policies.dataset.lerobot_folder import VERSION, save_lerobot
from testudo_policies.dataset.vault_folder import ENDING, save_vault
from testudo_policies.learning.progress import counted

_BAR = 24
_COVERAGE = {"SACo": "unique pairs of state and joint action", "OACo": "of an agent's observation and action"}


def dataset(
    paths: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS... OUT")],
    *,
    good_return: float | None = None,
    skip_bad: bool = False,
    json: Path | None = None,
) -> int:
    """Write an offline dataset from recorded runs, with its composition profile and a card.

    Contents: observations, actions, rewards, terminals and truncations of each robot, with the names and axes of
    Off-the-Grid MARL; rewards are recomputed with the scenario's code. The card (OUT with .json) holds layout, profile
    and hashes. An OUT that ends in .vlt becomes a vault of flashbax, as Off-the-Grid MARL reads it; one without an
    ending a folder of Parquet tables in the format of LeRobot 3.0.

    Example:
        testudo dataset runs/mine dataset.npz
        testudo dataset runs/ dataset.npz --skip-bad --json profile.json
        testudo dataset runs/ team.vlt
        testudo dataset runs/ lerobot_team

    Args:
        paths: run folders, or folders that contain run folders; the last path is the file (.npz) or the folder to
            write (.vlt, or no ending).
        good_return: episode return that counts as 1 in the profile; default: return of the best episode.
        skip_bad: skip unusable runs, with a message for each.
        json: file for the values of the card, for scripts.
    """
    console = Console()
    check_output(json)
    if len(paths) < 2:
        raise TestudoError(
            "testudo dataset: expected run folders and a file to write, as in `testudo dataset runs/mine dataset.npz`"
        )
    *folders, out = paths
    if out.suffix not in (".npz", ENDING, ""):
        raise TestudoError(
            f"{out}: expected a file name that ends in .npz, or a folder ({ENDING}, or no ending), as the last argument"
        )
    if out.suffix == ".npz" or not out.exists():
        check_output(out, "OUT")
    result = Dataset.of(_read(find_runs(list(folders)), skip_bad=skip_bad, console=console), good_return)
    card, said = _save(out, result)
    for table in profile_tables(result, card["coverage"]):
        console.print(table)
    console.print(Text(said))
    write_output(json, card, console)
    return 0


def _save(out: Path, result: Dataset) -> tuple[dict[str, Any], str]:
    """Write a dataset by the ending of its name; return its card, and what was written in words."""
    arrays = result.arrays()
    if not out.suffix:
        card = result.card(arrays, "")
        frames = save_lerobot(out, result, card)
        return card, f"wrote {out}: {frames:,} frames in the format of LeRobot {VERSION}, each robot for itself"
    if out.suffix == ENDING:
        card = result.card(arrays, "")
        count = save_vault(out, arrays, card)
        return card, f"wrote {out}: {count:,} transitions as a vault of flashbax, {out.name}/{card['profile']['name']}"
    save_arrays(out, arrays)
    card = result.card(arrays, sha256_of(out))
    save_card(out.with_suffix(".json"), card)
    return card, (
        f"wrote {out}: {card['transitions']:,} transitions of {card['robots']} robots, "
        f"{card['invalid']} robot-steps marked invalid; card {out.with_suffix('.json')}"
    )


def profile_tables(contents: Dataset, covered: Mapping[str, Any]) -> tuple[Table, Table]:
    """Return the composition with the coverage, and the histogram of returns."""
    values = contents.profile.to_dict()
    table = Table("composition", contents.profile.name, title="Composition by episode return")
    for name in (GOOD, MEDIUM, POOR):
        table.add_row(f"{name} episodes", str(contents.profile.count(name)))
    for name, value in values["return"].items():
        table.add_row(f"return, {name}", "" if value is None else f"{value:.2f}")
    for name, meaning in _COVERAGE.items():
        for decimals, key in ((FINE, name), (COARSE, f"{name}_coarse")):
            share = covered[key]
            table.add_row(f"{name}: {meaning}, {decimals} decimals", "" if share is None else f"{share:.4f}")
    counts, edges = values["histogram"]["counts"], values["histogram"]["edges"]
    bars = Table("return", "episodes", "", title="Histogram")
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        bars.add_row(f"{low:.2f} to {high:.2f}", str(count), "█" * round(_BAR * count / max(counts)))
    return table, bars


def _read(folders: list[Path], *, skip_bad: bool, console: Console) -> list[DatasetSource]:
    sources: list[DatasetSource] = []
    with counted(console, "runs", len(folders)) as done:
        for number, folder in enumerate(folders, 1):
            try:
                sources.append(read_source(folder))
            except TestudoError as error:
                if not skip_bad:
                    raise
                console.print(Text(f"skipped: {error}"))
            done(number)
    if not sources:
        raise TestudoError("all runs were skipped, so there is no dataset; expected at least one usable run")
    return sources
