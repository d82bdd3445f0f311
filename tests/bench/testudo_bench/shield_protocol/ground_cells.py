"""The protocol's cells of ground robots, and its subsets (shield.md, "Test protocol")."""

import math
from collections.abc import Iterator
from dataclasses import replace
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
    insider_cells,
    negative_control,
    projection_controls,
)
from testudo_hardware.spec import robot_files

SLOW = "gritsbot_x"
DRONE = "crazyflie_2x"
_FAST = ("robomaster_s1", DRONE)  # candidates for the robot with fast dynamics; the first registered one is used
_HORIZON_S = {SLOW: 60.0}
_FAST_HORIZON_S = 40.0
_CIRCLE_HORIZON_S = 60.0
_MUJOCO_HORIZON_S = 30.0
_RESIDUAL = "residual motion"
_KINEMATIC_ONLY = ("30 % loss", _RESIDUAL)
"""Conditions that are not run on MuJoCo, which has 20 cells of each robot and no residual motion of its own."""
_EPISODES = 1000
_FEW = 200  # Episodes of negative controls, baselines and cells without a claim


def fast_robot() -> str:
    """Return the robot with fast dynamics."""
    return next(name for name in _FAST if name in robot_files())


def protocol_cells() -> list[ProtocolCell]:
    """Return every cell of the kinematic tier."""
    cells = [cell for robot in (SLOW, fast_robot()) for cell in _of_robot(robot)]
    return [*cells, *_in_space()]


def mujoco_cells() -> list[ProtocolCell]:
    """Return the 40 cells that also run on MuJoCo: 20 of each robot."""
    chosen = [
        cell
        for robot in (SLOW, fast_robot())
        for cell in _of_robot(robot)
        if cell.layers == ALL_LAYERS
        and cell.resolves
        and cell.conditions.stride == 1
        and (cell.claim is Claim.HOSTILE or (cell.claim is Claim.COVERED and cell.size == 4))
        and cell.formation not in (Formation.CORRIDOR, Formation.DOORWAY, Formation.BLOCKS, Formation.ASIDE)
        and not any(what in cell.name for what in _KINEMATIC_ONLY)
    ]
    return [replace(cell, horizon_s=_MUJOCO_HORIZON_S) for cell in chosen]


def in_quick(cell: ProtocolCell) -> bool:
    """Return whether a quick run has the cell: it skips those that need more programs for slow robots or drones."""
    if cell.robot == DRONE and cell.robot != fast_robot():
        return cell.size == 2 and cell.formation is not Formation.BLOCKS
    plain = cell.formation in (Formation.HEAD_ON, Formation.SYMMETRIC, Formation.SWAP)
    layered = cell.layers in (ALL_LAYERS, GATE_ONLY) and cell.claim is not Claim.COMPARED
    return cell.robot != SLOW or (plain and layered and cell.conditions.stride == 1)


def _of_robot(robot: str) -> Iterator[ProtocolCell]:
    """Yield all cells of a ground robot."""
    # with the deadlock rule robots keep to their right; without it they meet, and the shield alone parts them
    for size, formation in ((2, Formation.HEAD_ON), (2, Formation.SYMMETRIC), (4, Formation.SYMMETRIC)):
        yield _make(robot, size, formation)
        yield replace(_make(robot, size, formation, "no resolution"), resolves=False)
    for size in (2, 4, 8, 16):
        yield _make(robot, size, Formation.SWAP)
    yield _make(robot, 8, Formation.CROSSING)
    yield _make(robot, 4, Formation.CORRIDOR)
    yield _make(robot, 4, Formation.DOORWAY)
    yield _make(robot, 8, Formation.ONE_WAY)
    yield _make(robot, 4, Formation.BLOCKS)
    for size in (2, 4, 8):
        usual = _make(robot, size, Formation.SWAP, "100 ms, 10 % loss", message_s=0.1, loss=0.1)
        yield usual
        yield replace(usual, what=f"{usual.what}, no resolution", resolves=False)
    yield _make(robot, 4, Formation.BLOCKS, "100 ms, 10 % loss", message_s=0.1, loss=0.1)
    for what, wrong in _WRONG.items():
        for size in (2, 4):
            yield _make(robot, size, Formation.SWAP, what, **wrong)
    for size in (4, 8):
        yield _make(robot, size, Formation.ASIDE, "that one killed", message_s=0.05, loss=0.1, dead_s=math.inf)
        yield _make(
            robot, size, Formation.SWAP, "100 ms, 30 % loss, late ticks", message_s=0.1, loss=0.3, late_chance=0.1
        )
    if robot == SLOW:
        yield _make(robot, 4, Formation.SWAP, f"{_RESIDUAL} of 2 %", residual_share=0.02)
    yield _make(robot, 4, Formation.SWAP, "asynchronous", stride=2)
    yield _make(robot, 4, Formation.SWAP, "asynchronous, 100 ms, 30 % loss", stride=2, message_s=0.1, loss=0.3)
    yield _make(robot, 4, Formation.SWAP, "brakes 30 % weaker", claim=Claim.REPORTED, brake_share=0.7)
    # yield the stop-tube check without layer 1 (guaranteed), and layer 1 without it (not guaranteed)
    for layers, claim in ((GATE_ONLY, Claim.COVERED), (PROJECTION_ONLY, Claim.REPORTED)):
        yield _make(robot, 4, Formation.SYMMETRIC, layers=layers, claim=claim)
        yield _make(robot, 4, Formation.SWAP, layers=layers, claim=claim)
        for what in ("300 ms", "50 % loss", "late ticks"):
            yield _make(robot, 4, Formation.SWAP, what, layers=layers, claim=claim, **_WRONG[what])
    yield from hostile_cells(_make, robot)
    yield from insider_cells(_make, robot, _FEW)
    yield from _controls(robot)
    yield from _compared(robot)


