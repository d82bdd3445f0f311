"""The cells of the protocol (shield.md, "Test protocol")."""

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
from testudo_hardware.spec import robot_files
from testudo_sim.team.fault_schedule import CHASER, FREEZER, LIAR

SLOW = "gritsbot_x"
DRONE = "crazyflie_2x"
_FAST = ("robomaster_s1", DRONE)
"""The first of these that is registered."""
_HORIZON_S = {SLOW: 60.0}
_FAST_HORIZON_S = 40.0
_CIRCLE_HORIZON_S = 60.0
_MUJOCO_HORIZON_S = 30.0
_KINEMATIC_ONLY = ("30 % loss",)
"""Between other conditions that are run on MuJoCo, which has 20 cells of each robot."""
_EPISODES = 1000
_FEW = 200
"""Episodes of a cell that must show contacts, of another method, and where nothing is claimed."""


def fast_robot() -> str:
    """Return the robot that stands for fast dynamics."""
    return next(name for name in _FAST if name in robot_files())


def protocol_cells() -> list[ProtocolCell]:
    """Return every cell of the kinematic tier."""
    cells = [cell for robot in (SLOW, fast_robot()) for cell in _of_robot(robot)]
    return [*cells, *_in_space()]


def mujoco_cells() -> list[ProtocolCell]:
    """Return the 40 cells that are run on MuJoCo, too: 20 of each kind of dynamics."""
    chosen = [
        cell
        for robot in (SLOW, fast_robot())
        for cell in _of_robot(robot)
        if cell.layers == ALL_LAYERS
        and cell.resolves
        and cell.conditions.stride == 1
        and (cell.claim is Claim.HOSTILE or (cell.claim is Claim.COVERED and cell.size == 4))
        and cell.formation not in (Formation.CORRIDOR, Formation.BLOCKS)
        and not any(what in cell.name for what in _KINEMATIC_ONLY)
    ]
    return [replace(cell, horizon_s=_MUJOCO_HORIZON_S) for cell in chosen]


def in_quick(cell: ProtocolCell) -> bool:
    """Return whether a quick run has the cell: it lacks those for which slow robots or drones need another program."""
    if cell.robot == DRONE and cell.robot != fast_robot():
        return cell.size == 2 and cell.formation is not Formation.BLOCKS
    plain = cell.formation in (Formation.HEAD_ON, Formation.SYMMETRIC, Formation.SWAP)
    layered = cell.layers in (ALL_LAYERS, GATE_ONLY) and cell.claim is not Claim.COMPARED
    return cell.robot != SLOW or (plain and layered and cell.conditions.stride == 1)


def _of_robot(robot: str) -> Iterator[ProtocolCell]:
    """Yield all cells of a ground robot."""
    yield from _good_days(robot)
    yield from _bad_days(robot)
    yield from _fewer_layers(robot)
    yield from _hostile(robot)
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
    **wrong: object,
) -> ProtocolCell:
    """Return a cell; ``wrong`` are its `Conditions`."""
    dynamics = dynamics or ("slow" if robot == SLOW else "fast")
    circle = formation in (Formation.SWAP, Formation.BLOCKS)
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
    )  # type: ignore[arg-type]


def _good_days(robot: str) -> Iterator[ProtocolCell]:
    yield _make(robot, 2, Formation.HEAD_ON)
    for size in (2, 4):
        yield _make(robot, size, Formation.SYMMETRIC)
    for size in (2, 4, 8, 16):
        yield _make(robot, size, Formation.SWAP)
    yield _make(robot, 8, Formation.CROSSING)
    yield _make(robot, 4, Formation.CORRIDOR)
    yield _make(robot, 4, Formation.BLOCKS)


def _bad_days(robot: str) -> Iterator[ProtocolCell]:
    for size in (2, 4, 8):
        usual = _make(robot, size, Formation.SWAP, "100 ms, 10 % loss", message_s=0.1, loss=0.1)
        yield usual
        yield replace(usual, what=f"{usual.what}, no resolution", resolves=False)
    yield _make(robot, 4, Formation.BLOCKS, "100 ms, 10 % loss", message_s=0.1, loss=0.1)
    for what, wrong in _WRONG.items():
        for size in (2, 4):
            yield _make(robot, size, Formation.SWAP, what, **wrong)
    for size in (4, 8):
        yield _make(
            robot, size, Formation.SWAP, "100 ms, 30 % loss, late ticks", message_s=0.1, loss=0.3, late_chance=0.1
        )
    yield _make(robot, 4, Formation.SWAP, "asynchronous", stride=2)
    yield _make(robot, 4, Formation.SWAP, "asynchronous, 100 ms, 30 % loss", stride=2, message_s=0.1, loss=0.3)
    yield _make(robot, 4, Formation.SWAP, "brakes 30 % weaker", claim=Claim.REPORTED, brake_share=0.7)


