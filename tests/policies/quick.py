"""Runs that are tiny, and compilation that is quick: for tests of the learning side."""

from contextlib import contextmanager
from dataclasses import replace

import jax
import numpy as np

from testudo_policies.train_config import TrainConfig

TINY = TrainConfig(
    team_size=2,
    worlds=4,
    rollout=4,
    epochs=1,
    minibatches=2,
    width=8,
    memory=0,
    decisions=64,  # four updates
)
"""A run of four updates that learns nothing worth keeping."""
TINY_OPTIONS = tuple(
    f"--{name.replace('_', '-')}={getattr(TINY, name)}"
    for name in (
        "team_size",
        "worlds",
        "rollout",
        "epochs",
        "minibatches",
        "width",
        "memory",
        "decisions",
    )
)
"""The same run as options of `testudo train`."""


@contextmanager
def quick_compilation(tmp_path_factory):
    """Change nothing: tests/conftest.py sets quick compilation for all tests."""
    yield


def unshielded(environment):
    """Return the environment without a shield, whose projection takes the compiler longest: for other claims."""
    return replace(environment, team=replace(environment.team, shielded=False))


def assert_equal_trees(first, second):
    """Fail unless two trees have the same leaves, bit for bit."""
    leaves = jax.tree.map(_same_bits, first, second)
    different = [jax.tree_util.keystr(path) for path, same in jax.tree_util.tree_leaves_with_path(leaves) if not same]
    assert not different, different


def _same_bits(first, second):
    if jax.dtypes.issubdtype(first.dtype, jax.dtypes.prng_key):
        first, second = jax.random.key_data(first), jax.random.key_data(second)
    # in NumPy: as JAX it would be two programs to compile for every shape
    return first.dtype == second.dtype and bool((np.asarray(first) == np.asarray(second)).all())
