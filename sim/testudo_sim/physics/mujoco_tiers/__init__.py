"""Physics tiers on MuJoCo: `mjx` on any JAX device, `mujoco` on the host, one world and one set of forces."""
