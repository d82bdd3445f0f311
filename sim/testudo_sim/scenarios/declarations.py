"""What a scenario declares besides its signals and its arena, in one form for pages and policy files."""

from dataclasses import asdict
from typing import Any

import jax

from testudo_hardware.motion import MotionState
from testudo_sim.physics.scene import Scene
from testudo_sim.scenarios.scenario import Scenario, TaskStep


def declarations(scenario: Scenario, team_size: int) -> dict[str, Any]:
    """Return what a scenario declares, JSON-ready; by a trace, without numbers."""
    step = decision_shapes(scenario, team_size)
    return {
        "decision_ticks": scenario.decision_ticks,
        "horizon_s": scenario.horizon_s,
        "reward_terms": list(step.terms),
        "has_success": step.success is not None,
        "metrics": list(step.metrics),
        "boxes": [box.name for box in scenario.boxes],
        "observation": asdict(scenario.observation),
    }


def decision_shapes(scenario: Scenario, team_size: int) -> TaskStep:
    """Return the shapes of what a decision does, by a trace without numbers."""

    def decision(key: jax.Array) -> TaskStep:
        begin = jax.tree.map(lambda x: x[..., None], scenario.start(key, team_size))
        scene = Scene(MotionState(begin.position_world, begin.yaw, 0 * begin.position_world), begin.bodies)
        return scenario.advance(begin.task, scene, scene, key[None])

    shapes: TaskStep = jax.eval_shape(decision, jax.random.key(0))
    return shapes
