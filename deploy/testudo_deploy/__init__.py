"""What runs on a robot: contract, artefact, shield, control loop, recording. Never imports JAX."""
