"""C source of a traced body: a function of numbers in, numbers out, with the roundings of NumPy.

Each step is a loop over its result. A step by elements that is used once, in the same shape, is part of the loop that
uses it. No value is rounded otherwise than in NumPy: the compiler must not join a product and a sum
(`-ffp-contract=off`), and least and greatest values keep what is not a number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from testudo_deploy.compiling.traced_array import BOOL, FLOAT, INT, Graph, Node, TracedArray, row_major

_TYPES = {FLOAT: "double", BOOL: "unsigned char", INT: "long"}
_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "and": "&", "or": "|",
}  # fmt: skip
_CALLS = ("sqrt", "sin", "cos", "exp", "expm1", "log", "rint", "atan2")
_BY_ELEMENT = {*_BINARY, *_CALLS, "div", "neg", "not", "where", "min", "max", "abs", "sign", "cast", "copy"}
_HEAD = """#include <math.h>
static inline double least(double a, double b) { return (a < b || a != a) ? a : b; }
static inline double largest(double a, double b) { return (a > b || a != a) ? a : b; }
static inline double sign(double a) { return a != a ? a : (double)((a > 0) - (a < 0)); }
static double pairwise(const double *a, long n)
{
    double s = 0, r[8];
    long i = 0;
    if (n > 128) { long half = n / 2 - n / 2 % 8; return pairwise(a, half) + pairwise(a + half, n - half); }
    if (n >= 8) {
        for (; i < 8; i++) r[i] = a[i];
        for (; i < n - n % 8; i++) r[i % 8] += a[i];
        s = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    }
    for (; i < n; i++) s += a[i];
    return s;
}
"""
"""`pairwise` adds in the order of NumPy along the last axis (`numpy.sum`, Notes); along others it adds row by row."""


def c_function(name: str, graph: Graph, count: int, results: Sequence[TracedArray]) -> str:
    """Return the source of `int name(const double *in, double *out)`.

    ``count`` numbers in; the results follow each other in ``out``. If a number is not finite it returns 0, no results.
    """
    return _Writer(graph, results).function(name, count)


def c_file(functions: Sequence[str]) -> str:
    """Return the source file of some functions."""
    return _HEAD + "\n".join(functions)


def _is_whole(view: TracedArray) -> bool:
    """Return whether a view is all of its step's result, in order."""
    if view.offset or view.shape != view.node.shape:
        return False
    ordered = row_major(view.shape)
    return all(a == b or size == 1 for a, b, size in zip(view.strides, ordered, view.shape, strict=True))


