"""Shared by all nodes: clock, quality of service, conversions, scheduling."""
