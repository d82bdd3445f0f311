"""Imports from brax, without the text that MuJoCo prints on import, and what its distributions lack."""

import contextlib
import io
from typing import Any

# brax imports mujoco.mjx, which prints that warp is missing; nothing here needs it
with contextlib.redirect_stdout(io.StringIO()):
    from brax.envs.base import Env, State
    from brax.training.acme import running_statistics, specs
    from brax.training.distribution import NormalTanhDistribution

__all__ = ["Env", "NormalTanhDistribution", "State", "gaussian_divergence", "running_statistics", "specs"]


def gaussian_divergence(distribution: NormalTanhDistribution, parameters: Any, teacher: Any) -> Any:
    """Return KL(teacher || policy) (...) of the Gaussians before the tanh, which the tanh does not change."""
    own, theirs = (distribution.create_dist(one) for one in (parameters, teacher))
    return own.kl_divergence(theirs)