class _Writer:
    def __init__(self, graph: Graph, results: Sequence[TracedArray]) -> None:
        self._results = results
        self._uses: Counter[int] = Counter()
        self._joined: set[int] = set()
        needed = {id(result.node) for result in results}
        self._nodes: list[Node] = []
        for node in reversed(graph.nodes):  # what no result needs is left out
            if id(node) not in needed:
                continue
            self._nodes.append(node)
            for arg in node.args:
                needed.add(id(arg.node))
                self._uses[id(arg.node)] += 1
        self._nodes.reverse()
        for result in results:
            self._uses[id(result.node)] += 2
        self._names = {id(node): f"v{index}" for index, node in enumerate(self._nodes)}
        for node in self._nodes:
            for arg in node.args if node.op not in ("take", "argsort") else ():
                made = arg.node
                if made.op in _BY_ELEMENT and self._uses[id(made)] == 1 and _is_whole(arg):
                    self._joined.add(id(made))

    def function(self, name: str, count: int) -> str:
        lines = [f"int {name}(const double *restrict in, double *restrict out)", "{"]
        lines += [
            "double zero = 0;",
            f"for (long i = 0; i < {count}; i++) zero += 0 * in[i];",
            "if (!(zero == 0)) return 0;",
        ]
        for node in self._nodes:
            if id(node) not in self._joined and not self._is_scalar_constant(node):
                lines += self._statement(node)
        place = 0
        for result in self._results:
            index = [f"i{axis}" for axis in range(result.ndim)]
            value = self._value(result, index)
            flat = _index(place, row_major(result.shape), index)
            lines += _loops(result.shape, [f"out[{flat}] = {value};"])
            place += math.prod(result.shape)
        return "\n".join([*lines, "return 1;", "}", ""])

    @staticmethod
    def _is_scalar_constant(node: Node) -> bool:
        return node.op == "constant" and node.size == 1

    def _statement(self, node: Node) -> list[str]:
        name, kind, size = self._names[id(node)], _TYPES[node.dtype], max(node.size, 1)
        if node.op == "constant":
            numbers = ", ".join(_literal(value, node.dtype) for value in np.ravel(node.detail).tolist())
            return [f"static const {kind} {name}[{size}] = {{{numbers}}};"]
        index = [f"i{axis}" for axis in range(len(node.shape))]
        target = f"{name}[{_index(0, row_major(node.shape), index)}]"
        return [f"{kind} {name}[{size}];", *self._filled(node, target, index)]

    def _filled(self, node: Node, target: str, index: list[str]) -> list[str]:
        """Return the loops that compute the result of a step."""
        if node.op == "concat":
            return self._concat(node)
        if node.op == "argsort":
            return self._argsort(node)
        if node.op == "input":
            flat = _index(node.detail, row_major(node.shape), index)
            value = f"in[{flat}]" + (" != 0" if node.dtype == BOOL else "")
        elif node.op == "take":
            value = self._taken(node, index)
        elif node.op in _BY_ELEMENT:
            value = self._expression(node, index)
        else:
            return self._reduction(node, target, index)
        return _loops(node.shape, [f"{target} = {value};"])

    def _concat(self, node: Node) -> list[str]:
        lines: list[str] = []
        axis: int = node.detail
        name, strides, place = self._names[id(node)], row_major(node.shape), 0
        for part in node.args:
            index = [f"i{axis}" for axis in range(part.ndim)]
            flat = _index(place * strides[axis], strides, index)
            lines += _loops(part.shape, [f"{name}[{flat}] = {self._value(part, index)};"])
            place += part.shape[axis]
        return lines

    def _taken(self, node: Node, index: list[str]) -> str:
        values, which = node.args
        at = [*index]
        at[node.detail] = f"{self._value(which, index)}"
        return self._value(values, at)

    def _argsort(self, node: Node) -> list[str]:
        """Insertion sort along one axis; few values."""
        (values,) = node.args
        axis: int = node.detail
        name = self._names[id(node)]
        count, strides = node.shape[axis], row_major(node.shape)
        outer = tuple(1 if one == axis else size for one, size in enumerate(node.shape))

        def at(place: str) -> str:
            return f"{name}[{_index(0, strides, [place if a == axis else f'i{a}' for a in range(len(outer))])}]"

        def value(place: str) -> str:
            return self._value(values, [place if a == axis else f"i{a}" for a in range(len(outer))])

        body = [
            f"for (long k = 0; k < {count}; k++) {{",
            f"double x = {value('k')}; long j = k;",
            f"for (; j > 0; j--) {{ double y = {value(at('(j - 1)'))};",
            f"if (!(x < y || (y != y && x == x))) break; {at('j')} = {at('(j - 1)')}; }}",
            f"{at('j')} = k; }}",
        ]
        return _loops(outer, body)

    def _reduction(self, node: Node, target: str, index: list[str]) -> list[str]:
        (values,) = node.args
        taken: tuple[int, ...] = node.detail
        kept = iter(index)
        place = [f"r{axis}" if axis in taken else next(kept) for axis in range(values.ndim)]
        value = self._value(values, place)
        inner = "".join(f"for (long r{axis} = 0; r{axis} < {values.shape[axis]}; r{axis}++) " for axis in taken)
        if node.op in ("all", "any"):
            first, sign = ("1", "&") if node.op == "all" else ("0", "|")
            body = [f"unsigned char s = {first};", f"{inner}s {sign}= ({value}) != 0;", f"{target} = s;"]
        elif node.op == "sum" and node.dtype == FLOAT and taken == (values.ndim - 1,):
            count = values.shape[taken[0]]
            body = [f"double t[{max(count, 1)}];", f"{inner}t[r{taken[0]}] = {value};"]
            body += [f"{target} = pairwise(t, {count});"]
        elif node.op == "sum":
            body = [f"{_TYPES[node.dtype]} s = 0;", f"{inner}s += {value};", f"{target} = s;"]
        elif node.op in ("least", "largest"):
            start = "-INFINITY" if node.op == "largest" else "INFINITY"
            body = [f"double s = {start};", f"{inner}s = {node.op}(s, {value});", f"{target} = s;"]
        else:
            better = "<" if node.op == "argmin" else ">"
            body = [
                f"double s = NAN; long best = -1; {inner}{{ double x = {value};",
                f"if (best < 0 || x {better} s || (x != x && s == s)) {{ s = x; best = r{taken[0]}; }} }}",
                f"{target} = best;",
            ]
        return _loops(node.shape, body)

    def _value(self, view: TracedArray, index: list[str]) -> str:
        """Return the value of a view at an index."""
        node = view.node
        if id(node) in self._joined:
            return self._expression(node, index)
        if self._is_scalar_constant(node):
            return _literal(np.ravel(node.detail).tolist()[0], node.dtype)
        return f"{self._names[id(node)]}[{_index(view.offset, view.strides, index)}]"

    def _expression(self, node: Node, index: list[str]) -> str:
        values = [self._value(arg, index) for arg in node.args]
        op = node.op
        if op in _BINARY:
            return f"({values[0]} {_BINARY[op]} {values[1]})"
        if op in _CALLS:
            return f"{op}({', '.join(values)})"
        if op == "where":
            return f"({values[0]} ? {values[1]} : {values[2]})"
        forms = {
            "div": "((double){0} / {1})",
            "neg": "(-{0})",
            "not": "(!{0})",
            "min": "least({0}, {1})" if len(values) > 1 else "",
            "max": "largest({0}, {1})" if len(values) > 1 else "",
            "abs": "fabs({0})",
            "sign": "sign({0})",
            "copy": "{0}",
            "cast": "({0} != 0)" if node.dtype == BOOL else f"(({_TYPES[node.dtype]}){{0}})",
        }
        return forms[op].format(*values)


def _index(offset: int, strides: Sequence[int], index: Sequence[str]) -> str:
    terms = [
        f"{place}" if step == 1 else f"{step} * {place}" for step, place in zip(strides, index, strict=True) if step
    ]
    return " + ".join(([str(offset)] if offset or not terms else []) + terms)


def _loops(shape: Sequence[int], body: list[str]) -> list[str]:
    """Return loops over a shape around some lines; an axis of one place needs none."""
    heads = [f"for (long i{axis} = 0; i{axis} < {size}; i{axis}++)" for axis, size in enumerate(shape) if size != 1]
    ones = [f"const long i{axis} = 0;" for axis, size in enumerate(shape) if size == 1 and _named(axis, body)]
    return [" ".join([*heads, "{", *ones, *body, "}"])]


def _named(axis: int, lines: Sequence[str]) -> bool:
    return any(f"i{axis}" in line for line in lines)


def _literal(value: float, dtype: np.dtype) -> str:
    if dtype != FLOAT:
        return str(int(value))
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    return value.hex() if value >= 0 and math.copysign(1, value) > 0 else f"({value.hex()})"
