"""Physics steps by C MuJoCo, the reference, and by MJX."""

import contextlib
import importlib.util
import io
import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import rollout

from testudo_hardware.errors import TestudoError
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


with contextlib.redirect_stdout(io.StringIO()):  # the import prints a text if warp is missing
    from mujoco import mjx

Impl = Literal["auto", "jax", "warp"]


@dataclass(frozen=True)
class MjxStepper:
    """MJX; implements `Stepper`; ``impl`` is `jax` or `warp`."""

    compiled: mujoco.MjModel
    impl: str

    def step(self, raw: RawState, forces: jax.Array, parameters: WorldParameters) -> RawState:
        """See `Stepper.step`."""
        blank = self._blank(forces.shape[-1])

        def step(*world: Any) -> RawState:
            return self._step(blank, *world)

        return jax.vmap(step, in_axes=-1, out_axes=-1)(raw, forces, parameters.friction_scale, parameters.mass_scale)

    def _step(
        self, blank: Any, raw: RawState, forces: jax.Array, friction_scale: jax.Array, mass_scale: jax.Array
    ) -> RawState:
        base = self._model
        model = base.tree_replace(
            {
                "geom_friction": base.geom_friction * jnp.stack([friction_scale, 1.0, 1.0]),
                "body_mass": base.body_mass * mass_scale,
                "body_inertia": base.body_inertia * mass_scale,
            }
        )
        data = blank.replace(qpos=raw.qpos, qvel=raw.qvel, qacc_warmstart=raw.warmstart, ctrl=forces)
        data = mjx.step(model, data)
        return RawState(data.qpos, data.qvel, data.qacc_warmstart)

    @cached_property
    def _model(self) -> Any:
        with jax.ensure_compile_time_eval():
            return mjx.put_model(self._own, impl=self.impl)

    def _blank(self, worlds: int) -> Any:
        """Return data at rest; that of warp has space for all possible contacts of the worlds."""
        with jax.ensure_compile_time_eval():
            room: Any = mjx.make_data(self._own, impl="jax")
            if self.impl == "jax":
                return room
            # without space warp drops contacts; the JAX implementation has their largest number
            contacts, rows = room._impl.contact.dist.shape[0], room._impl.efc_J.shape[0]  # noqa: SLF001
            return mjx.make_data(self._own, impl=self.impl, naconmax=contacts * worlds, njmax=rows)

    @cached_property
    def _own(self) -> mujoco.MjModel:
        model = self.compiled.__copy__()
        # MJX never resets by itself, and warp does not know this flag
        model.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
        return model


def choose_impl(wanted: Impl) -> str:
    """Return `warp` on an NVIDIA device with mujoco-warp installed, else `jax`, unless one is given.

    Raises:
        TestudoError: `warp` is given and not installed.
    """
    nvidia = jax.default_backend() == "gpu" and "nvidia" in jax.devices()[0].device_kind.lower()
    installed = importlib.util.find_spec("warp") is not None
    if wanted == "warp" and not installed:
        raise TestudoError("--impl warp: mujoco-warp is not installed; install the extra `gpu`, or use --impl jax")
    if wanted != "auto":
        return wanted
    return "warp" if nvidia and installed else "jax"
