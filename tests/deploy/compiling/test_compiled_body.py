"""Compiled bodies: the same bits as NumPy, and NumPy itself wherever there is doubt."""

import os
from dataclasses import dataclass

import numpy as np
import pytest

from testudo_deploy.compiling import shared_library as library_of
from testudo_deploy.compiling.c_source import c_file
from testudo_deploy.compiling.compiled_body import CompiledBody, trace
from testudo_deploy.compiling.shared_library import NotCompiledError, shared_library
from testudo_hardware.arrays import all_of, array_namespace, known_false, min_of, stacked

SHAPE = (2, 5)


@dataclass(frozen=True)
class Pair:
    first: object  # (2, 5)
    second: object  # (5,)
    third: object = None


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.delenv(library_of.SWITCH, raising=False)


def compiled(body, *example):
    traced = trace("body", body, example)
    return CompiledBody(traced, shared_library(c_file([traced.source])))


def everything(pair, flag, scale):
    """Use each function and each kind of view that the shield's bodies use; returns a dataclass and a tuple."""
    xp = array_namespace(pair.first)
    one, two = pair.first, pair.second
    spread = xp.concat([one, one[:, ::-1] * scale, 2.0 * one[:1, ...] - np.array([[0.5]])], axis=0)
    order = xp.argsort(one[0, ...], axis=0, stable=True)
    near = xp.take_along_axis(one[1, ...], order[:3], axis=0)
    table = xp.reshape(stacked(one, -one), (4, 5))
    chosen = xp.where(flag & (two > 0.1), two, xp.sign(two) * 3)
    turn = xp.sqrt(xp.abs(xp.sin(two) * xp.cos(scale))) / (xp.maximum(two, 0.2) + 1)
    picked = xp.reshape(xp.arange(5), (5,)) == xp.argmin(two, axis=0)
    rows = xp.clip(spread[:, None, :] - two[None, :, None], -1.0, xp.max(table))
    logic = (all_of(rows < 0.7, axis=(0, 2)) | ~flag) & (xp.argmax(table, axis=0) >= 1)
    return Pair(rows, xp.sum(xp.where(picked, two, 0.0), axis=0)), (
        near,
        chosen + turn,
        logic,
        min_of(rows, axis=(0, 1)),
        xp.round(3 * two),
        xp.broadcast_to(scale, (2, 1))[..., 0] ** 2,
        xp.astype(two > 0, xp.int32),
        one.T,
    )


def drawn(rng):
    values = rng.normal(size=SHAPE)
    values[:, rng.integers(5)] = 0.0
    second = rng.normal(size=5)
    second[rng.integers(5)] = second[0]  # of equal values the first is the least
    return Pair(values, second), np.array(rng.random() < 0.5), np.array(rng.normal())


def test_every_function_gives_the_bits_of_numpy():
    rng = np.random.default_rng(0)
    body = compiled(everything, *drawn(rng))
    for _ in range(200):
        arguments = drawn(rng)
        (pair, rest), (expected, others) = body(*arguments), everything(*arguments)
        found = (pair.first, pair.second, *rest)
        for index, wanted in enumerate((expected.first, expected.second, *others)):
            assert np.shape(found[index]) == np.shape(wanted), index
            assert np.array_equal(np.asarray(found[index], float), np.asarray(wanted, float)), index
        assert pair.third is None


def test_sums_are_taken_in_the_order_of_numpy():
    """Along the last axis NumPy adds eight numbers side by side and halves long sums; along others row by row."""

    def body(*values):
        xp = array_namespace(values[0])
        return tuple(xp.sum(value, axis=axis) for value in values for axis in (0, 1))

    rng = np.random.default_rng(0)
    values = [rng.normal(size=(17, count)) for count in (7, 8, 9, 31, 128, 129, 300)]
    for found, wanted in zip(compiled(body, *values)(*values), body(*values), strict=True):
        assert np.array_equal(found, wanted)
    assert any((value.cumsum(axis=1)[:, -1] != value.sum(axis=1)).any() for value in values)  # control: it matters


def test_a_sort_of_which_equal_values_are_not_in_order_is_refused():
    with pytest.raises(TypeError, match="sorts without stable=True"):
        trace("body", lambda value: array_namespace(value).argsort(value, axis=0, stable=False), [np.zeros(9)])


def test_least_and_greatest_keep_what_is_not_a_number_although_it_never_gets_there():
    def body(value):
        xp = array_namespace(value)
        none = value / (0 * value)  # not a number where the value is zero
        return xp.minimum(none, 1.0), xp.maximum(1.0, none), min_of(none, axis=0), xp.argmin(none, axis=0)

    value = np.array([1.0, 0.0, -2.0])
    with np.errstate(all="ignore"):
        expected = body(value)
    for found, wanted in zip(compiled(body, value)(value), expected, strict=True):
        assert np.array_equal(found, wanted, equal_nan=True)


def test_numbers_that_are_not_finite_and_other_forms_go_to_numpy():
    calls = []

    def body(pair):
        calls.append(pair)
        return 2 * pair.first + pair.second

    fast = compiled(body, Pair(np.zeros(SHAPE), np.zeros(5)))
    calls.clear()
    assert np.array_equal(fast(Pair(np.ones(SHAPE), np.ones(5))), np.full(SHAPE, 3.0))
    assert not calls
    bad = np.ones(SHAPE)
    bad[1, 3] = np.nan
    others = (Pair(bad, np.ones(5)), Pair(np.ones((2, 4)), np.ones(4)), Pair(np.ones(SHAPE), np.ones(5), np.ones(1)))
    for count, pair in enumerate(others, start=1):
        fast(pair)
        assert len(calls) == count


def test_a_result_stays_when_the_body_is_called_again():
    fast = compiled(lambda value: value + 1, np.zeros(2))
    first = fast(np.zeros(2))
    fast(np.ones(2))
    assert np.array_equal(first, np.ones(2))


def test_a_body_that_decides_by_a_value_is_refused():
    with pytest.raises(TypeError, match="decides by a value"):
        trace("body", lambda value: value if value[0] > 0 else -value, [np.zeros(2)])
    assert trace("body", lambda value: value if known_false(value > 0) else -value, [np.zeros(2)]).source


def test_without_machine_code_the_reason_and_the_remedy_are_said(monkeypatch, tmp_path):
    source = c_file(["int nothing(const double *in, double *out) { return 1; }"])
    with pytest.raises(NotCompiledError, match=r"failed with status 1: .*error"):
        shared_library("this is not C")
    folder = tmp_path / "open"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    shared_library(source)
    (folder / "testudo" / "compiled").chmod(0o777)  # what others may write is not executed
    with pytest.raises(NotCompiledError, match="others may write, expected one of this user alone"):
        shared_library(source)
    monkeypatch.setenv(library_of.SWITCH, "0")
    with pytest.raises(NotCompiledError, match="TESTUDO_COMPILED=0 is set"):
        shared_library(source)
    monkeypatch.delenv(library_of.SWITCH)
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    with pytest.raises(NotCompiledError, match=r"no C compiler was found .* `apt install gcc`"):
        shared_library(source)
