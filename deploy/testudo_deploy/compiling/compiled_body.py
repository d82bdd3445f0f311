"""A body of array functions as one call of machine code, with the arguments and results of the body itself."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, cast

import numpy as np

from testudo_deploy.compiling import array_functions
from testudo_deploy.compiling.c_source import c_function
from testudo_deploy.compiling.traced_array import BOOL, FLOAT, Graph, TracedArray, as_traced

Body = Callable[..., Any]
"""A function of arrays, or dataclasses of arrays, dataclasses and None; its result likewise, or a tuple of these."""


@dataclass(frozen=True)
class TracedBody:
    """A body with the form of its arguments, and its source in C."""

    name: str
    body: Body
    example: tuple[Any, ...]  # arguments; only their form counts
    source: str
    result: Any  # in the form of the body's result, of traced arrays


def trace(name: str, body: Body, example: Sequence[Any]) -> TracedBody:
    """Return the source of a body for arguments of the form of the example; ``name`` is that of the C function.

    Raises:
        TypeError: the body decides by values, or uses a function that is not known here.
    """
    graph, place = Graph(array_functions), 0
    given: list[TracedArray] = []
    for leaf in leaves(tuple(example)):
        array = np.asarray(leaf)
        given.append(graph.given(array.shape, BOOL if array.dtype == np.bool_ else FLOAT, place))
        place += array.size
    result = body(*_rebuilt(tuple(example), iter(given)))
    made = [as_traced(graph, leaf) for leaf in leaves(result)]
    return TracedBody(name, body, tuple(example), c_function(name, graph, place, made), _rebuilt(result, iter(made)))


class CompiledBody:
    """Calls the machine code of a traced body.

    Arguments of another form, and numbers that are not finite, go to the body in NumPy, which decides what they mean.
    Its arrays are its own: one robot, one thread.
    """

    def __init__(self, traced: TracedBody, library: ctypes.PyDLL) -> None:
        """Take the function of the body's name from a loaded library."""
        self.body = traced.body
        self._function = library[traced.name]
        self._function.argtypes, self._function.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_int
        self._readers = [_Reader(argument) for argument in traced.example]
        self._in = np.zeros(max(sum(np.size(leaf) for leaf in leaves(traced.example)), 1))
        results = leaves(traced.result)
        self._out = np.zeros(max(sum(math.prod(leaf.shape) for leaf in results), 1))
        self._at = (self._in.ctypes.data, self._out.ctypes.data)
        places = np.cumsum([0, *(math.prod(leaf.shape) for leaf in results)]).tolist()
        self._build = _builder(traced.result, deque(zip(results, places, strict=False)))

    def __call__(self, *arguments: Any) -> Any:
        """Return what the body returns."""
        parts: list[Any] = []
        for reader, argument in zip(self._readers, arguments, strict=True):
            if not reader.read(argument, parts):
                return self.body(*arguments)
        try:
            np.concatenate(parts, axis=None, out=self._in, casting="unsafe")
        except (TypeError, ValueError):  # another number of values, such as of a peer without a message
            return self.body(*arguments)
        if not self._function(*self._at):
            return self.body(*arguments)
        return self._build(self._out.copy())


def packed[Kind](kind: type[Kind], numbers: np.ndarray, *fields: Any) -> Kind:
    """Return a dataclass of arrays that also holds all of its numbers, in the order of its arrays, in one array.

    A compiled body takes them at once. `dataclasses.replace` makes one without them; the arrays must not be written to.
    """
    made = _packed_kind(kind)(*fields)
    object.__setattr__(made, _NUMBERS, numbers)
    return made


_NUMBERS = "packed_numbers"


@functools.cache
def _packed_kind(kind: type[Any]) -> type[Any]:
    """Return the same class with room for the numbers, which are no field: `vars` does not name them."""
    return type(kind.__name__, (kind,), {"__slots__": (_NUMBERS,), "__doc__": kind.__doc__})


