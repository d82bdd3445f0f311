"""A value of a link profile with its source."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Sourced(Generic[T]):  # noqa: UP046 -- get_type_hints of Python 3.12.3 does not resolve the new syntax
    """A value and its source."""

    value: T
    source: str
