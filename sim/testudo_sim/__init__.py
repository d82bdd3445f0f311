"""Worlds on CPU and GPU: dynamics, scenarios, communication, replay."""
