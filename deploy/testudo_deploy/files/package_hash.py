"""Hash of the sources of packages: results that several runs add to one file say with which sources they were found."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

_LENGTH = 12  # hexadecimal digits that are shown


def package_hash(packages: Iterable[ModuleType], suffixes: tuple[str, ...] = (".py",)) -> str:
    """Return the begin of a hash of the names and contents of all files of some packages with these suffixes."""
    digest = hashlib.sha256()
    for package in packages:
        root = Path(str(package.__file__)).parent
        for path in sorted(path for path in root.rglob("*") if path.suffix in suffixes):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:_LENGTH]
