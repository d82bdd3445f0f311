"""A program for tests: a tiny run on several devices, or by several processes; prints one line of JSON.

Arguments: the folder and the updates; then, for several processes, address, their number and this one's.
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
from tests.policies.quick import TINY

from testudo_policies.distributed import join
from testudo_policies.learning.builder import build
from testudo_policies.learning.training_run import train_run

ROOT = Path(__file__).resolve().parents[2]


def spread(updates=3):
    """Return a configuration: four minibatches of eight robots for each update, with memory."""
    tiny = replace(TINY, worlds=8, memory=8, epochs=2)
    return replace(tiny, decisions=updates * tiny.worlds * tiny.rollout)


def start(folder, updates=3, meeting=(), devices=1):
    """Start this program with as many CPU devices, compiling as the tests do."""
    settings = {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    words = [str(word) for word in (folder, updates, *meeting)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.policies.spread_run", *words],
        cwd=ROOT,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process):
    """Wait for the program and return what it found."""
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


def free_address():
    """Return an address of this machine on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def logged(folder):
    """Return the metrics of a run, an array for each name, without the times."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {name: np.array([row[name] for row in rows]) for name in rows[0] if name != "seconds"}


def assert_same_run(first, second):
    """Fail unless two folders hold the same run, as closely as sums in another order allow."""
    found, expected = logged(first), logged(second)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        # the actor's loss is a mean of advantages that cancel: its rounding is that of the terms, about one
        np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


def digest(parameters):
    """Return a hash of all bits of the parameters that this process holds."""
    leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree_util.tree_leaves(parameters)]
    return hashlib.sha256(b"".join(leaves)).hexdigest()


def main(folder, updates, *meeting):
    """Train and print."""
    if meeting:
        join(meeting[0], int(meeting[1]), int(meeting[2]))
    result = train_run(build(spread(int(updates))), Path(folder))
    found = {"updates": result.updates, "finished": result.finished}
    found |= {"devices": jax.device_count(), "digest": digest(result.parameters)}
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
