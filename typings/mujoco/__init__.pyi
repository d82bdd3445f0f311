# mujoco is a compiled module without stubs: every name is of any type
from typing import Any

def __getattr__(name: str) -> Any: ...
