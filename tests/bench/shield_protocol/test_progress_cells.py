"""The cells in which robots hold each other up: their places and kinds of commands, and that a policy drives them."""

from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from testudo_bench.shield_protocol.bench_shield import bench_shield
from testudo_bench.shield_protocol.cell_runner import Job, Tables, run_jobs
from testudo_bench.shield_protocol.ground_cells import SLOW
from testudo_bench.shield_protocol.policy_commands import ProtocolPolicy
from testudo_bench.shield_protocol.progress_cells import progress_cells
from testudo_bench.shield_protocol.protocol_cell import (
    PROJECTION_ONLY,
    Claim,
    Commands,
    Formation,
    ProtocolCell,
    Rule,
)
from testudo_hardware.errors import TestudoError

CELLS = list(progress_cells(SLOW, (Commands.TRAINED, Commands.UNTRAINED)))
FACING = ProtocolCell("facing", "", SLOW, 2, Formation.HEAD_ON, PROJECTION_ONLY, Claim.COVERED, 20.0, 4)


def test_every_place_has_straight_commands_both_policies_and_orca_in_the_same_worlds():
    by_name = {cell.name: cell for cell in CELLS}
    assert len(by_name) == len(CELLS) == 4 * 6
    straight = [cell for cell in CELLS if cell.twin is None]
    assert {(cell.formation, cell.size) for cell in straight} == {
        *((Formation.SWAP, size) for size in (8, 12, 16)),
        (Formation.DOORWAY, 4),
        (Formation.ONE_WAY, 8),
        (Formation.CORRIDOR, 4),
    }
    for cell in CELLS:
        same = replace(by_name[cell.twin or cell.name], what=cell.what, twin=cell.twin, episodes=cell.episodes)
        if cell.conditions.rule is Rule.ORCA:
            changes = {"layers": cell.layers, "claim": cell.claim, "conditions": cell.conditions, "resolves": False}
            same = replace(same, **changes)
        assert replace(same, commands=cell.commands) == cell
    assert min(cell.episodes for cell in CELLS if cell.commands is not Commands.UNTRAINED) >= 200


@pytest.mark.slow
def test_each_robot_drives_by_the_policy_to_its_own_goal_and_not_without_its_command():
    """A policy that drives to its goal brings all robots there; the other one, in the same worlds, moves none."""

    def drives(signals, hidden):
        offset = signals["goal_world"] - signals["control_point_world"]
        return offset / jnp.linalg.norm(offset, axis=-1, keepdims=True) * 0.15, hidden

    def stands(signals, hidden):
        return jnp.zeros_like(signals["goal_world"]), hidden

    driven, standing = replace(FACING, commands=Commands.TRAINED), replace(FACING, commands=Commands.UNTRAINED)
    policies = {Commands.TRAINED: ProtocolPolicy(drives, 0, 4), Commands.UNTRAINED: ProtocolPolicy(stands, 0, 4)}
    tables = Tables(fast_compile=True)
    run_jobs([Job(driven, 4), Job(standing, 4)], lambda _: None, tables, policies)
    arrived, stood = (tables.outcomes["kinematic", cell] for cell in (driven, standing))
    assert np.isfinite(arrived.arrived_s).all()
    assert not np.isfinite(stood.arrived_s).any()
    assert arrived.contacts.sum() == stood.contacts.sum() == 0


def test_a_policy_and_a_robot_or_no_policy_are_refused(tmp_path):
    with pytest.raises(TestudoError, match="--robot and --policy"):
        bench_shield(robot="crazyflie_2x", policy=Path("policy.onnx"))
    with pytest.raises(TestudoError):
        bench_shield(policy=tmp_path / "absent.onnx")
