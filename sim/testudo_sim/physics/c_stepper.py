"""Physics steps by C MuJoCo, the reference."""

import os
from dataclasses import dataclass, field
from typing import Any

import jax
import mujoco
import numpy as np
from mujoco import rollout

from testudo_sim.physics.mujoco_tier import RawState
from testudo_sim.physics.world_parameters import WorldParameters

_STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS


@dataclass(frozen=True)
class CStepper:
    """C MuJoCo with many worlds on all cores of the host; implements `Stepper`, for CPUs and for comparison."""

    compiled: mujoco.MjModel
    _pool: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def step(self, raw: RawState, forces: jax.Array, parameters: WorldParameters) -> RawState:
        """See `Stepper.step`."""
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), raw)
        return jax.pure_callback(
            self._on_host, like, raw, forces, parameters.friction_scale, parameters.mass_scale, vmap_method="sequential"
        )

    def _on_host(self, raw: RawState, forces: Any, friction_scale: Any, mass_scale: Any) -> RawState:
        qpos, qvel, warm, forces = (np.asarray(x, np.float64).T for x in (raw.qpos, raw.qvel, raw.warmstart, forces))
        worlds = len(qpos)
        if "datas" not in self._pool:
            self._pool["datas"] = [mujoco.MjData(self.compiled) for _ in range(os.cpu_count() or 1)]
        models, datas = self._models(np.asarray(friction_scale), np.asarray(mass_scale)), self._pool["datas"]
        state = np.concatenate([np.zeros((worlds, 1)), qpos, qvel], axis=1)
        after = np.asarray(
            rollout.rollout(models, datas, state, forces[:, None], initial_warmstart=warm, persistent_pool=True)[0]
        )
        nq = self.compiled.nq
        qvel_after = after[:, 0, 1 + nq : 1 + nq + self.compiled.nv]
        # the solver of the next step begins at the acceleration of this one, as in `mj_step`
        acceleration = (qvel_after - qvel) / self.compiled.opt.timestep
        parts: Any = (
            np.ascontiguousarray(x.T, np.float32) for x in (after[:, 0, 1 : 1 + nq], qvel_after, acceleration)
        )
        return RawState(*parts)

    def _models(self, friction_scale: np.ndarray, mass_scale: np.ndarray) -> list[mujoco.MjModel]:
        """Return one model per world, with its friction and masses."""
        models = self._pool.setdefault("models", [])
        while len(models) < len(mass_scale):
            models.append(self.compiled.__copy__())
        base = self.compiled
        for model, friction, mass in zip(models, friction_scale, mass_scale, strict=False):
            model.geom_friction[:, 0] = base.geom_friction[:, 0] * friction
            model.body_mass[:] = base.body_mass * mass
            model.body_inertia[:] = base.body_inertia * mass
        return models[: len(mass_scale)]
