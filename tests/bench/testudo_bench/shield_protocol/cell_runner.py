"""Runs the cells of the protocol: one compiled program per setting, episodes in chunks of worlds."""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np

from testudo_bench.shield_protocol.batch_episode import STILL_S, Course, begin, run_ticks
from testudo_bench.shield_protocol.compiled_setting import CompiledStage, Setting, build_stage, ticks
from testudo_bench.shield_protocol.policy_commands import ProtocolPolicy, Steps, policy_steps
from testudo_bench.shield_protocol.protocol_cell import Commands, ProtocolCell
from testudo_bench.shield_protocol.world_batch import Batch, CellEpisode, draw_batch
from testudo_sim.physics_choice import PhysicsChoice

_SEGMENT_S = 2.5  # Interval at which a chunk is checked for completion
_ROBOTS_AT_ONCE = 4096  # robots in a chunk: a tick of few robots costs nearly as much as one of many
_WORLDS = (32, 1024)  # least and largest number of worlds in a chunk
_WORKERS = len(os.sched_getaffinity(0))  # threads that compile and run cells


@dataclass(frozen=True)
class CellOutcome:
    """Counts of n episodes of one cell, (n,) each."""

    contacts: np.ndarray  # Physics steps with pairs in contact
    fast_contacts: np.ndarray
    separation_m: np.ndarray
    arrived_s: np.ndarray  # Arrival time; infinite without arrival
    deadlocked: np.ndarray
    changed_share: np.ndarray  # Share of robot-ticks with a changed command
    change_m_s: np.ndarray  # Mean size of the changes of commands
    braked: np.ndarray  # Number of robots that braked from speed
    alarms: np.ndarray  # Number of robots with a brake alarm

    def __add__(self, other: "CellOutcome") -> "CellOutcome":
        """Concatenate the episodes of both."""
        return CellOutcome(
            *(np.concatenate(pair) for pair in zip(vars(self).values(), vars(other).values(), strict=True))
        )


@dataclass
class Tables:
    """Results so far; filled by several threads."""

    outcomes: dict[tuple[str, ProtocolCell], CellOutcome] = field(default_factory=dict)  # Outcomes by tier and cell
    compile_s: float = 0.0  # sum of the compile times of all programs, which are compiled in parallel
    robot_ticks: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    host: threading.Lock = field(default_factory=threading.Lock)
    """C MuJoCo has one thread pool, for one program at a time."""
    fast_compile: bool = False  # compile with less optimisation: a third less compile time, a third slower runs

    def add(self, tier: str, cell: ProtocolCell, outcome: CellOutcome) -> None:
        """Add episodes of a cell."""
        with self.lock:
            before = self.outcomes.get((tier, cell))
            self.outcomes[tier, cell] = before + outcome if before else outcome


@dataclass(frozen=True)
class Job:
    """A cell to run."""

    cell: ProtocolCell
    episodes: int
    choice: PhysicsChoice = PhysicsChoice()


def run_jobs(
    jobs: Sequence[Job],
    say: Callable[[str], None],
    tables: Tables,
    policies: Mapping[Commands, ProtocolPolicy] = MappingProxyType({}),
    save: Callable[[], None] = lambda: None,
) -> None:
    """Run all episodes of the jobs; ``tables`` is filled during the run, so that an interrupt loses nothing.

    ``policies`` has the policy of each kind of `Commands` that the cells need, other than the straight ones; ``save``
    is called after every chunk of episodes, by one thread at a time.
    """
    groups: dict[Setting, list[CellEpisode]] = defaultdict(list)
    for job in jobs:
        groups[Setting.of(job.cell, job.choice)] += [CellEpisode(job.cell, number) for number in range(job.episodes)]
    # longest first, so that no core is idle at the end
    order = sorted(groups, key=lambda setting: -setting.size * len(groups[setting]))
    done, total = 0, sum(len(group) for group in groups.values())
    with ThreadPoolExecutor(_WORKERS) as pool:
        pending = {
            pool.submit(_run_group, setting, groups[setting], tables, policies.get(setting.commands), save): setting
            for setting in order
        }
        try:
            for future in as_completed(pending):
                future.result()
                done += len(groups[pending[future]])
                say(f"{done} of {total} episodes; last {pending[future].describe()}")
        except BaseException:
            tables.stop.set()
            for future in pending:
                future.cancel()
            raise


