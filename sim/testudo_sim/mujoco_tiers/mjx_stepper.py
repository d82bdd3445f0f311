"""MuJoCo steps by MJX: under jit, vmap and scan, on any device that JAX has."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import jax
import jax.numpy as jnp
import mujoco

from testudo_hardware.errors import TestudoError
from testudo_sim.mujoco_tiers.tier import RawState
from testudo_sim.parameters import WorldParameters

with contextlib.redirect_stdout(io.StringIO()):  # it prints where warp is missing; nothing needs it
    from mujoco import mjx

Impl = Literal["auto", "jax", "warp"]


@dataclass(frozen=True)
class MjxStepper:
    """Implements `Stepper`; ``impl`` is `jax` or `warp`."""

    compiled: mujoco.MjModel
    impl: str

    def step(self, raw: RawState, forces: jax.Array, parameters: WorldParameters) -> RawState:
        """See `Stepper.step`."""
        return jax.vmap(self._step, in_axes=-1, out_axes=-1)(
            raw, forces, parameters.friction_scale, parameters.mass_scale)

    def _step(self, raw: RawState, forces: jax.Array, friction_scale: jax.Array, mass_scale: jax.Array) -> RawState:
        base = self._model
        model = base.tree_replace({
            "geom_friction": base.geom_friction * jnp.stack([friction_scale, 1.0, 1.0]),
            "body_mass": base.body_mass * mass_scale,
            "body_inertia": base.body_inertia * mass_scale,
        })
        data = self._blank.replace(qpos=raw.qpos, qvel=raw.qvel, qacc_warmstart=raw.warmstart, ctrl=forces)
        data = mjx.step(model, data)
        return RawState(data.qpos, data.qvel, data.qacc_warmstart)

    @cached_property
    def _model(self) -> Any:
        with jax.ensure_compile_time_eval():
            return mjx.put_model(self.compiled, impl=self.impl)

    @cached_property
    def _blank(self) -> Any:
        with jax.ensure_compile_time_eval():
            return mjx.make_data(self.compiled, impl=self.impl)


def choose_impl(wanted: Impl) -> str:
    """Return `warp` on an NVIDIA device with mujoco-warp installed, else `jax`, unless one is asked for.

    Raises:
        TestudoError: `warp` is asked for where it cannot run.
    """
    nvidia = jax.default_backend() == "gpu" and "nvidia" in jax.devices()[0].device_kind.lower()
    installed = importlib.util.find_spec("warp") is not None
    if wanted == "warp" and not (nvidia and installed):
        raise TestudoError("--impl warp: needs an NVIDIA device and mujoco-warp (the extra `gpu`), found "
                           f"{jax.default_backend()}, warp {'installed' if installed else 'missing'}; use --impl jax")
    if wanted != "auto":
        return wanted
    return "warp" if nvidia and installed else "jax"
