"""Reads policy files, also from an archive with the policies of a network for several scenarios.

The archive is a zip file with a complete policy file for each scenario, `<scenario>.onnx`. Its path with that name,
such as `policies.zip/foraging.onnx`, stands for the policy wherever a policy file is given.
"""

import hashlib
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from testudo_deploy.contract.contract import METADATA_KEY, Contract
from testudo_deploy.contract.policy_header import ArtefactError, read_header
from testudo_deploy.contract.rules import read_contract
from testudo_deploy.files.atomic_files import whole_file

POLICY_SUFFIX = ".onnx"
_ZIP = b"PK\x03\x04"  # first bytes of an archive; a policy file begins otherwise
_LARGEST = 256 * 2**20  # bytes of an unpacked policy file
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same policies are the same archive


def policy_bytes(path: Path) -> bytes:
    """Return the bytes of a policy file, which may lie in an archive.

    Raises:
        ArtefactError: there is none; naming what the archive holds.
    """
    if path.is_dir():
        raise ArtefactError(f"{path}: is a folder; give the policy.onnx inside it")
    if is_archived(path):
        return _member(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise ArtefactError(f"{path}: no such file; make one with `testudo export`") from error
    except OSError as error:
        raise ArtefactError(f"{path}: cannot be read: {error.strerror}") from error
    if data.startswith(_ZIP):
        raise ArtefactError(f"{path}: is an archive of several policies; give {_choice(path, _names(path))}")
    return data


def policy_sha256(path: Path) -> str:
    """Return the SHA-256 of the bytes of a policy file.

    Raises:
        ArtefactError: there is none.
    """
    return hashlib.sha256(policy_bytes(path)).hexdigest()


def read_policy_contract(path: Path, sha256: str) -> Contract:
    """Return the contract in a policy file with a given hash.

    Raises:
        ArtefactError: unreadable, another file, or without a contract.
        PolicyContractError: no valid contract.
    """
    data = policy_bytes(path)
    found = hashlib.sha256(data).hexdigest()
    if found != sha256.lower():
        raise ArtefactError(f"{path}: sha256: found {found}, expected {sha256} as in the fleet file")
    metadata = read_header(data, str(path)).metadata
    if METADATA_KEY not in metadata:
        raise ArtefactError(f"{path}: metadata key {METADATA_KEY!r}: missing; make a policy file with `testudo export`")
    return read_contract(metadata[METADATA_KEY], f"{path}: contract")


def is_archived(path: Path) -> bool:
    """Return whether a path leads into a file, which can only be an archive."""
    return path.parent.is_file()


def is_archive(path: Path) -> bool:
    """Return whether a file is an archive of policies."""
    try:
        with path.open("rb") as stream:
            begins = stream.read(len(_ZIP)) == _ZIP
    except OSError:
        return False
    return begins and bool(_names(path))


def write_archive(path: Path, policies: Mapping[str, bytes]) -> None:
    """Write an archive of policy files by scenario, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial, zipfile.ZipFile(partial, "w") as archive:
        for scenario, data in policies.items():
            member = zipfile.ZipInfo(f"{scenario}{POLICY_SUFFIX}", _EPOCH)
            archive.writestr(member, data, zipfile.ZIP_DEFLATED)


def _member(path: Path) -> bytes:
    names = _names(path.parent)
    if path.name not in names:
        raise ArtefactError(f"{path}: no such policy in the archive; give {_choice(path.parent, names)}")
    try:
        with zipfile.ZipFile(path.parent) as archive:
            if archive.getinfo(path.name).file_size > _LARGEST:
                raise ArtefactError(f"{path}: found more than {_LARGEST} bytes, expected a policy file")
            return archive.read(path.name)
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, zlib.error) as error:
        raise ArtefactError(f"{path}: the archive cannot be read: {error}; export it again") from error


def _names(archive: Path) -> list[str]:
    try:
        with zipfile.ZipFile(archive) as opened:
            return [name for name in opened.namelist() if name.endswith(POLICY_SUFFIX)]
    except (OSError, zipfile.BadZipFile) as error:
        raise ArtefactError(f"{archive}: found no archive of policies: {error}; export it again") from error


def _choice(archive: Path, names: list[str]) -> str:
    return " or ".join(str(archive / name) for name in names) or "an archive that holds one"