_WRONG: dict[str, dict[str, object]] = {
    "50 ms": {"message_s": 0.05},
    "300 ms": {"message_s": 0.3},
    "30 % loss": {"loss": 0.3},
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
    "jump of 30°": {"jump_rad": math.radians(30)},
    "300 ms, 50 % loss, late ticks": {"message_s": 0.3, "loss": 0.5, "late_chance": 0.1},
}
"""What the shield must bear, by name."""


def _fewer_layers(robot: str) -> Iterator[ProtocolCell]:
    """Yield the gate without layer 1, which carries the guarantee, and layer 1 without the gate, which does not."""
    for layers, claim in ((GATE_ONLY, Claim.COVERED), (PROJECTION_ONLY, Claim.REPORTED)):
        yield _make(robot, 4, Formation.SYMMETRIC, layers=layers, claim=claim)
        yield _make(robot, 4, Formation.SWAP, layers=layers, claim=claim)
        for what in ("300 ms", "50 % loss", "late ticks"):
            yield _make(robot, 4, Formation.SWAP, what, layers=layers, claim=claim, **_WRONG[what])


def _hostile(robot: str) -> Iterator[ProtocolCell]:
    for what, kind in (("chaser", CHASER), ("liar", LIAR)):
        yield _make(robot, HOSTILE_SIZE, Formation.SWAP, what, claim=Claim.HOSTILE, stranger=kind)
    yield _make(robot, HOSTILE_SIZE, Formation.SWAP, "freezer", claim=Claim.HOSTILE, stranger=FREEZER, dead_s=math.inf)


def _controls(robot: str) -> Iterator[ProtocolCell]:
    """Yield what must fail, each after its intact twin.

    Most are for fast robots: slow ones forgive the mistake, which is why tests of slow robots prove little.
    """
    swap, gate = Formation.SWAP, {"layers": GATE_ONLY}
    twin = _make(robot, 4, swap, "300 ms, 90 % loss", **gate, message_s=0.3, loss=0.9)
    yield twin
    yield _broken(twin, "space taken without acknowledgement", blind_take=True)
    if robot == SLOW:
        return
    twin = _make(robot, 2, swap, "process killed", **gate, dead_s=math.inf)
    yield twin
    yield _broken(twin, "driver holds for 0.5 s", driver_s=0.5)
    alone = {"layers": PROJECTION_ONLY, "claim": Claim.REPORTED}
    yield _broken(_make(robot, 4, swap, **alone), "no shield", rule=Rule.NONE)
    for twin, what, change in (
        (
            _make(robot, 2, Formation.SYMMETRIC, "often late ticks", **alone, late_chance=0.3),
            "plain barrier",
            {"rule": Rule.PLAIN},
        ),
        (
            replace(_make(robot, 4, swap, "600 ms", **alone, message_s=0.6), resolves=False),
            "time since arrival",
            {"blind_age": True},
        ),
        (
            replace(
                _make(
                    robot,
                    2,
                    Formation.HEAD_ON,
                    "dead-man time of 1 s, very late ticks",
                    **alone,
                    late_chance=0.3,
                    dead_man_s=1.0,
                    late_periods=40,
                ),
                resolves=False,
            ),
            "T for T_hold",
            {"rule": Rule.ONE_TICK},
        ),
    ):
        yield twin
        yield _broken(twin, what, **change)


def _compared(robot: str) -> Iterator[ProtocolCell]:
    """Yield the same swaps under other methods, without the rule against deadlocks."""
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


def _in_space() -> Iterator[ProtocolCell]:
    """Yield cells of drones, which move in space; fewer and smaller, since they cost more."""
    for formation in (Formation.HEAD_ON, Formation.SYMMETRIC):
        yield _make(DRONE, 2, formation, dynamics="drone")
    for size in (2, 4):
        yield _make(DRONE, size, Formation.SWAP, "100 ms, 10 % loss", dynamics="drone", message_s=0.1, loss=0.1)
    yield _make(DRONE, 2, Formation.SWAP, "300 ms, 50 % loss", dynamics="drone", message_s=0.3, loss=0.5)
    yield _make(DRONE, 2, Formation.BLOCKS, "100 ms, 10 % loss", dynamics="drone", message_s=0.1, loss=0.1)
    yield _make(DRONE, 2, Formation.SWAP, "late ticks", dynamics="drone", late_chance=0.1)
