"""Descriptions, motion models, frames and links of robots. Imports NumPy only, never JAX.

In: robot files and link profiles (TOML), messages.
Out: `RobotSpec`, `LinkProfile`, motion models, commands and measurements.
"""
