"""Drafts a mapping for an unknown text log from the names and values of its columns.

Units and frames of position and velocity are not visible in a table: the user checks them in the draft.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from testudo_runs.importing.logs.text_log import DELIMITERS, column_names, fields_of
from testudo_runs.importing.mapping.mapping_file import SCHEMA, TextMap, TimeMap
from testudo_runs.recording.recording import units_of

_HEAD_BYTES = 1 << 18
_LEAST_ROWS, _NEARLY = 3, 0.1
_SIGNS = ("#", "%", "//")
_TIME_NAMES = ("time", "stamp", "tick", "sec", "nsec", "t")
_UNIX = {"s": 1e9, "ms": 1e12, "us": 1e15, "ns": 1e18}
_STEPS = (("s", 1.0), ("ms", 1e3), ("us", 1e6))
_SHARED = {
    "x": ("x", "px", "posx", "positionx"),
    "y": ("y", "py", "posy", "positiony"),
    "z": ("z", "pz", "posz", "positionz"),
    "yaw": ("yaw", "theta", "heading", "orientation"),
    **{q: (q, f"quat{q[1]}", f"orientation{q[1]}") for q in ("qx", "qy", "qz", "qw")},
}
_TWIST = {
    "vx": ("vx", "velx", "v", "linear", "linearx", "forwardvelocity"),
    "vy": ("vy", "vely", "lineary"),
    "vz": ("vz", "velz", "linearz"),
    "wx": ("wx", "gyrox", "angularx"),
    "wy": ("wy", "gyroy", "angulary"),
    "wz": ("wz", "gyroz", "angularz", "w", "omega", "yawrate", "angular", "angularvelocity"),
}
_NAMES = {
    "pose": _SHARED,
    "odometry": {**_SHARED, **_TWIST},
    "command": {name: (*(f"cmd{text}" for text in texts), *texts) for name, texts in _TWIST.items()},
    "motors": {f"m{k}": (f"m{k}", f"u{k}", f"motor{k}", f"thrust{k}") for k in range(1, 5)},
    "imu": {
        **{f"a{axis}": (f"a{axis}", f"acc{axis}", f"accel{axis}") for axis in "xyz"},
        **{f"w{axis}": _TWIST[f"w{axis}"][:3] for axis in "xyz"},
    },
    "battery": {"voltage": ("voltage", "vbat", "battery", "batteryvoltage")},
}
_WHOLE = {
    "pose": ({"x", "y", "yaw"}, {"x", "y", "qx", "qy", "qz", "qw"}),
    "odometry": ({"x", "y", "yaw", "vx"}, {"x", "y", "qx", "qy", "qz", "qw", "vx"}),
    "command": ({"vx", "wz"},),
    "motors": ({"m1", "m2", "m3", "m4"},),
    "imu": ({"ax", "ay", "az", "wx", "wy", "wz"},),
    "battery": ({"voltage"},),
}


@dataclass(frozen=True)
class Draft:
    """Columns and draft mapping of a log, from its beginning."""

    file: str
    columns: tuple[tuple[int, str, float, float], ...]  # number, name, least and largest value
    text: str  # the mapping after comments on the guesses; empty without a time or a role

    def same(self, other: "Draft") -> bool:
        """Return whether the mapping also fits the log of another draft."""
        return self._tables() == other._tables()  # noqa: SLF001 -- of its own class

    def _tables(self) -> dict[str, Any]:
        return (yaml.safe_load(self.text) or {}) | {"about": ""}


def draft_of(file: Path) -> Draft | None:
    """Return the draft of a text log; None if it does not begin with a table of numbers."""
    try:
        with file.open("rb") as stream:
            lines = stream.read(_HEAD_BYTES).decode("utf-8").splitlines()[:-1]
    except (OSError, UnicodeDecodeError):
        return None
    sign = next((sign for sign in _SIGNS if any(line.lstrip().startswith(sign) for line in lines)), "")
    plain = [line for line in lines if line.strip() and not (sign and line.lstrip().startswith(sign))]
    comments = [line for line in lines if sign and line.lstrip().startswith(sign)]
    # commas in the numbers and none between the names are those of decimals
    comma = len(plain) > _LEAST_ROWS and "," not in plain[0] and all("," in line for line in plain[1:_LEAST_ROWS])
    numbers = [line.replace(",", ".") for line in plain[1:]] if comma else plain[1:]
    for delimiter in DELIMITERS:
        rows = _rows(numbers, delimiter)
        if rows is not None:
            return _drafted(file, plain, comments, sign, ("," if comma else ".", delimiter), rows)
    return None


def _rows(lines: list[str], delimiter: str) -> np.ndarray | None:
    """Return the numbers (R, C) of lines with equal counts of fields; NaN where a field is not a number."""
    fields = [fields_of(line.encode(), delimiter) for line in lines[:2000]]
    count = len(fields[0]) if fields else 0
    if len(fields) < _LEAST_ROWS or count < 2 or any(len(parts) != count for parts in fields):
        return None
    rows = np.array([[_number(part) for part in parts] for parts in fields])
    return rows if np.isfinite(rows).mean() > 0.5 else None


def _number(text: str | bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


def _drafted(
    file: Path, plain: list[str], comments: list[str], sign: str, marks: tuple[str, str], rows: np.ndarray
) -> Draft:
    """Return the draft of a table of numbers (R, C); ``marks`` are the decimal sign and the delimiter."""
    decimal, delimiter = marks
    part = TextMap("", TimeMap(1, "s", "unix"), {}, delimiter, comment=sign)
    header, names = "none", ()
    for where, line in (("line", plain[0]), ("comment", comments[-1] if comments else "")):
        found = column_names(line.encode(), part)
        numbers = [np.isfinite(_number(name)) for name in found]
        if len(found) == rows.shape[1] and not any(numbers) and len(set(found)) == len(found):
            header, names = where, found
            break
    keys: list[int | str] = list(names) or list(range(1, rows.shape[1] + 1))
    low, high = (
        [float(best(column)) if np.isfinite(column).any() else np.nan for column in rows.T]
        for best in (np.nanmin, np.nanmax)
    )
    columns = tuple((k + 1, names[k] if names else "", low[k], high[k]) for k in range(rows.shape[1]))
    time = _time(rows, names)
    roles = _roles(names)
    reach = dict(zip(names, np.maximum(np.abs(low), np.abs(high)).tolist(), strict=False))
    # set the unit deg for headings beyond one turn in rad; return their columns
    found = []
    for role in roles.values():
        column = role["channels"].get("yaw")
        if column is not None and reach[column] > 2 * np.pi + _NEARLY:
            role["channels"]["yaw"] = {"column": column, "unit": "deg"}
            found.append(column)
    degrees = list(dict.fromkeys(found))
    if time is None or not roles:
        return Draft(file.name, columns, "")
    at, unit, clock = time
    kind = {
        "files": "{robot}" + "".join(file.suffixes),
        "delimiter": delimiter,
        **({"decimal": decimal} if decimal == "," else {}),
        **({"comment": sign} if sign else {}),
        "header": header,
        "time": {"column": keys[at], "unit": unit, "clock": clock},
        "roles": roles,
    }
    tables = {
        "schema": SCHEMA,
        "name": "own",
        "about": f"drafted from {file.name}; check units, frames and time",
        "text": [kind],
    }
    return Draft(
        file.name,
        columns,
        "".join(f"# guessed: {guess}\n" for guess in _guesses(time, roles, degrees, reach))
        + yaml.safe_dump(tables, sort_keys=False, width=110),
    )


def _guesses(
    time: tuple[int, str, str], roles: Mapping[str, dict[str, Any]], degrees: Sequence[str], reach: Mapping[str, float]
) -> list[str]:
    """Return a sentence for each choice that neither names nor numbers of the log confirm."""
    guesses = [f"the time is in {time[1]} of the clock {time[2]}, by its size and steps"]
    guesses += [f"{column} is in deg, as it reaches {reach[column]:.4g}" for column in degrees]
    plain = {
        unit: sorted(
            {
                column
                for role, way in roles.items()
                for name, column in way["channels"].items()
                if isinstance(column, str) and units_of(role)[name] == unit
            }
        )
        for unit in ("m", "rad", "m/s", "rad/s")
    }
    guesses += [
        f"in {unit}, though the log does not state it: "
        + ", ".join(f"{column} (reaches {reach[column]:.4g})" for column in columns)
        for unit, columns in plain.items()
        if columns
    ]
    if any("vx" in way["channels"] and role == "odometry" for role, way in roles.items()):
        guesses.append("velocities are in the body; if they are in the world, say velocity: world")
    return guesses


def _time(rows: np.ndarray, names: tuple[str, ...]) -> tuple[int, str, str] | None:
    """Return index, unit and clock of the increasing column, preferring one named as a time."""
    rises = [
        k
        for k, column in enumerate(rows.T)
        if np.isfinite(column).all() and (np.diff(column) >= 0).all() and column[-1] > column[0] >= 0
    ]
    called = [
        k
        for k in rises
        if (names and any(word in names[k].lower() for word in _TIME_NAMES[:-1]))
        or (names and _plain(names[k]) == _TIME_NAMES[-1])
    ]
    if not rises:
        return None
    at = (called or rises)[0]
    first = rows[0, at]
    for unit, size in _UNIX.items():
        if size <= first < 4.2 * size:
            return at, unit, "unix"
    step = float(np.median(np.diff(rows[:, at])))
    return at, next((unit for unit, longest in _STEPS if step < longest), "ns"), "boot"


def _roles(names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Return the roles whose channels all have a column with a usual name."""
    plain = {_plain(name): name for name in reversed(names)}
    found = {}
    for role, channels in _NAMES.items():
        here = {
            name: plain[text]
            for name, texts in channels.items()
            for text in [next((text for text in texts if text in plain), None)]
            if text is not None
        }
        if "qx" in here:
            here.pop("yaw", None)
        if any(whole <= set(here) for whole in _WHOLE[role]):
            found[role] = {"channels": here}
    if "odometry" in found and not any(_plain(name).startswith("cmd") for name in names):
        found.pop("command", None)  # a velocity beside a position is a measured one
    return found


def _plain(name: str) -> str:
    """Return a name in lower case without unit and punctuation."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"[\[(].*", "", name.lower()))
