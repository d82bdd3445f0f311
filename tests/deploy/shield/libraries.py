"""The array libraries between which bodies of the shield are compared."""

import array_api_strict
import jax
import jax.numpy as jnp

from testudo_sim import devices  # noqa: F401  (registers the pytrees)

LIBRARIES = (jnp.asarray, array_api_strict.asarray)
"""What makes an array of a library of one of NumPy."""


def compiled(function, asarray):
    """Return the function as its library runs it: JAX compiles it whole, else each operation would be a program."""
    return jax.jit(function) if asarray is jnp.asarray else function
