"""Reads logs of PX4 (ULog) by the library pyulog: one table for each logged message, with its stamps since boot."""

import contextlib
import io
from pathlib import Path

import numpy as np
from pyulog import ULog

from testudo_runs.importing.mapping.column_conversion import FileLosses, LogTable

_MAGIC = b"ULog\x01\x12\x35"
_STAMP = "timestamp"
_NANO_PER_MICRO = 1_000


def looks_like_ulog(head: bytes) -> bool:
    """Return whether the first bytes of a file are those of a ULog."""
    return head.startswith(_MAGIC)


def read_ulog(file: Path, losses: FileLosses) -> list[LogTable]:
    """Read a log; ``losses`` collects what is missing.

    A column is `message.field`, such as `vehicle_odometry.position[0]`; further instances of a message are
    `message_1.field`.

    Raises:
        OSError: the file cannot be read at all.
    """
    losses.word = "record"
    with file.open("rb") as stream:
        if not stream.read(1):
            losses.add("holds nothing")
            return []
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # the library prints its warnings
            log = ULog(str(file))
    except Exception as error:  # noqa: BLE001 -- any error of a broken file
        losses.add(f"is no complete ULog ({' '.join(str(error).split())[:120] or type(error).__name__})")
        return []
    if log.file_corruption:
        losses.add("parts of the file are damaged; left out")
    missing_ms = sum(dropout.duration for dropout in log.dropouts)
    if missing_ms:
        losses.add(f"the logger lost {missing_ms} ms in {len(log.dropouts)} drop-outs")
    return [_table(found) for found in log.data_list if _STAMP in found.data]


def _table(found: ULog.Data) -> LogTable:
    prefix = found.name if found.multi_id == 0 else f"{found.name}_{found.multi_id}"
    names = tuple(found.data)
    columns = {k: np.asarray(found.data[name], float) for k, name in enumerate(names)}
    stamps_ns = np.asarray(found.data[_STAMP]).astype(np.int64) * _NANO_PER_MICRO
    count = len(stamps_ns)
    return LogTable(
        tuple(f"{prefix}.{name}" for name in names), len(names), columns, np.arange(1, count + 1), stamps_ns
    )
