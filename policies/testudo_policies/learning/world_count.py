"""The largest number of parallel worlds, from the memory of the compiled update."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax

from testudo_hardware.errors import TestudoError
from testudo_policies.distributed import DevicePlacement
from testudo_policies.learning.shared_trunk import build_run
from testudo_policies.train_config import TrainConfig
from testudo_sim.devices import Devices, devices

_SAMPLE_WORLDS = 256  # worlds of the sample update that is compiled to measure memory per world
_SHARE = 0.8  # usable share of a device's memory; the rest is for what the compiler does not report
_LEAST_UPDATES = 50  # fewest updates that a run should have to learn
_MOST = {"cpu": 256}  # worlds per device beyond which a step only gets slower (measured on two cores)
_MOST_ELSEWHERE = 65_536  # largest number of worlds measured by `testudo bench gpu`


@dataclass(frozen=True)
class Sizing:
    """A number of worlds and the reason for it."""

    worlds: int
    reason: str


def choose_worlds(config: TrainConfig) -> Sizing:
    """Return the number of parallel worlds: a power of two for each device.

    The update is compiled once for one device, and the memory that XLA reports is scaled.

    Raises:
        TestudoError: the configuration is invalid, or not even one world fits.
    """
    found = devices()
    return largest_that_fits(config, found, bytes_per_world(config))


def sized(config: TrainConfig, say: Callable[[str], None]) -> TrainConfig:
    """Return the configuration with a chosen number of worlds if it is 0; ``say`` gets the reason.

    Raises:
        TestudoError: see `choose_worlds`.
    """
    if config.worlds:
        return config
    sizing = choose_worlds(config)
    say(sizing.reason)
    return replace(config, worlds=sizing.worlds)


def bytes_per_world(config: TrainConfig) -> int:
    """Return the memory of the update per world [bytes]: inputs, outputs and temporary arrays."""
    sample = replace(config, worlds=_SAMPLE_WORLDS, minibatches=1)
    learner: Any = build_run(sample).learner
    state = jax.eval_shape(learner.init, jax.random.key(0))
    with explain_out_of_memory(sample):
        needs = jax.jit(learner.update).lower(state).compile().memory_analysis()
    if needs is None:
        raise TestudoError("--worlds 0: found no memory analysis on this backend; give a number of worlds")
    total = needs.argument_size_in_bytes + needs.output_size_in_bytes + needs.temp_size_in_bytes
    return max(1, total // _SAMPLE_WORLDS)


def largest_that_fits(config: TrainConfig, found: Devices, world_bytes: int) -> Sizing:
    """Return the largest number of worlds within memory, run length and useful device load.

    Raises:
        TestudoError: not even one world for each device fits.
    """
    per_update = config.rollout * found.count
    most = _MOST.get(found.platform, _MOST_ELSEWHERE)
    bounds = {
        "more would not fit into device memory": int(_SHARE * found.memory_bytes) // world_bytes,
        f"more would leave fewer than {_LEAST_UPDATES} updates of --decisions {config.decisions}": max(
            1, config.decisions // (per_update * _LEAST_UPDATES)
        ),
        "more per device only make a step slower": most,
    }
    reason = min(bounds, key=bounds.__getitem__)
    each = 1 << max(0, bounds[reason].bit_length() - 1)
    if bounds[reason] < 1 or not _divides(config, each, found.count):
        raise TestudoError(
            f"--worlds: {each} on each of {found.count} devices, a world of {world_bytes:,} bytes, do not fit: "
            f"{reason}; give fewer --minibatches, a shorter --rollout or --worlds itself"
        )
    gib = each * world_bytes / 2**30
    where = f" on each of {found.count} devices" if found.count > 1 else ""
    return Sizing(
        each * found.count,
        f"--worlds {each * found.count}: {gib:.2f} of {found.memory_bytes / 2**30:.1f} GiB{where}; {reason}",
    )


@contextmanager
def explain_out_of_memory(config: TrainConfig) -> Iterator[None]:
    """Replace XLA's out-of-memory error by a short one.

    Raises:
        TestudoError: device memory is too small.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise TestudoError(
            f"--worlds: the memory of {devices().text.removeprefix('device ')} is too small for "
            f"{config.worlds} worlds; try --worlds {max(1, config.worlds // 2)} in a new run, or 0 for an "
            f"automatic choice"
        ) from error


def _divides(config: TrainConfig, each: int, count: int) -> bool:
    whole = replace(config, worlds=each * count)
    robots = whole.worlds * config.team_size
    return robots % config.minibatches == 0 and DevicePlacement.shares(whole, count) == count
