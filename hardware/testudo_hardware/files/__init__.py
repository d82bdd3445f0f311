"""Strict readers of TOML and JSON.

In: files.
Out: plain values, or an error that names file and key.
"""
