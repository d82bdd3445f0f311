"""Training runs by brax's own PPO and SAC: same folder, same network, same result as ours.

Both learn on the shared-policy view of `BraxEnvironment`. brax hands out parameters, not the state of
its learner, so such a run can be stopped but not gone on with.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from testudo_hardware.errors import TestudoError
from testudo_policies.adapters.brax_env import BraxEnvironment, as_it_is
from testudo_policies.brax.learners import load_sac, train_ppo, train_sac
from testudo_policies.brax.networks import BraxNetworks
from testudo_policies.brax.replicate import replication_for_brax
from testudo_policies.brax.session import BraxSession
from testudo_policies.distributed.sharding import DevicePlacement
from testudo_policies.learning.builder import TrainingComponents
from testudo_policies.learning.checkpoints import CheckpointError
from testudo_policies.learning.run_files import RunFiles
from testudo_policies.learning.training_run import Progress, TrainingResult
from testudo_policies.learning.world_count import memory_told
from testudo_policies.train_config import TrainConfig

TRAINERS = ("testudo", "brax-ppo", "brax-sac")
_SAC_REPORTS = 20
"""brax's SAC evaluates at each: episodes to their time limit."""
_SAC_WORLDS = 16
"""Worlds of such an evaluation."""
_SAC_MEMORY = 2**18
"""Transitions in the replay buffer: 170 MB for four robots."""
_SAC_FIRST = 8
"""Decisions of every robot before the first gradient step."""


def prepared(config: TrainConfig) -> tuple[TrainConfig, str]:
    """Return a configuration as its trainer can run it, and what to tell of that; nothing if it is as given.

    Raises:
        TestudoError: there is no such trainer.
    """
    if config.trainer not in TRAINERS:
        raise TestudoError(f"--trainer: found {config.trainer!r}, expected one of {', '.join(TRAINERS)}")
    if config.trainer == "testudo" or not config.memory:
        return config, ""
    return replace(config, memory=0), f"{config.trainer} trains policies without memory: --memory is 0 in this run"


def train_run_with_brax(
    workshop: TrainingComponents, folder: Path, on_progress: Callable[[Progress], None] | None = None
) -> TrainingResult:
    """Train in a run folder with the trainer that the configuration names; see `train_run`.

    Ctrl-C keeps what the last report had reached. A finished run is left as it is.

    Raises:
        CheckpointError: the folder holds another run, or one that was stopped.
        TestudoError: the policy has a memory, several processes train, or the device's memory does not suffice.
    """
    config = workshop.config
    _check(config)
    placement = DevicePlacement.create(config)
    with (
        RunFiles(folder, workshop.ppo, placement) as files,
        memory_told(config),
        jax.default_matmul_precision(config.precision),
    ):
        before = files.restore()
        done = 0 if before is None else int(before.updates)
        if before is not None and done == config.updates:
            return TrainingResult(placement.gather(before.parameters), done, finished=True, compile_s=0.0, seconds=0.0)
        if done:
            raise CheckpointError(
                f"{folder}: {config.trainer} stopped at update {done} of {config.updates} and cannot go on: brax "
                "keeps no state of its learner; evaluate or export what is there, or train into another folder"
            )
        environment = BraxEnvironment(workshop.environment, central=config.network.central_critic)
        networks = BraxNetworks.of(workshop.agent, environment.view)
        learn = _ppo if config.trainer == "brax-ppo" else _sac
        with files.log(0) as log, replication_for_brax():
            session = BraxSession(workshop, networks, files, log, on_progress)
            try:
                learn(config, environment, networks, session)
            except KeyboardInterrupt:
                if not session.updates:
                    raise
                return session.result(finished=False)
            return session.result(finished=True)


def _check(config: TrainConfig) -> None:
    if config.memory:
        raise TestudoError(f"--memory: found {config.memory}, {config.trainer} trains policies without memory: give 0")
    if jax.process_count() > 1:
        raise TestudoError(f"--processes: found {jax.process_count()}, {config.trainer} trains in one")


def _ppo(config: TrainConfig, environment: BraxEnvironment, networks: BraxNetworks, session: BraxSession) -> None:
    """Run brax's PPO with our configuration: one of its steps is one of our updates."""
    robots = config.worlds * config.team_size

    def report(step: int, metrics: dict[str, Any]) -> None:
        # brax calls with either the episodes, from a thread of its own, or the losses
        if any(name.startswith("episode/") for name in metrics):
            session.see_episodes(metrics, "episode/")
        else:
            jax.effects_barrier()
            session.report(step // (robots * config.rollout), metrics)

    train_ppo(
        environment,
        config.updates * robots * config.rollout,
        wrap_env_fn=as_it_is,
        num_envs=robots,
        episode_length=environment.view.environment.horizon,
        learning_rate=config.learning_rate,
        entropy_cost=config.entropy,
        discounting=config.discount,
        unroll_length=config.rollout,
        batch_size=robots // config.minibatches,
        num_minibatches=config.minibatches,
        num_updates_per_batch=config.epochs,
        normalize_observations=True,
        clipping_epsilon=config.clip,
        gae_lambda=config.trace,
        max_grad_norm=config.max_gradient,
        # brax halves it
        vf_loss_coefficient=2 * config.value_weight,
        network_factory=networks.for_ppo,
        seed=config.seed,
        num_evals=config.updates + 1,
        run_evals=False,
        num_eval_envs=config.team_size,
        max_devices_per_host=DevicePlacement.create(config).count,
        log_training_metrics=True,
        progress_fn=report,
        policy_params_fn=lambda _, __, learned: session.learned(*learned),
    )


def _sac(config: TrainConfig, environment: BraxEnvironment, networks: BraxNetworks, session: BraxSession) -> None:
    """Run brax's SAC: after each decision as many gradient steps as PPO takes after each rollout.

    Its critics are not those of an `AgentParameters`, and are not kept.
    """
    robots = config.worlds * config.team_size
    steps = config.updates * robots * config.rollout
    horizon = environment.view.environment.horizon
    first = min(_SAC_FIRST * robots, steps - robots)
    if first <= 0:
        raise TestudoError(f"--decisions: found {config.decisions}, brax-sac needs more than one of each world")
    critic = session.blank.critic

    with tempfile.TemporaryDirectory() as kept:

        def report(step: int, metrics: dict[str, Any]) -> None:
            if step:
                session.learned(*load_sac(Path(kept) / f"{step:012d}"), critic)
                session.see_episodes(metrics, "eval/episode_")
                session.report(min(step // (robots * config.rollout), config.updates), metrics)

        train_sac(
            environment,
            steps,
            horizon,
            wrap_env_fn=as_it_is,
            num_envs=robots,
            num_eval_envs=_SAC_WORLDS * config.team_size,
            max_devices_per_host=DevicePlacement.create(config).count,
            learning_rate=config.learning_rate,
            discounting=config.discount,
            seed=config.seed,
            batch_size=robots // config.minibatches,
            num_evals=min(_SAC_REPORTS, config.updates) + 1,
            normalize_observations=True,
            min_replay_size=first,
            max_replay_size=min(steps, max(_SAC_MEMORY, robots)),
            grad_updates_per_step=config.epochs * config.minibatches,
            deterministic_eval=True,
            network_factory=networks.for_sac,
            progress_fn=report,
            checkpoint_logdir=kept,
        )
