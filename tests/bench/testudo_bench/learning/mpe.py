"""`testudo bench mpe`: Testudo's PPO beside JaxMARL's IPPO, on a particle world of JaxMARL and on `navigation`.

JaxMARL's feed-forward IPPO runs unchanged from its script. Both learners have its networks, its worlds and its sizes;
they are trained in turn, and their policies tried in the same episodes.
"""

import functools
import importlib
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import jax.numpy as jnp

from testudo_bench.learning.foreign_worlds import ppo_on, scores_of
from testudo_deploy.commands.report import BenchResult
from testudo_hardware.errors import TestudoError
from testudo_policies.adapters.jaxmarl_env import MultiAgentTeam
from testudo_policies.learning.builder import build
from testudo_policies.train_config import TrainConfig
from testudo_sim.devices import devices

_SPREAD, _NAVIGATION = "spread", "navigation"
SCENARIOS = (_SPREAD, _NAVIGATION)
COLUMNS = ("learner", "seed", "steps/s of processor time", "return, drawn", "return, best action", "compile")
SCRIPT = Path("baselines/IPPO/ippo_ff_mpe.py")
SIZES = {  # ippo_ff_mpe.yaml of JaxMARL; the annealing of its learning rate ends at 0
    "LR": 2.5e-4,
    "NUM_ENVS": 16,
    "NUM_STEPS": 128,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh",
    "ANNEAL_LR": True,
    "ENV_KWARGS": {},
}
_WORLD = "MPE_simple_spread_v3"
_TRIALS = 1024  # episodes in which a policy is tried
_TRIAL_SEED = 1_000_003


@dataclass(frozen=True)
class Training:
    """One training and the trial of its policy."""

    learner: str
    seed: int
    steps: int  # of environments
    processor_s: float  # without compilation
    wall_s: float
    compile_s: float
    drawn: float  # mean return of a robot in an episode, actions drawn from the policy
    best: float  # the same, always its most likely action

    @property
    def rate(self) -> float:
        """Return environment steps per second of processor time."""
        return self.steps / self.processor_s


Scores = Callable[[jax.Array], jax.Array]
"""From observations (B, F) to scores (B, K) of the actions."""


