"""Physics steps by MJX, MuJoCo under JAX."""

import contextlib
import importlib.util
import io
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import mujoco

from testudo_hardware.errors import TestudoError
from testudo_sim.physics.mujoco_tier import RawState
from testudo_sim.physics.world_parameters import WorldParameters

with contextlib.redirect_stdout(io.StringIO()):  # the import prints a text if warp is missing
    from mujoco import mjx


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


def choose_impl(wanted: str) -> str:
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
