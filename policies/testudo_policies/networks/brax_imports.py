"""Imports from brax, without the text that MuJoCo prints on import."""

import contextlib
import io

# brax imports mujoco.mjx, which prints that warp is missing; nothing here needs it
with contextlib.redirect_stdout(io.StringIO()):
    from brax.envs.base import Env, State
    from brax.training.acme import running_statistics, specs
    from brax.training.distribution import NormalTanhDistribution

__all__ = ["Env", "NormalTanhDistribution", "State", "running_statistics", "specs"]
