"""The secret key of a fleet: a file that every computer of the fleet needs, and that belongs in no repository."""

import hashlib
import hmac
import os
import re
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path

from testudo_hardware.errors import TestudoError

_HEAD = "testudo-fleet-key-1"
_BYTES = 32
_FORM = re.compile(rf"{_HEAD} (?P<secret>[0-9a-f]{{{2 * _BYTES}}})\s*")
_REMEDY = "make a key with `testudo security FLEET --key`, and copy it to every computer of the fleet"


NO_KEY = (
    "this fleet has no key: any program that reaches its ROS domain can forge its messages, and drive its robots. "
    "Make a key: testudo security FLEET --key"
)
"""What a fleet without a key reports at its start."""


class FleetKeyError(TestudoError):
    """A key file is missing, readable by others, or not a key file."""


@dataclass(frozen=True)
class FleetKey:
    """A key of 256 bits, from which each purpose derives its own."""

    secret: bytes = field(repr=False)

    @property
    def identifier(self) -> str:
        """Return a short name of the key, which tells nothing about it; equal on all computers of the fleet."""
        return hashlib.sha256(b"identifier" + self.secret).hexdigest()[:8]

    def derived(self, purpose: str) -> bytes:
        """Return the key for one purpose."""
        return hmac.digest(self.secret, purpose.encode(), "sha256")


def new_key() -> FleetKey:
    """Return a new random key."""
    return FleetKey(secrets.token_bytes(_BYTES))


def write_key(key: FleetKey, file: Path) -> None:
    """Write a key that only its owner can read.

    Raises:
        FleetKeyError: the file exists, or cannot be written.
    """
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as stream:
            stream.write(f"{_HEAD} {key.secret.hex()}\n")
    except FileExistsError as error:
        raise FleetKeyError(f"{file}: exists; expected no file: delete it first, or keep this key") from error
    except OSError as error:
        raise FleetKeyError(f"{file}: cannot be written: {error.strerror}") from error


def load_key(file: Path) -> FleetKey:
    """Read a key.

    Raises:
        FleetKeyError: missing, unreadable, readable by other users, or not a key file.
    """
    try:
        mode = file.stat().st_mode
        text = file.read_text(encoding="ascii")
    except OSError as error:
        raise FleetKeyError(f"{file}: fleet key cannot be read: {error.strerror}; {_REMEDY}") from error
    except UnicodeDecodeError as error:
        raise FleetKeyError(f"{file}: not a fleet key; {_REMEDY}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise FleetKeyError(
            f"{file}: found the permissions {stat.filemode(mode)}, expected -rw-------: run chmod 600 {file}"
        )
    found = _FORM.fullmatch(text)
    if found is None:
        raise FleetKeyError(f"{file}: not a fleet key, expected one line `{_HEAD} ...`; {_REMEDY}")
    return FleetKey(bytes.fromhex(found["secret"]))
