"""The cells of drones: what ground robots have, in space, and what becomes of them when their radio is silent.

Most are flown by drones that brake by themselves when their radio is silent (`silence.onboard_brake`), some by drones
that level out, coast and fall: their shield keeps whole columns free, and lets them drive slowly beside others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from testudo_bench.shield_protocol.protocol_cell import (
    ALL_LAYERS,
    GATE_ONLY,
    HOSTILE_SIZE,
    PROJECTION_ONLY,
    Claim,
    Conditions,
    Formation,
    ProtocolCell,
    Rule,
)
from testudo_sim.team.fault_schedule import CHASER, FREEZER, LIAR

_EPISODES, _FEW = 200, 64
_HORIZON_S = 60.0
_BURSTS = {"radio_burst_s": 0.1, "radio_chance": 0.04}
"""Every 0.6 s on the mean the radio is lost for 100 ms: one set-point in six."""

WRONG: dict[str, dict[str, object]] = {
    "100 ms, 10 % loss": {"message_s": 0.1, "loss": 0.1},
    "300 ms": {"message_s": 0.3},
    "50 % loss": {"loss": 0.5},
    "90 % loss": {"loss": 0.9},
    "blackout of 2 s": {"blackout_s": 2.0},
    "one way 90 % loss": {"one_way_loss": 0.9},
    "late ticks": {"late_chance": 0.1},
    "process killed": {"dead_s": math.inf},
    "process frozen 2 s": {"dead_s": 2.0},
    "jump of 5 cm": {"jump_m": 0.05},
    "jump of 20 cm": {"jump_m": 0.2},
    "jump of 100 cm": {"jump_m": 1.0},
    "300 ms, 50 % loss, late ticks": {"message_s": 0.3, "loss": 0.5, "late_chance": 0.1},
}
RADIO: dict[str, dict[str, object]] = {
    "radio bursts of 100 ms": _BURSTS,
    "radio bursts of 500 ms": {"radio_burst_s": 0.5, "radio_chance": 0.01},
    "radio of one lost for 2 s": {"radio_lost_s": 2.0},
    "radio of one lost": {"radio_lost_s": math.inf},
    "radio of all lost": {"radio_lost_s": math.inf, "radio_of_all": True},
    "radio bursts of 100 ms, 300 ms, 50 % loss": {**_BURSTS, "message_s": 0.3, "loss": 0.5},
}
"""What the radio to the vehicles does, by name."""


def drone_cells(robot: str) -> list[ProtocolCell]:
    """Return every cell of a drone."""
    return [*_good_days(robot), *_bad_days(robot), *_without_brake(robot), *_hostile(robot), *_controls(robot)]


def attitude_cells(robot: str) -> list[ProtocolCell]:
    """Return the cells that are also flown on the tier `attitude`: two drones that brake by themselves."""
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
    **wrong: object,
) -> ProtocolCell:
    kind = "drone" if onboard_brake else "drone without brake"
    episodes = _FEW if claim is Claim.REPORTED or size > 4 else _EPISODES
    conditions = Conditions(onboard_brake=onboard_brake, **wrong)  # type: ignore[arg-type]
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


def _good_days(robot: str) -> Iterator[ProtocolCell]:
    for formation in (Formation.HEAD_ON, Formation.VERTICAL):
        yield _make(robot, 2, formation)
    for formation in (Formation.SYMMETRIC, Formation.STACKED, Formation.SWAP):
        for size in (2, 4):
            yield _make(robot, size, formation)
    for size in (8, 16):
        yield _make(robot, size, Formation.SWAP)
    yield _make(robot, 8, Formation.CROSSING)
    yield _make(robot, 4, Formation.BLOCKS)


def _bad_days(robot: str) -> Iterator[ProtocolCell]:
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


def _hostile(robot: str) -> Iterator[ProtocolCell]:
    for what, kind in (("chaser", CHASER), ("liar", LIAR)):
        yield _make(robot, HOSTILE_SIZE, Formation.SWAP, what, claim=Claim.HOSTILE, stranger=kind)
    yield _make(robot, HOSTILE_SIZE, Formation.SWAP, "freezer", claim=Claim.HOSTILE, stranger=FREEZER, dead_s=math.inf)


def _controls(robot: str) -> Iterator[ProtocolCell]:
    """Yield what must fail, each after its intact twin."""
    swap, gate = Formation.SWAP, {"layers": GATE_ONLY}
    alone = {"layers": PROJECTION_ONLY, "claim": Claim.REPORTED}
    for twin, what, change in (
        (
            _make(robot, 4, swap, "300 ms, 90 % loss", **gate, message_s=0.3, loss=0.9),
            "space taken without acknowledgement",
            {"blind_take": True},
        ),
        (_make(robot, 2, swap, "process killed", **gate, dead_s=math.inf), "driver holds for 1.5 s", {"driver_s": 1.5}),
        (_make(robot, 4, swap, **alone), "no shield", {"rule": Rule.NONE}),
        (
            _make(robot, 2, Formation.SYMMETRIC, "often late ticks", **alone, late_chance=0.3),
            "plain barrier",
            {"rule": Rule.PLAIN},
        ),
        (
            replace(_make(robot, 4, swap, "1 s", **alone, message_s=1.0), resolves=False),
            "time since arrival",
            {"blind_age": True},
        ),
        (
            replace(
                _make(
                    robot,
                    2,
                    Formation.HEAD_ON,
                    "dead-man time of 2 s, very late ticks",
                    **alone,
                    late_chance=0.3,
                    dead_man_s=2.0,
                    late_periods=90,
                ),
                resolves=False,
            ),
            "T for T_hold",
            {"rule": Rule.ONE_TICK},
        ),
    ):
        yield twin
        yield _broken(twin, what, **change)
    # by the gate alone: what layer 1 keeps (`separation_m`) is more than the wash of the drone above reaches down
    stacked = _make(robot, 2, Formation.VERTICAL, **gate)
    yield stacked
    yield _broken(stacked, "heights count in full", level=True)
    yield _broken(
        _make(robot, 2, swap, "radio of one lost", radio_lost_s=math.inf), "silence ignored", really_brakes=False
    )


def _broken(twin: ProtocolCell, what: str, **change: object) -> ProtocolCell:
    """Return the negative control of a cell."""
    return replace(
        twin,
        what=", ".join(word for word in (twin.what, f"CONTROL {what}") if word),
        claim=Claim.CONTROL,
        episodes=_FEW,
        twin=twin.name,
        conditions=replace(twin.conditions, **change),
    )  # type: ignore[arg-type]