def bench_mpe(
    *,
    scripts: Path,
    scenario: str = _SPREAD,
    decisions: int = 2_000_000,
    repeats: int = 3,
    say: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Train Testudo's PPO and JaxMARL's IPPO in turn; compare returns, and steps per second of processor time.

    Args:
        scripts: folder of JaxMARL's repository, with its `baselines`.
        scenario: `spread`: three particles of JaxMARL cover three landmarks; `navigation`: that of Testudo for both,
            three robots with way-points, by the adapter.
        decisions: environment decisions of each training.
        repeats: seeds of each learner.
        say: called with progress messages.

    Raises:
        TestudoError: JaxMARL or what its script needs is not installed, or ``scripts`` does not hold it.
    """
    size = SIZES["NUM_ENVS"] * SIZES["NUM_STEPS"]
    if scenario not in SCENARIOS:
        raise TestudoError(f"--scenario: found {scenario!r}, expected one of {', '.join(SCENARIOS)}")
    if decisions < size or repeats < 1:
        raise TestudoError(f"--decisions, --repeats: found {decisions}, {repeats}, expected at least {size} and 1")
    script = script_of(scripts)
    environment = _environment(scenario)
    learners = [
        ("Testudo PPO", functools.partial(_ours, environment)),
        ("JaxMARL IPPO", theirs_with(script, scenario)),
    ]
    found = []
    for seed in range(repeats):
        # the order alternates, so that neither always has the machine as the other leaves it
        for name, train in learners if seed % 2 == 0 else learners[::-1]:
            say(f"{name}, seed {seed}, {decisions:,} decisions")
            scores, (steps, processor_s, wall_s, compile_s) = train(decisions, seed)
            drawn, best = trial(environment, scores, drawn=True), trial(environment, scores, drawn=False)
            found.append(Training(name, seed, steps, processor_s, wall_s, compile_s, drawn, best))
    return _result(scenario, found)


def _result(scenario: str, found: list[Training]) -> BenchResult:
    names = list(dict.fromkeys(one.learner for one in found))
    medians = {
        name: {
            field: statistics.median(getattr(one, field) for one in found if one.learner == name)
            for field in ("rate", "drawn", "best")
        }
        for name in names
    }
    ours, theirs = medians["Testudo PPO"], medians["JaxMARL IPPO"]
    rows = [
        (
            one.learner,
            str(one.seed),
            f"{one.rate:,.0f}",
            f"{one.drawn:.2f}",
            f"{one.best:.2f}",
            f"{one.compile_s:.0f} s",
        )
        for one in found
    ]
    rows += [(name, "median", *_figures(**each), "") for name, each in medians.items()]
    here = devices()
    values = {
        "scenario": scenario,
        "device": here.to_dict(),
        "trainings": [asdict(one) | {"steps_per_processor_s": one.rate} for one in found],
        "medians": medians,
        "speed_ratio": ours["rate"] / theirs["rate"],
    }
    title = f"{scenario}: the same networks and sizes, {_TRIALS:,} episodes each, {here.text}"
    return BenchResult(title, COLUMNS, rows, values)


def _figures(rate: float, drawn: float, best: float) -> tuple[str, str, str]:
    return f"{rate:,.0f}", f"{drawn:.2f}", f"{best:.2f}"


def _environment(scenario: str) -> Any:
    if scenario == _NAVIGATION:
        return MultiAgentTeam(build(TrainConfig(team_size=3, command="waypoints")).environment)
    return importlib.import_module("jaxmarl").make(_WORLD)


def config_of(steps: int, seed: int) -> TrainConfig:
    """Return the configuration of Testudo's PPO: JaxMARL's sizes, and the learning rate of its own."""
    return TrainConfig(
        algorithm="ippo",
        team_size=3,
        worlds=SIZES["NUM_ENVS"],
        rollout=SIZES["NUM_STEPS"],
        decisions=steps,
        epochs=SIZES["UPDATE_EPOCHS"],
        minibatches=SIZES["NUM_MINIBATCHES"],
        discount=SIZES["GAMMA"],
        trace=SIZES["GAE_LAMBDA"],
        clip=SIZES["CLIP_EPS"],
        entropy=SIZES["ENT_COEF"],
        value_weight=SIZES["VF_COEF"],
        max_gradient=SIZES["MAX_GRAD_NORM"],
        memory=0,
        seed=seed,
    )


Times = tuple[int, float, float, float]
"""Steps, processor time [s], wall time [s], time of compilation [s]."""


def _ours(environment: Any, steps: int, seed: int) -> tuple[Scores, Times]:
    learner = ppo_on(environment, config_of(steps, seed))
    begin = time.perf_counter()
    state = learner.start(jax.random.key(seed))
    update = jax.jit(learner.update).lower(state).compile()
    compile_s = time.perf_counter() - begin
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(learner.config.updates):
        state, _figures = update(state)
    parameters = jax.block_until_ready(state.parameters)
    took = time.process_time() - processor, time.perf_counter() - wall
    scores = functools.partial(scores_of, learner.agent, parameters)
    done = learner.config.updates * learner.config.worlds * learner.config.rollout
    return scores, (done, *took, compile_s)


def theirs_with(script: Any, scenario: str) -> Callable[[int, int], tuple[Scores, Times]]:
    """Return the training of JaxMARL's script, by decisions and seed."""

    def train(steps: int, seed: int) -> tuple[Scores, Times]:
        config = dict(SIZES, ENV_NAME=_WORLD, TOTAL_TIMESTEPS=steps, SEED=seed)
        with _made(script, scenario):  # it logs in the course of the training
            program = jax.jit(script.make_train(config))
            begin = time.perf_counter()
            compiled = program.lower(jax.random.PRNGKey(seed)).compile()
            compile_s = time.perf_counter() - begin
            wall, processor = time.perf_counter(), time.process_time()
            result = jax.block_until_ready(compiled(jax.random.PRNGKey(seed)))
            jax.effects_barrier()
            took = time.process_time() - processor, time.perf_counter() - wall
        state = result["runner_state"][0]

        def scores(observation: jax.Array) -> jax.Array:
            return state.apply_fn(state.params, observation)[0].logits

        return scores, (config["NUM_UPDATES"] * SIZES["NUM_ENVS"] * SIZES["NUM_STEPS"], *took, compile_s)

    return train


@contextmanager
def _made(script: Any, scenario: str) -> Iterator[None]:
    """Let the script make the environment of the scenario, and log nothing."""
    make, logged = script.jaxmarl.make, script.wandb
    script.wandb = SimpleNamespace(log=lambda _: None)
    if scenario == _NAVIGATION:
        script.jaxmarl.make = lambda *_, **__: _environment(scenario)
    try:
        yield
    finally:
        script.jaxmarl.make, script.wandb = make, logged


def script_of(folder: Path) -> Any:
    """Return JaxMARL's training script, a module.

    Raises:
        TestudoError: the folder does not hold it, or what it imports is not installed.
    """
    path = folder / SCRIPT
    if not path.is_file():
        raise TestudoError(f"--scripts {folder}: {SCRIPT} is missing; give a folder with JaxMARL's repository")
    spec = importlib.util.spec_from_file_location("jaxmarl_ippo_ff_mpe", path)
    assert spec is not None  # a file that exists
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        cast(Any, spec.loader).exec_module(module)
    except ImportError as error:
        raise TestudoError(
            f"testudo bench mpe: found no {error.name}, which JaxMARL's script needs; section JaxMARL of "
            "docs/adapters.md names what to install"
        ) from error
    return module


def trial(environment: Any, scores: Scores, *, drawn: bool, episodes: int = _TRIALS) -> float:
    """Return the mean return of a robot over first episodes of fresh worlds, the same for every policy."""
    agents = environment.agents
    reset_key, key = jax.random.split(jax.random.PRNGKey(_TRIAL_SEED))

    def step(carry: Any, step_key: jax.Array) -> Any:
        observations, state, alive, total = carry
        action_key, world_key = jax.random.split(step_key)
        logits = jnp.stack([scores(observations[agent]) for agent in agents])
        choice = jax.random.categorical(action_key, logits) if drawn else jnp.argmax(logits, axis=-1)
        actions = dict(zip(agents, choice, strict=True))
        world_keys = jax.random.split(world_key, episodes)
        observations, state, rewards, dones, _ = jax.vmap(environment.step_env)(world_keys, state, actions)
        total += jnp.where(alive, jnp.mean(jnp.stack([rewards[agent] for agent in agents]), axis=0), 0.0)
        return (observations, state, alive & ~dones["__all__"], total), None

    @jax.jit
    def run() -> jax.Array:
        observations, state = jax.vmap(environment.reset)(jax.random.split(reset_key, episodes))
        first = (observations, state, jnp.ones(episodes, bool), jnp.zeros(episodes))
        (_, _, _, total), _ = jax.lax.scan(step, first, jax.random.split(key, _longest(environment)))
        return jnp.mean(total)

    return float(run())


def _longest(environment: Any) -> int:
    """Return the decisions in an episode."""
    view = getattr(environment, "view", None)
    return int(environment.max_steps) + 1 if view is None else int(view.environment.horizon)
