"""The shield: nearest safe control-point velocity for every robot, one body for NumPy and JAX."""
