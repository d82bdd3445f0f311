"""RRT* (Karaman and Frazzoli, IJRR 2011) for each robot by itself, by the Open Motion Planning Library (OMPL).

The other robots are not planned for: they are left to the shield. Where the straight way is free it is the shortest
path, and no tree is grown.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from testudo_deploy.shield.arena import Arena, distance_to, segment_clearance
from testudo_hardware.errors import TestudoError


def ompl_library() -> Any:
    """Return OMPL's module `ompl`, with its messages turned off.

    Raises:
        TestudoError: it is not installed.
    """
    try:
        import ompl.base  # noqa: PLC0415 -- an optional extra
        import ompl.geometric  # noqa: PLC0415
        import ompl.util  # noqa: PLC0415
    except ImportError as error:
        raise TestudoError("the package ompl is not installed: pip install 'testudo[planners]'") from error
    ompl.util.setLogLevel(ompl.util.LOG_NONE)
    return ompl


@dataclass(frozen=True)
class RrtStarPlanner:
    """Plans the path of one robot among walls and obstacles."""

    arena: Arena
    room_m: float  # kept from walls and obstacles
    samples: int = 1000

    @property
    def no_plan(self) -> str:
        """Return what to say of an episode without a plan."""
        return f"no plan found with {self.samples} samples"

    def plan(self, start_world: np.ndarray, goal_world: np.ndarray, seed: int) -> np.ndarray | None:
        """Return the points (K, D) [m] of a path from a start to a goal (D,) [m]; None if none was found.

        Raises:
            TestudoError: obstacles are in the way, and OMPL is not installed.
        """
        ends = np.stack([start_world, goal_world]).astype(float)
        if all(segment_clearance(obstacle, *ends) >= self.room_m for obstacle in self.arena.obstacles):
            return ends
        return self._grown(ends, seed)

    def _grown(self, ends_world: np.ndarray, seed: int) -> np.ndarray | None:
        ompl = ompl_library()
        base, geometric = ompl.base, ompl.geometric
        ompl.util.RNG.setSeed(seed + 1)  # zero is not a seed
        dimension = ends_world.shape[1]
        space, bounds = base.RealVectorStateSpace(dimension), base.RealVectorBounds(dimension)
        for axis, (low, high) in enumerate(zip(self.arena.low_world, self.arena.high_world, strict=True)):
            bounds.setLow(axis, min(low + self.room_m, ends_world[:, axis].min()))
            bounds.setHigh(axis, max(high - self.room_m, ends_world[:, axis].max()))
        space.setBounds(bounds)
        setup = geometric.SimpleSetup(space)
        setup.setStateValidityChecker(self._is_free(dimension))
        states = [space.allocState() for _ in ends_world]
        for state, point in zip(states, ends_world, strict=True):
            for axis, value in enumerate(point):
                state[axis] = float(value)
        setup.setStartAndGoalStates(*states, _NEAR_M)
        setup.setPlanner(geometric.RRTstar(setup.getSpaceInformation()))
        rounds = iter(range(self.samples))
        # a number of samples, no time: plans do not depend on the machine
        setup.solve(base.PlannerTerminationCondition(lambda: next(rounds, None) is None))
        if not setup.haveExactSolutionPath():
            return None
        found = setup.getSolutionPath().getStates()
        return np.array([[state[axis] for axis in range(dimension)] for state in found])

    def _is_free(self, dimension: int) -> Any:
        def is_free(state: Any) -> bool:
            point = np.array([state[axis] for axis in range(dimension)])
            return all(distance_to(obstacle, point) >= self.room_m for obstacle in self.arena.obstacles)

        return is_free


_NEAR_M = 1e-3  # of the goal