class _Reader:
    """Takes the arrays out of one argument."""

    def __init__(self, example: Any) -> None:
        self._is_array = not dataclasses.is_dataclass(example)
        self._parts: list[tuple[Callable[[Any], Any], _Reader]] = []
        self._absent: list[Callable[[Any], Any]] = []
        if self._is_array:
            return
        values = _fields(example)
        self._absent = [attrgetter(name) for name, value in values.items() if value is None]
        self._parts = [(attrgetter(name), _Reader(value)) for name, value in values.items() if value is not None]

    def read(self, argument: Any, found: list[Any]) -> bool:
        """Add the arrays of an argument; False if it is not of the form of the example."""
        if self._is_array:
            found.append(argument)
            return True
        for field in self._absent:
            if field(argument) is not None:
                return False
        numbers = getattr(argument, _NUMBERS, None)
        if numbers is not None:
            found.append(numbers)
            return True
        return all(reader.read(field(argument), found) for field, reader in self._parts)


def leaves(value: Any) -> list[Any]:
    """Return the arrays in a value, in order."""
    if value is None:
        return []
    if isinstance(value, tuple):
        return [leaf for item in _items(value) for leaf in leaves(item)]
    if dataclasses.is_dataclass(value):
        return [leaf for item in vars(value).values() for leaf in leaves(item)]
    return [value]


def _rebuilt(like: Any, arrays: Iterator[Any]) -> Any:
    """Return a value of the same form with other arrays."""
    if like is None:
        return None
    if isinstance(like, tuple):
        return tuple(_rebuilt(item, arrays) for item in _items(like))
    if dataclasses.is_dataclass(like) and not isinstance(like, type):
        return type(like)(**{name: _rebuilt(item, arrays) for name, item in vars(like).items()})
    return next(arrays)


def _items(value: Any) -> tuple[Any, ...]:
    """Return a tuple, of whose items nothing is known, as one of any."""
    return cast("tuple[Any, ...]", value)


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name."""
    return cast("dict[str, Any]", vars(value))


def _builder(result: Any, places: deque[tuple[TracedArray, int]]) -> Callable[[np.ndarray], Any]:
    """Return a function that makes a result of this form from all of its numbers."""
    if result is None:
        return lambda _: None
    if isinstance(result, tuple):
        items = [_builder(item, places) for item in _items(result)]
        return lambda numbers: tuple([item(numbers) for item in items])
    if dataclasses.is_dataclass(result):
        return _dataclass_builder(result, places)
    leaf, begin = places.popleft()
    return _part(leaf.shape, leaf.dtype, begin)


def _dataclass_builder(result: Any, places: deque[tuple[TracedArray, int]]) -> Callable[[np.ndarray], Any]:
    """See `_builder`; the numbers stay together, for the next body that takes the result."""
    kind, size = _packed_kind(cast("type[Any]", type(result))), sum(math.prod(leaf.shape) for leaf in leaves(result))
    begin = places[0][1]
    fields = [_builder(item, places) for item in _fields(result).values()]
    whole = slice(begin, begin + size)

    def build(numbers: np.ndarray) -> Any:
        made = kind(*[field(numbers) for field in fields])
        object.__setattr__(made, _NUMBERS, numbers[whole])
        return made

    return build


def _part(shape: tuple[int, ...], dtype: np.dtype, begin: int) -> Callable[[np.ndarray], Any]:
    """Return a function that takes one array out of all numbers; one number as NumPy's own scalar of its kind."""
    place = slice(begin, begin + math.prod(shape))
    if dtype == FLOAT:
        if not shape:
            return itemgetter(begin)
        return itemgetter(place) if len(shape) == 1 else lambda numbers: numbers[place].reshape(shape)
    kind = np.bool_ if dtype == BOOL else np.int64
    return lambda numbers: kind(numbers[begin]) if not shape else numbers[place].reshape(shape).astype(kind)
