"""`testudo bench orders`: goals changed at random for minutes while robots leave and come back."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from testudo_bench.orders.order_run import OrderOutcome, OrderRun
from testudo_deploy.commands.report import BenchResult
from testudo_deploy.contract.shipped_policies import fleet_beside, policy_file
from testudo_deploy.fleet.fleet import Fleet, load_fleet
from testudo_hardware.errors import TestudoError

_COLUMNS = (
    "run",
    "minutes",
    "contacts",
    "least distance",
    "orders",
    "refused",
    "reached",
    "replaced on the way",
    "left open",
    "time to the goal, median",
    "joined again",
    "time to drive again, longest",
)
_QUICK_MINUTES = 1.0


def bench_orders(
    *,
    policy: Path | None = None,
    repeats: int = 3,
    minutes: float = 10.0,
    quick: bool = False,
    saved: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Change goals at random every 2 to 10 s while robots leave and come back: contacts, and what became of each goal.

    The fleet of a policy's fleet file, in one process: deployed loops, supervisors, bring-up, task and orders; bodies
    at ends of the intervals of the robot file, late and lost messages. One robot is started late; then one at a time is
    silent, or ends and starts again, with or without being declared lost. In the end each must stand at its goal.

    Args:
        policy: a policy file with a fleet file beside it, or the name of one that ships; default: navigation.
        repeats: number of runs.
        minutes: of orders in each run.
        quick: one run of one minute.
        saved: JSON file with the result of each run, so that the same command resumes.
        say: called with progress messages.

    Raises:
        TestudoError: no fleet file beside the policy, or results of other settings.
    """
    fleet = order_fleet(policy or Path("navigation"))
    count, long = (1, _QUICK_MINUTES) if quick else (repeats, minutes)
    settings: dict[str, Any] = {"policy_sha256": fleet.policy_sha256, "robots": len(fleet.names), "minutes": long}
    found = _read(saved, settings)
    labels = [str(number + 1) for number in range(count)]
    for seed, label in enumerate(labels):
        if label in found:
            continue
        say(f"run {label} of {count}")
        found[label] = OrderRun(fleet, seed, long).drive().to_dict()
        if saved is not None:
            saved.write_text(json.dumps({"settings": settings, "runs": found}) + "\n", encoding="utf-8")
    runs = {label: found[label] for label in labels}
    values = {"settings": settings, "runs": runs}
    title = f"{len(fleet.names)} robots that take orders, join and leave"
    return BenchResult(title, _COLUMNS, [_row(label, one) for label, one in runs.items()], values)


def order_fleet(policy: Path) -> Fleet:
    """Return the fleet of the file beside a policy, so that it takes orders.

    Raises:
        TestudoError: there is none.
    """
    chosen = policy_file(policy)
    file = fleet_beside(chosen)
    if not file.is_file():
        raise TestudoError(f"--policy {policy}: found no {file}, expected a fleet file there")
    return replace(load_fleet(file), policy=chosen.absolute(), orders=True, task={})


def _read(saved: Path | None, settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the runs of a file of partial results."""
    if saved is None or not saved.is_file():
        return {}
    try:
        values = json.loads(saved.read_text(encoding="utf-8"))
        before, runs = values["settings"], dict(values["runs"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TestudoError(f"--json {saved}: is no output of `testudo bench orders`: {error!r}") from error
    if before != settings:
        raise TestudoError(f"--json {saved}: found results of {before}, expected those of {settings}")
    return runs


def _row(label: str, values: dict[str, Any]) -> tuple[str, ...]:
    one = OrderOutcome(**{key: value for key, value in values.items() if key != "passed"})
    left = sum(one.left.values())
    return (
        label,
        f"{one.minutes:g}",
        str(one.contacts),
        f"{one.least_m:.3f} m",
        str(one.orders),
        str(one.refused),
        str(one.reached),
        str(one.replaced),
        "; ".join(one.open + [f"{name}: did not join" for name in one.not_joined]) or "0",
        f"{np.median(one.reach_s):.1f} s" if one.reach_s else "",
        str(left),
        f"{max(one.joined_s):.1f} s" if one.joined_s else "",
    )
