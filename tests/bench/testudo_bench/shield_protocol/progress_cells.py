"""Cells in which robots hold each other up: with each kind of nominal commands, and with ORCA, in the same worlds."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from testudo_bench.shield_protocol.protocol_cell import (
    ALL_LAYERS,
    PROJECTION_ONLY,
    Claim,
    Commands,
    Conditions,
    Formation,
    ProtocolCell,
    Rule,
)

_PLACES = (
    (Formation.SWAP, 8),
    (Formation.SWAP, 12),
    (Formation.SWAP, 16),
    (Formation.DOORWAY, 4),
    (Formation.ONE_WAY, 8),
    (Formation.CORRIDOR, 4),
)
_EPISODES = 200
_UNTRAINED = 50  # episodes of an untrained policy, which seldom arrives: they last for the whole horizon
_HORIZON_S = 60.0


def progress_cells(robot: str, kinds: Iterable[Commands]) -> Iterator[ProtocolCell]:
    """Yield the cells of a ground robot: all layers with each kind of commands, and ORCA with straight ones."""
    for formation, size in _PLACES:
        straight = ProtocolCell(
            f"{robot}, {formation.value} of {size}",
            Commands.STRAIGHT.value,
            robot,
            size,
            formation,
            ALL_LAYERS,
            Claim.COVERED,
            _HORIZON_S,
            _EPISODES,
        )
        yield straight
        for kind in kinds:
            episodes = _UNTRAINED if kind is Commands.UNTRAINED else _EPISODES
            yield replace(straight, what=kind.value, commands=kind, twin=straight.name, episodes=episodes)
        yield replace(
            straight,
            what=Rule.ORCA.value,
            layers=PROJECTION_ONLY,
            claim=Claim.COMPARED,
            conditions=Conditions(rule=Rule.ORCA),
            resolves=False,
            twin=straight.name,
        )
