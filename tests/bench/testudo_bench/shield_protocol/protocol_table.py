"""The protocol's table: one row for each cell, and the same as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from typing import Any

import numpy as np

from testudo_bench.shield_protocol.cell_runner import CellOutcome
from testudo_bench.shield_protocol.protocol_cell import Claim, ProtocolCell, Rule
from testudo_hardware.spec import load_robot

COLUMNS = (
    "cell",
    "conditions",
    "layers",
    "n",
    "contacts",
    "moving",
    "wash",
    "3/n",
    "least [m]",
    "arrived",
    "stuck",
    "changed",
    "by [m/s]",
    "alarms",
    "as it must",
)
"""Episodes n; those with contact, with one at own speed, and with a drone in the wash of another; bound of the rate
where there is none; least distance of two centres, heights squeezed; shares of episodes that arrived, or ended in a
deadlock; share of commands that were changed, and by how much; robots that found their brakes to be weak, of those that
braked from speed, summed over the episodes."""
_OURS = (Rule.OURS.value, Rule.ONE_TICK.value)


def summary(tier: str, cell: ProtocolCell, outcome: CellOutcome) -> dict[str, Any]:
    """Return the figures of a cell, JSON-ready."""
    episodes = len(outcome.contacts)
    contacts, moving = int(np.sum(outcome.contacts > 0)), int(np.sum(outcome.fast_contacts > 0))
    least = float(np.min(outcome.separation_m))
    washed = int(np.sum(outcome.separation_m < wash_m(cell)))
    arrived = np.isfinite(outcome.arrived_s)
    return {
        "tier": tier,
        "cell": cell.name,
        "place": cell.place,
        "what": cell.what,
        "robot": cell.robot,
        "team_size": cell.size,
        "formation": cell.formation.value,
        "layers": cell.layers,
        "claim": cell.claim.value,
        "twin": cell.twin,
        "resolution": cell.resolves,
        "horizon_s": cell.horizon_s,
        "conditions": _plain(asdict(cell.conditions)),
        "episodes": episodes,
        "episodes_with_contact": contacts,
        "episodes_with_contact_at_own_speed": moving,
        "contact_rate_high": 3 / episodes if contacts == 0 else None,
        "episodes_in_wash": washed,
        "least_separation_m": least,
        "arrived_share": float(np.mean(arrived)),
        "median_arrival_s": float(np.median(outcome.arrived_s[arrived])) if arrived.any() else None,
        "deadlocked_share": float(np.mean(outcome.deadlocked)),
        "intervention_share": float(np.mean(outcome.changed_share)),
        "intervention_m_s": float(np.mean(outcome.change_m_s)),
        "robots_that_braked_from_speed": int(np.sum(outcome.braked)),
        "alarms": int(np.sum(outcome.alarms)),
        "holds": holds(cell, contacts, moving, washed),
    }


def holds(cell: ProtocolCell, contacts: int, moving: int, washed: int = 0) -> bool | None:
    """Return whether a cell shows what it claims; None where nothing is claimed.

    Drones that stay out of each other's wash do not touch; what wash is there must be seen if heights count in full.
    """
    fails = contacts > 0 or (cell.conditions.level and washed > 0)
    return {Claim.COVERED: contacts == 0 and washed == 0, Claim.HOSTILE: moving == 0, Claim.CONTROL: fails}.get(
        cell.claim
    )


def wash_m(cell: ProtocolCell) -> float:
    """Return the distance of drones, heights squeezed, below which one is in the wash of the other; 0 on the ground."""
    spec = load_robot(cell.robot)
    return 2 * spec.keep_radius_m if spec.dimension == 3 else 0.0


def row(figures: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cell's line."""
    high = figures["contact_rate_high"]
    verdict = {True: "yes", False: "NO", None: ""}[figures["holds"]]
    rule = figures["conditions"]["rule"]
    layers = figures["layers"] if rule in _OURS else rule
    place = figures["place"] if figures["tier"] == "kinematic" else f"{figures['tier']}: {figures['place']}"
    return (
        place,
        figures["what"],
        layers,
        f"{figures['episodes']}",
        f"{figures['episodes_with_contact']}",
        f"{figures['episodes_with_contact_at_own_speed']}",
        f"{figures['episodes_in_wash']}",
        "" if high is None else f"{high:.1e}",
        f"{figures['least_separation_m']:.3f}",
        f"{figures['arrived_share']:.3f}",
        f"{figures['deadlocked_share']:.3f}",
        f"{figures['intervention_share']:.2f}",
        f"{figures['intervention_m_s']:.2f}",
        f"{figures['alarms']}/{figures['robots_that_braked_from_speed']}",
        verdict,
    )


def totals(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what all cells say together."""
    covered = [cell for cell in cells if cell["claim"] == Claim.COVERED.value]
    batch = [cell for cell in covered if cell["tier"] == "kinematic"]
    controls = [cell for cell in cells if cell["claim"] == Claim.CONTROL.value]
    return {
        "cells": len(cells),
        "episodes": sum(cell["episodes"] for cell in cells),
        "covered_cells": len(covered),
        "covered_episodes": sum(cell["episodes"] for cell in covered),
        "covered_contacts": sum(cell["episodes_with_contact"] for cell in covered),
        "fewest_episodes_of_a_covered_kinematic_cell": min((cell["episodes"] for cell in batch), default=0),
        "controls": len(controls),
        "controls_seen_to_fail": sum(cell["holds"] for cell in controls),
        "hostile_contacts_at_own_speed": sum(
            cell["episodes_with_contact_at_own_speed"] for cell in cells if cell["claim"] == Claim.HOSTILE.value
        ),
        "all_hold": all(cell["holds"] is not False for cell in cells),
    }


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return values that JSON knows: enumerations by name, no infinity."""

    def simple(value: Any) -> Any:
        if isinstance(value, Enum):
            return value.value
        return None if value == float("inf") else value

    return {key: simple(value) for key, value in values.items()}
