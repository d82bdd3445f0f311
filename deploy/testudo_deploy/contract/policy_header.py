"""The header of a policy file, read without the policy's runtime: versions and metadata.

It is read by hand because the runtime refuses newer files without saying which version they have, and because the guard
does not load the runtime. An ONNX file is one protobuf message (ModelProto), of which only the top-level fields are
parsed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from testudo_hardware.errors import TestudoError

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_IR_VERSION, _GRAPH, _OPSET_IMPORT, _METADATA = 1, 7, 8, 14
_KEY, _VALUE = 1, 2  # of a metadata entry
_DOMAIN, _VERSION = 1, 2  # of an opset import


class ArtefactError(TestudoError):
    """A policy file cannot be used: unreadable, altered, for a newer runtime, or failing."""


@dataclass(frozen=True)
class OnnxHeader:
    """Versions and metadata of an ONNX file."""

    ir_version: int
    opsets: dict[str, int]  # version by domain; the standard operators have the empty domain
    metadata: dict[str, str]


def read_header(data: bytes, where: str) -> OnnxHeader:
    """Return the header of the ONNX file ``data``; ``where`` names it in errors.

    Raises:
        ArtefactError: not an ONNX file, or cut short.
    """
    ir_version, has_graph = 0, False
    opsets: dict[str, int] = {}
    metadata: dict[str, str] = {}
    try:
        for number, value in _fields(memoryview(data)):
            if number == _IR_VERSION and isinstance(value, int):
                ir_version = value
            elif number == _GRAPH:
                has_graph = True
            elif number == _OPSET_IMPORT and isinstance(value, memoryview):
                entry = dict(_fields(value))
                opsets[_text(entry.get(_DOMAIN))] = int(entry.get(_VERSION, 0))
            elif number == _METADATA and isinstance(value, memoryview):
                entry = dict(_fields(value))
                metadata[_text(entry.get(_KEY))] = _text(entry.get(_VALUE))
    except (ValueError, TypeError) as error:
        raise ArtefactError(f"{where}: truncated or not an ONNX file ({error}); copy or export it again") from error
    if not ir_version or not has_graph or not opsets:
        raise ArtefactError(f"{where}: truncated or not an ONNX file (no graph in it); copy or export it again")
    return OnnxHeader(ir_version, opsets, metadata)


def _text(value: int | memoryview | None) -> str:
    return "" if value is None else bytes(value).decode()


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of each field of a message: an integer, or the bytes of the rest."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise ValueError(f"field number 0 at byte {position - 1}")
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == _LENGTH:
            length, position = _varint(data, position)
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"unknown wire type {wire} at byte {position}")
        if position + length > len(data):
            raise ValueError(f"{position + length - len(data)} bytes are missing at the end")
        yield number, data[position : position + length]
        position += length


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise ValueError("the last number is cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError(f"a number longer than 64 bits at byte {position}")