def _run_group(
    setting: Setting,
    episodes: list[CellEpisode],
    tables: Tables,
    policy: ProtocolPolicy | None,
    save: Callable[[], None],
) -> None:
    """Run all episodes of one setting, and save after each chunk; the policy is None for straight commands."""
    if tables.stop.is_set():
        return
    stage = build_stage(setting)
    episodes = sorted(episodes, key=lambda episode: (episode.cell.horizon_s, episode.cell.name))
    worlds = min(max(_WORLDS[0], min(_ROBOTS_AT_ONCE // setting.size, _WORLDS[1])), -(-len(episodes) // 4) * 4)
    chunks = [episodes[at : at + worlds] for at in range(0, len(episodes), worlds)]
    first = _padded(chunks[0], worlds)
    began = time.perf_counter()
    batch, seed = draw_batch(stage, first), jnp.uint32(0)
    starter = jax.jit(partial(begin, stage)).lower(batch, seed).compile(_optimise(0))
    course = starter(batch, seed)
    begins = _steps(stage, course, policy, _optimise(1) if tables.fast_compile else None)
    with tables.lock:
        tables.compile_s += time.perf_counter() - began
    for number, chunk in enumerate(chunks):
        with tables.host if setting.choice.physics == "mujoco" else nullcontext():
            if not _run_chunk(stage, chunk, starter, begins(), (worlds, number), tables):
                return
        with tables.lock:
            save()


def _steps(
    stage: CompiledStage, course: Course, policy: ProtocolPolicy | None, options: dict[str, int] | None
) -> Callable[[], Steps]:
    """Return a function that gives the steps of a chunk."""
    if policy is not None:
        return policy_steps(stage, policy, course, options)
    segment = ticks(_SEGMENT_S, stage.spec)
    program = jax.jit(partial(run_ticks, stage, ticks=segment), donate_argnums=0).lower(course).compile(options)
    return lambda: program


def _run_chunk(
    stage: CompiledStage,
    chunk: list[CellEpisode],
    starter: Callable[..., Course],
    step: Steps,
    at: tuple[int, int],
    tables: Tables,
) -> bool:
    """Run one chunk; return whether it was completed."""
    worlds, number = at
    batch: Batch = draw_batch(stage, _padded(chunk, worlds))
    course = starter(batch, jnp.uint32(number))
    while not bool(jnp.all(course.tally.over)):
        if tables.stop.is_set():
            return False
        course = step(course)
    with tables.lock:
        tables.robot_ticks += float(course.world.number) * worlds * stage.team.size
    period, tally = stage.spec.control_period_s, course.tally
    arrived = np.asarray(tally.arrived_tick)
    live = ~np.asarray(course.batch.hostile | course.batch.gone)
    still = np.asarray(tally.still) * period > STILL_S
    changed, robot_ticks = np.asarray(tally.changed), np.asarray(tally.robot_ticks)
    result = CellOutcome(
        np.asarray(tally.contacts),
        np.asarray(tally.fast_contacts),
        np.asarray(tally.separation_m),
        np.where(arrived >= 0, arrived * period, np.inf),
        np.all(still | ~live, axis=0) & (arrived < 0),
        changed / robot_ticks * stage.setting.stride,
        np.asarray(tally.change_m_s) / np.maximum(changed, 1),
        np.sum(np.asarray(tally.braked), axis=0),
        np.sum(np.asarray(tally.alarmed), axis=0),
    )
    for cell in dict.fromkeys(episode.cell for episode in chunk):
        mine = [index for index, episode in enumerate(chunk) if episode.cell == cell]
        tables.add(stage.setting.choice.physics, cell, CellOutcome(*(values[mine] for values in vars(result).values())))
    return True


def _optimise(level: int) -> dict[str, int]:
    """Return the compiler option for an XLA optimisation level (0 to 3)."""
    return {"xla_backend_optimization_level": level}


def _padded(chunk: list[CellEpisode], worlds: int) -> list[CellEpisode]:
    """Return the chunk with copies of its last episode, so that all chunks run the same program."""
    return chunk + [chunk[-1]] * (worlds - len(chunk))
