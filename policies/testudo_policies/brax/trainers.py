"""Training runs with brax's PPO and SAC, with the same run folder, network and result as `train_run`.

Both train on the shared-policy view of `BraxEnvironment`. brax returns parameters but not the state of
its learner, so a stopped run cannot be resumed.
"""

import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from testudo_hardware.errors import TestudoError
from testudo_policies.adapters.brax_env import BraxEnvironment, identity_wrapper
from testudo_policies.brax.networks import BraxNetworks
from testudo_policies.brax.session import BraxSession
from testudo_policies.distributed import DevicePlacement
from testudo_policies.learning.builder import TrainingComponents
from testudo_policies.learning.checkpoints import CheckpointError
from testudo_policies.learning.run_files import RunFiles
from testudo_policies.learning.training_run import Progress, TrainingResult
from testudo_policies.learning.world_count import explain_out_of_memory
from testudo_policies.train_config import TrainConfig

with contextlib.redirect_stdout(io.StringIO()):  # brax imports mujoco.mjx, which prints that warp is missing
    from brax.training.agents.ppo.train import train as train_ppo
    from brax.training.agents.sac.checkpoint import load as load_sac
    from brax.training.agents.sac.train import train as train_sac

TRAINERS = ("testudo", "brax-ppo", "brax-sac")
_SAC_REPORTS = 20  # reports of a SAC run; at each, brax evaluates episodes to their time limit
_SAC_WORLDS = 16  # worlds of each evaluation
_SAC_MEMORY = 2**18  # transitions in the replay buffer (170 MB for four robots)
_SAC_FIRST = 8  # decisions of every robot before the first gradient step


def prepared(config: TrainConfig) -> tuple[TrainConfig, str]:
    """Return a configuration that its trainer can run, and a message about the change (empty without one).

    Raises:
        TestudoError: the trainer is unknown.
    """
    if config.trainer not in TRAINERS:
        raise TestudoError(f"--trainer: found {config.trainer!r}, expected one of {', '.join(TRAINERS)}")
    if config.trainer == "testudo" or not config.memory:
        return config, ""
    return replace(config, memory=0), f"{config.trainer} trains policies without memory: --memory is 0 in this run"


def train_run_with_brax(
    components: TrainingComponents, folder: Path, on_progress: Callable[[Progress], None] | None = None
) -> TrainingResult:
    """Train in a run folder with the trainer that the configuration names; see `train_run`.

    Ctrl-C saves the state of the last report. A finished run is not changed.

    Raises:
        CheckpointError: the folder holds another run, or a stopped one.
        TestudoError: the policy has a memory, there are several processes, or device memory is too small.
    """
    config = components.config
    _check(config)
    placement = DevicePlacement.create(config)
    with (
        RunFiles(folder, components.learner, placement) as files,
        explain_out_of_memory(config),
        jax.default_matmul_precision(config.precision),
    ):
        before = files.restore()
        done = 0 if before is None else int(before.updates)
        if before is not None and done == config.updates:
            return TrainingResult(placement.gather(before.parameters), done, finished=True, compile_s=0.0, seconds=0.0)
        if done:
            raise CheckpointError(
                f"{folder}: {config.trainer} stopped at update {done} of {config.updates} and cannot be resumed: "
                "brax saves no state of its learner; evaluate or export this run, or train into another folder"
            )
        environment = BraxEnvironment(components.environment, central=config.networks.central_critic)
        networks = BraxNetworks.of(components.agent, environment.view)
        learn = _ppo if config.trainer == "brax-ppo" else _sac
        with files.log(0) as log, replication_for_brax():
            assert log is not None  # noqa: S101 -- process 0, the only one
            session = BraxSession(components, networks, files, log, on_progress)
            try:
                learn(config, environment, networks, session)
            except KeyboardInterrupt:
                if not session.updates:
                    raise
                return session.result(finished=False)
            return session.result(finished=True)


def _check(config: TrainConfig) -> None:
    if config.memory:
        raise TestudoError(
            f"--memory: found {config.memory}, expected 0: {config.trainer} trains policies without memory"
        )
    if config.until:
        raise TestudoError(f"--until: found {config.until!r}, expected none: {config.trainer} runs to its last update")
    if jax.process_count() > 1:
        raise TestudoError(f"--processes: found {jax.process_count()}, expected 1 for {config.trainer}")


def _ppo(config: TrainConfig, environment: BraxEnvironment, networks: BraxNetworks, session: BraxSession) -> None:
    """Run brax's PPO; one of its training steps is one update of the configuration."""
    robots = config.worlds * config.team_size

    def report(step: int, metrics: Mapping[str, Any]) -> None:
        # brax reports either episodes, from its own thread, or losses
        if any(name.startswith("episode/") for name in metrics):
            session.see_episodes(metrics, "episode/")
        else:
            jax.effects_barrier()
            session.report(step // (robots * config.rollout), metrics)

    train_ppo(
        environment,
        config.updates * robots * config.rollout,
        wrap_env_fn=cast(Any, identity_wrapper),
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
        # brax halves this coefficient
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
    """Run brax's SAC: after each decision it takes as many gradient steps as PPO after each rollout.

    Its critics do not fit into an `AgentParameters` and are not saved.
    """
    robots = config.worlds * config.team_size
    steps = config.updates * robots * config.rollout
    horizon = environment.view.environment.horizon
    first = min(_SAC_FIRST * robots, steps - robots)
    if first <= 0:
        raise TestudoError(
            f"--decisions: found {config.decisions}, expected more than one decision of each world for brax-sac"
        )
    critic = session.blank.critic

    with tempfile.TemporaryDirectory() as checkpoints:

        def report(step: int, metrics: Mapping[str, Any]) -> None:
            if step:
                statistics, actor = cast(Any, load_sac)(Path(checkpoints) / f"{step:012d}")
                session.learned(statistics, actor, critic)
                session.see_episodes(metrics, "eval/episode_")
                session.report(min(step // (robots * config.rollout), config.updates), metrics)

        train_sac(
            environment,
            steps,
            horizon,
            wrap_env_fn=cast(Any, identity_wrapper),
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
            checkpoint_logdir=checkpoints,
        )


NAME = "device_put_replicated"
_AXIS = "i"  # brax's name of its device axis; with another name JAX would compile brax's programs twice


def device_put_replicated(value: Any, devices: Sequence[Any]) -> Any:
    """Return every array of a tree replicated on all devices: leaves (devices, ...), one row on each."""
    sharding = NamedSharding(Mesh(list(devices), (_AXIS,)), PartitionSpec(_AXIS))

    def replicated(leaf: Any) -> jax.Array:
        array = jnp.asarray(leaf)
        return jax.device_put(jnp.broadcast_to(array, (len(devices), *array.shape)), sharding)

    return jax.tree.map(replicated, value)


@contextlib.contextmanager
def replication_for_brax() -> Iterator[None]:
    """Add `jax.device_put_replicated`, which brax 0.14 calls and JAX 0.12 lacks; a JAX that has it keeps its own.

    A test reports when a version of brax or JAX makes this unnecessary.
    """
    if hasattr(jax, NAME):
        yield
        return
    setattr(jax, NAME, device_put_replicated)
    try:
        yield
    finally:
        delattr(jax, NAME)
