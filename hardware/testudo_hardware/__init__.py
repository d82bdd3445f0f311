"""What the robots are: descriptions, motion models and frames. Imports NumPy only, never JAX."""
