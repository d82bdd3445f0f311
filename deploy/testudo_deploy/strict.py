"""Strict reading of JSON and YAML values, see `testudo_hardware.strict`, which robot files use too."""

from __future__ import annotations

from testudo_hardware.strict import OPTIONAL, read_as

__all__ = ["OPTIONAL", "read_as"]
