"""The search space of a sweep: options of a training and where their values are drawn from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from testudo_hardware.errors import TestudoError
from testudo_policies.train_config import TrainConfig

LOG, WHOLE = "log", "int"
_FIXED = ("scenario", "trunk", "seed", "starts", "decisions", "until")
"""Options that a sweep does not vary: trials with others could not be compared."""
_FORMS = "NAME=A,B,C, NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=int:LOW:HIGH"


@dataclass(frozen=True)
class Dimension:
    """Values of one option: one of some, or a range."""

    name: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    is_log: bool = False
    is_whole: bool = False

    def drawn(self, trial: Any) -> Any:
        """Return the value that a trial of Optuna suggests."""
        if self.choices:
            return trial.suggest_categorical(self.name, self.choices)
        if self.is_whole:
            return trial.suggest_int(self.name, int(self.low), int(self.high))
        return trial.suggest_float(self.name, self.low, self.high, log=self.is_log)


def parsed_space(texts: Sequence[str]) -> tuple[Dimension, ...]:
    """Return the dimensions of texts such as ``learning_rate=log:1e-4:3e-3`` and ``width=32,64``.

    Raises:
        TestudoError: a text cannot be read, or names no option that a sweep can vary.
    """
    found = [_dimension(text) for text in texts]
    names = [one.name for one in found]
    if not found or len(set(names)) < len(names):
        raise TestudoError(f"--space: found {', '.join(names) or 'none'}, expected every option once, as {_FORMS}")
    return tuple(found)


def _dimension(text: str) -> Dimension:
    name, _, values = text.partition("=")
    name = name.replace("-", "_")
    known = {field.name: getattr(TrainConfig, field.name) for field in fields(TrainConfig) if field.name not in _FIXED}
    if name not in known:
        raise TestudoError(f"--space {text}: found option {name!r}, expected one of {', '.join(known)}")
    kind = type(known[name])
    *form, low, high = ["", "", *values.split(":")][-3:]
    if ":" not in values:
        words = [word for word in values.split(",") if word]
        if not words:
            raise TestudoError(f"--space {text}: found no value, expected {_FORMS}")
        return Dimension(name, tuple(dict.fromkeys(_value(word, kind, text) for word in words)))
    if kind not in (int, float) or form[-1] not in ("", LOG, WHOLE) or values.count(":") > 2:
        raise TestudoError(f"--space {text}: found no range of numbers, expected {_FORMS}")
    ends = [_number(word, text) for word in (low, high)]
    is_whole = kind is int or form[-1] == WHOLE
    if not ends[0] < ends[1] or (form[-1] == LOG and (ends[0] <= 0 or is_whole)):
        raise TestudoError(f"--space {text}: found {low} to {high}, expected a rising range; of `log` above 0, no int")
    if is_whole and any(end != int(end) for end in ends):
        raise TestudoError(f"--space {text}: found {low} to {high}, expected whole numbers")
    return Dimension(name, (), *ends, is_log=form[-1] == LOG, is_whole=is_whole)


def _number(word: str, text: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise TestudoError(f"--space {text}: found {word!r}, expected a number")
    return value


def _value(word: str, kind: type, text: str) -> Any:
    """Return a choice as the type of its option."""
    if kind is bool:
        if word not in ("true", "false"):
            raise TestudoError(f"--space {text}: found {word!r}, expected true or false")
        return word == "true"
    if kind is str:
        return word
    value = _number(word, text)
    if kind is int and value != int(value):
        raise TestudoError(f"--space {text}: found {word!r}, expected a whole number")
    return kind(value)


def with_values(config: TrainConfig, values: dict[str, Any]) -> TrainConfig:
    """Return the configuration of a trial."""
    return replace(config, **values)