def _make(
    robot: str,
    size: int,
    formation: Formation,
    what: str = "",
    *,
    layers: str = ALL_LAYERS,
    claim: Claim = Claim.COVERED,
    dynamics: str | None = None,
    **wrong: Any,
) -> ProtocolCell:
    """Return a cell; ``wrong`` are its `Conditions`."""
    dynamics = dynamics or ("slow" if robot == SLOW else "fast")
    circle = formation in (Formation.SWAP, Formation.ASIDE, Formation.BLOCKS)
    horizon = _CIRCLE_HORIZON_S if circle else _HORIZON_S.get(robot, _FAST_HORIZON_S)
    episodes = _FEW if claim in (Claim.COMPARED, Claim.REPORTED) else _EPISODES
    return ProtocolCell(
        f"{dynamics}, {formation.value} of {size}",
        what,
        robot,
        size,
        formation,
        layers,
        claim,
        horizon,
        episodes,
        Conditions(**wrong),
    )


_WRONG: dict[str, dict[str, Any]] = {
    "50 ms": {"message_s": 0.05},
    "300 ms": DISTURBANCES["300 ms"],
    "30 % loss": {"loss": 0.3},
    **{name: wrong for name, wrong in DISTURBANCES.items() if name != "300 ms, 50 % loss, late ticks"},
    "jump of 30°": {"jump_rad": math.radians(30)},
    "300 ms, 50 % loss, late ticks": DISTURBANCES["300 ms, 50 % loss, late ticks"],
}
"""Conditions that the shield must tolerate, by name."""


def _controls(robot: str) -> Iterator[ProtocolCell]:
    """Yield the negative controls, each after its intact twin.

    Most are for fast robots, because slow robots tolerate these errors.
    """
    swap, gate = Formation.SWAP, GATE_ONLY
    twin = _make(robot, 4, swap, "300 ms, 90 % loss", layers=gate, message_s=0.3, loss=0.9)
    yield from control_pair(twin, "space taken without acknowledgement", _FEW, blind_take=True)
    if robot == SLOW:
        return
    twin = _make(robot, 2, swap, "process killed", layers=gate, dead_s=math.inf)
    yield from control_pair(twin, "driver holds for 0.5 s", _FEW, driver_s=0.5)
    bare = _make(robot, 4, swap, layers=PROJECTION_ONLY, claim=Claim.REPORTED)
    yield negative_control(bare, "no shield", _FEW, rule=Rule.NONE)
    yield from projection_controls(_make, robot, _FEW, ("600 ms", 0.6), dead_man_s=1.0, late_periods=40)


def _compared(robot: str) -> Iterator[ProtocolCell]:
    """Yield swaps with the baselines, without deadlock resolution."""
    for rule in (Rule.ORCA, Rule.VORONOI, Rule.CERTIFICATE):
        for size in (2, 4, 8):
            for message_s in (0.0, 0.1):
                what = ", ".join(word for word in (rule.value, "100 ms" if message_s else "") if word)
                cell = _make(
                    robot,
                    size,
                    Formation.SWAP,
                    what,
                    layers=PROJECTION_ONLY,
                    claim=Claim.COMPARED,
                    rule=rule,
                    message_s=message_s,
                )
                yield replace(cell, resolves=False)


def _in_space() -> Iterator[ProtocolCell]:
    """Yield cells of drones; fewer and smaller, because they take longer."""
    for formation in (Formation.HEAD_ON, Formation.SYMMETRIC):
        yield _make(DRONE, 2, formation, dynamics="drone")
    for size in (2, 4):
        yield _make(DRONE, size, Formation.SWAP, "100 ms, 10 % loss", dynamics="drone", message_s=0.1, loss=0.1)
    yield _make(DRONE, 2, Formation.SWAP, "300 ms, 50 % loss", dynamics="drone", message_s=0.3, loss=0.5)
    yield _make(DRONE, 2, Formation.BLOCKS, "100 ms, 10 % loss", dynamics="drone", message_s=0.1, loss=0.1)
    yield _make(DRONE, 2, Formation.SWAP, "late ticks", dynamics="drone", late_chance=0.1)
