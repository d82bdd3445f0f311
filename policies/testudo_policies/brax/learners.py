"""brax's own trainers and what they are given, imported without what MuJoCo prints on the way."""

from __future__ import annotations

import contextlib
import io

with contextlib.redirect_stdout(io.StringIO()):
    from brax.training.agents.ppo.networks import PPONetworks
    from brax.training.agents.ppo.train import train as train_ppo
    from brax.training.agents.sac.checkpoint import load as load_sac
    from brax.training.agents.sac.networks import SACNetworks
    from brax.training.agents.sac.train import train as train_sac
    from brax.training.networks import FeedForwardNetwork
    from brax.training.types import identity_observation_preprocessor as unchanged

__all__ = ["FeedForwardNetwork", "PPONetworks", "SACNetworks", "load_sac", "train_ppo", "train_sac", "unchanged"]
