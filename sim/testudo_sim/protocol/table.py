"""The protocol's table: one row for each cell, and the same as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from typing import Any

import numpy as np

from testudo_sim.protocol.cells import Cell, Claim
from testudo_sim.protocol.runner import Outcome

COLUMNS = ("cell", "layers", "episodes", "contacts", "moving", "rate below", "least [m]", "arrived", "dead-locked",
           "changed", "by [m/s]", "holds")


def summary(tier: str, cell: Cell, outcome: Outcome) -> dict[str, Any]:
    """Return the figures of a cell, JSON-ready."""
    episodes = len(outcome.contacts)
    contacts, moving = int(np.sum(outcome.contacts > 0)), int(np.sum(outcome.fast_contacts > 0))
    least = float(np.min(outcome.separation_m))
    arrived = np.isfinite(outcome.arrived_s)
    return {
        "tier": tier, "cell": cell.name, "robot": cell.robot, "team_size": cell.size, "formation": cell.formation.value,
        "layers": cell.layers, "claim": cell.claim.value, "twin": cell.twin, "resolution": cell.resolves,
        "horizon_s": cell.horizon_s, "conditions": _plain(asdict(cell.conditions)), "episodes": episodes,
        "episodes_with_contact": contacts, "episodes_with_contact_at_own_speed": moving,
        "contact_rate_high": 3 / episodes if contacts == 0 else None,
        "least_separation_m": least, "arrived_share": float(np.mean(arrived)),
        "median_arrival_s": float(np.median(outcome.arrived_s[arrived])) if arrived.any() else None,
        "deadlocked_share": float(np.mean(outcome.deadlocked)),
        "intervention_share": float(np.mean(outcome.changed_share)),
        "intervention_m_s": float(np.mean(outcome.change_m_s)),
        "holds": holds(cell, contacts, moving),
    }


def holds(cell: Cell, contacts: int, moving: int) -> bool | None:
    """Return whether a cell shows what it claims; None where nothing is claimed."""
    return {Claim.COVERED: contacts == 0, Claim.HOSTILE: moving == 0, Claim.CONTROL: contacts > 0
            }.get(cell.claim)


def row(figures: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cell's line."""
    high = figures["contact_rate_high"]
    verdict = {True: "yes", False: "NO", None: ""}[figures["holds"]]
    layers = figures["layers"] if figures["claim"] != Claim.COMPARED.value else figures["conditions"]["rule"]
    name = figures["cell"].replace(f", layers {layers}", "").removesuffix(f", {layers}")
    name = name if figures["tier"] == "kinematic" else f"{figures['tier']}: {name}"
    return (name, layers, f"{figures['episodes']}",
            f"{figures['episodes_with_contact']}", f"{figures['episodes_with_contact_at_own_speed']}",
            "" if high is None else f"{high:.1e}", f"{figures['least_separation_m']:.3f}",
            f"{figures['arrived_share']:.3f}", f"{figures['deadlocked_share']:.3f}",
            f"{figures['intervention_share']:.2f}", f"{figures['intervention_m_s']:.2f}", verdict)


def totals(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what all cells say together."""
    covered = [cell for cell in cells if cell["claim"] == Claim.COVERED.value]
    batch = [cell for cell in covered if cell["tier"] == "kinematic"]
    controls = [cell for cell in cells if cell["claim"] == Claim.CONTROL.value]
    return {
        "cells": len(cells), "episodes": sum(cell["episodes"] for cell in cells),
        "covered_cells": len(covered), "covered_episodes": sum(cell["episodes"] for cell in covered),
        "covered_contacts": sum(cell["episodes_with_contact"] for cell in covered),
        "fewest_episodes_of_a_covered_kinematic_cell": min((cell["episodes"] for cell in batch), default=0),
        "controls": len(controls), "controls_seen_to_fail": sum(cell["holds"] for cell in controls),
        "hostile_contacts_at_own_speed": sum(cell["episodes_with_contact_at_own_speed"] for cell in cells
                                             if cell["claim"] == Claim.HOSTILE.value),
        "all_hold": all(cell["holds"] is not False for cell in cells),
    }


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return values that JSON knows: enumerations by name, no infinity."""
    def simple(value: Any) -> Any:
        if isinstance(value, Enum):
            return value.value
        return None if value == float("inf") else value
    return {key: simple(value) for key, value in values.items()}
