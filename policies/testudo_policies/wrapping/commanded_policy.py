"""A policy file without a policy: the nominal velocity is the command of another program, such as nav2, on a topic.

Fleet, control loop, guard, record and replay are those of every other policy file; the command is a signal that a
`commands` topic of the robot's link sends. The graph turns it into the velocity of the control point by the robot's own
motion model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from testudo_deploy.contract.command_types import velocity_command
from testudo_deploy.contract.contract import HOLD_RULE, VERSION, Contract, Signal, TestVector, robot_signals
from testudo_deploy.control.task_receiver import OLDEST_TASK_S
from testudo_deploy.fleet.robot_links import COMMANDED_VELOCITY
from testudo_deploy.shield.arena import Arena
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.motion import MotionState, motion_model
from testudo_hardware.motion.motion_model import control_velocity
from testudo_hardware.spec import RobotSpec
from testudo_policies.exporting.onnx_export import ExportReport, export_policy
from testudo_policies.exporting.parity import Step, random_inputs

COMMANDED = "commanded"  # scenario in the contract of a file for any other program
_EXAMPLE_ROWS = 4
_TEAM_SIZE = 2  # nobody was trained; the file runs with any number of robots


def write_commanded_policy(
    path: Path, spec: RobotSpec, arena: Arena | None = None, scenario: str = COMMANDED
) -> ExportReport:
    """Write the file for a robot, proven as every export; ``arena`` None has no walls.

    Raises:
        ExportError: the graph deviates from the motion model.
        TestudoError: the arena does not fit the robot.
    """
    contract = commanded_contract(spec, arena, scenario)
    examples = random_inputs(contract, _EXAMPLE_ROWS, 1, np.random.default_rng(0))
    return export_policy(commanded_step(spec), contract, examples, path)


def commanded_contract(spec: RobotSpec, arena: Arena | None, scenario: str = COMMANDED) -> Contract:
    """Return the contract, which decides at every control tick."""
    velocity = next(signal for signal in robot_signals(spec) if signal.name == "velocity")
    commanded = Signal(COMMANDED_VELOCITY, velocity.shape, velocity.unit, velocity.frame, OLDEST_TASK_S)
    return Contract(
        version=VERSION,
        scenario=scenario,
        robot=spec.name,
        robot_spec=spec.to_dict(),
        robot_sha256=spec.sha256,
        dimension=spec.dimension,
        signals=(*robot_signals(spec), commanded),
        command=velocity_command("control_point_velocity_world", spec),
        hidden_size=0,
        control_period_s=spec.control_period_s,
        decision_ticks=1,
        hold_rule=HOLD_RULE,
        dead_man_s=spec.dead_man_s,
        arena=arena,
        team_size=_TEAM_SIZE,
        shield=projection_parameters(spec),
        provenance={
            "policy": f"none: follows the commands of the topic that link.commands names ({COMMANDED_VELOCITY})"
        },
        evaluation={},
        parity={},
        test_vector=TestVector({}, {}),
    )


def commanded_step(spec: RobotSpec) -> Step:
    """Return the step: the velocity of the control point that the command causes, as a command of the robot would."""
    model = motion_model(spec)

    def step(signals: dict[str, Any], hidden: Any) -> tuple[Any, Any]:
        state = MotionState(signals["position_world"].T, signals["yaw"][:, 0], signals["velocity"].T)
        command = model.limit_command(signals[COMMANDED_VELOCITY].T)
        velocity = control_velocity(model, model.stopping_point(state), command).T
        speed = jnp.maximum(jnp.sqrt(jnp.sum(velocity**2, axis=1, keepdims=True)), 1e-6)
        return velocity * jnp.minimum(spec.control_point_speed_m_s / speed, 1.0), hidden

    return step
