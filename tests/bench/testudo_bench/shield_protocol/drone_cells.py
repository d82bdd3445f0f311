"""The protocol's cells of drones: as for ground robots, and with a lost radio link.

Most drones brake by themselves at a lost link (`silence.onboard_brake`); others level out, coast and fall: their shield
keeps whole columns free, and limits their speed next to others.
"""

import math
from collections.abc import Iterator
from typing import Any

from testudo_bench.shield_protocol.protocol_cell import (
    ALL_LAYERS,
    DISTURBANCES,
    GATE_ONLY,
    PROJECTION_ONLY,
    Claim,
    Conditions,
    Formation,
    ProtocolCell,
    Rule,
    control_pair,
    hostile_cells,
    projection_controls,
)

_EPISODES, _FEW = 200, 64
_HORIZON_S = 60.0
_BURSTS: dict[str, Any] = {"radio_burst_s": 0.1, "radio_chance": 0.04}
"""The link is lost for 100 ms every 0.6 s on average: one set-point in six."""

WRONG: dict[str, dict[str, Any]] = {"100 ms, 10 % loss": {"message_s": 0.1, "loss": 0.1}, **DISTURBANCES}
"""Conditions that the shield of drones must tolerate, by name."""
RADIO: dict[str, dict[str, Any]] = {
    "radio bursts of 100 ms": _BURSTS,
    "radio bursts of 500 ms": {"radio_burst_s": 0.5, "radio_chance": 0.01},
    "radio of one lost for 2 s": {"radio_lost_s": 2.0},
    "radio of one lost": {"radio_lost_s": math.inf},
    "radio of all lost": {"radio_lost_s": math.inf, "radio_of_all": True},
    "radio bursts of 100 ms, 300 ms, 50 % loss": {**_BURSTS, "message_s": 0.3, "loss": 0.5},
}
"""Losses of the radio link to the vehicles, by name."""


def drone_cells(robot: str) -> list[ProtocolCell]:
    """Return every cell of a drone."""
    return [
        *_nominal_cells(robot),
        *_disturbed_cells(robot),
        *_without_brake(robot),
        *hostile_cells(_make, robot),
        *_controls(robot),
    ]


def attitude_cells(robot: str) -> list[ProtocolCell]:
    """Return the cells that also run on the tier `attitude`: two drones with onboard brake."""
    return [
        cell
        for cell in drone_cells(robot)
        if cell.size == 2
        and cell.layers == ALL_LAYERS
        and cell.claim is Claim.COVERED
        and cell.conditions.onboard_brake
        and not any(what in cell.name for what in ("jump", "90 %"))
    ]


def _make(
    robot: str,
    size: int,
    formation: Formation,
    what: str = "",
    *,
    layers: str = ALL_LAYERS,
    claim: Claim = Claim.COVERED,
    onboard_brake: bool = True,
    **wrong: Any,
) -> ProtocolCell:
    kind = "drone" if onboard_brake else "drone without brake"
    episodes = _FEW if claim is Claim.REPORTED or size > 4 else _EPISODES
    conditions = Conditions(onboard_brake=onboard_brake, **wrong)
    return ProtocolCell(
        f"{kind}, {formation.value} of {size}",
        what,
        robot,
        size,
        formation,
        layers,
        claim,
        _HORIZON_S,
        episodes,
        conditions,
    )


def _nominal_cells(robot: str) -> Iterator[ProtocolCell]:
    for formation in (Formation.HEAD_ON, Formation.VERTICAL):
        yield _make(robot, 2, formation)
    for formation in (Formation.SYMMETRIC, Formation.STACKED, Formation.SWAP):
        for size in (2, 4):
            yield _make(robot, size, formation)
    for size in (8, 16):
        yield _make(robot, size, Formation.SWAP)
    yield _make(robot, 8, Formation.CROSSING)
    yield _make(robot, 4, Formation.BLOCKS)


def _disturbed_cells(robot: str) -> Iterator[ProtocolCell]:
    for what, wrong in {**WRONG, **RADIO}.items():
        for size in (2, 4):
            yield _make(robot, size, Formation.SWAP, what, **wrong)
    yield _make(robot, 2, Formation.VERTICAL, "radio bursts of 100 ms", **_BURSTS)
    yield _make(robot, 4, Formation.STACKED, "radio of one lost", radio_lost_s=math.inf)
    yield _make(robot, 6, Formation.SWAP, "radio bursts of 100 ms", **_BURSTS)
    yield _make(robot, 8, Formation.SWAP, "100 ms, 10 % loss", message_s=0.1, loss=0.1)
    yield _make(robot, 4, Formation.SWAP, "asynchronous, 100 ms, 30 % loss", stride=2, message_s=0.1, loss=0.3)
    yield _make(robot, 4, Formation.SWAP, "brakes 30 % weaker", claim=Claim.REPORTED, brake_share=0.7)
    for what in ("", "300 ms", "late ticks"):
        yield _make(robot, 4, Formation.SWAP, what, layers=GATE_ONLY, **WRONG.get(what, {}))


def _without_brake(robot: str) -> Iterator[ProtocolCell]:
    for formation, size in ((Formation.HEAD_ON, 2), (Formation.SYMMETRIC, 2), (Formation.SWAP, 2), (Formation.SWAP, 4)):
        yield _make(robot, size, formation, onboard_brake=False)
    for what, wrong in {**RADIO, **WRONG}.items():
        if what in RADIO or what in ("100 ms, 10 % loss", "late ticks", "process killed"):
            yield _make(robot, 4, Formation.SWAP, what, onboard_brake=False, **wrong)


def _controls(robot: str) -> Iterator[ProtocolCell]:
    """Yield the negative controls, each after its intact twin."""
    swap, gate = Formation.SWAP, GATE_ONLY
    bare = _make(robot, 4, swap, layers=PROJECTION_ONLY, claim=Claim.REPORTED)
    lossy = _make(robot, 4, swap, "300 ms, 90 % loss", layers=gate, message_s=0.3, loss=0.9)
    killed = _make(robot, 2, swap, "process killed", layers=gate, dead_s=math.inf)
    # with the stop-tube check only: the separation of layer 1 exceeds the reach of the downwash
    stacked = _make(robot, 2, Formation.VERTICAL, layers=gate)
    lost = _make(robot, 2, swap, "radio of one lost, no resolution", radio_lost_s=math.inf)
    for twin, what, change in (
        (lossy, "space taken without acknowledgement", {"blind_take": True}),
        (killed, "driver holds for 1.5 s", {"driver_s": 1.5}),
        (bare, "no shield", {"rule": Rule.NONE}),
        (stacked, "heights count in full", {"level": True}),
        (lost, "silence ignored", {"really_brakes": False}),
    ):
        yield from control_pair(twin, what, _FEW, **change)
    yield from projection_controls(_make, robot, _FEW, ("1 s", 1.0), dead_man_s=2.0, late_periods=90)
