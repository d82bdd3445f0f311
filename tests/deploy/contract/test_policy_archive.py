"""A policy in an archive is the policy file itself: same bytes and hash; what cannot be read is refused."""

import zipfile

import pytest
from tests.deploy.tiny_policy import make_tiny_policy

from testudo_deploy.commands.inspect import inspect
from testudo_deploy.contract.policy_archive import policy_bytes, read_policy_contract, write_archive
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.policy_header import ArtefactError
from testudo_deploy.contract.shipped_policies import fleet_beside
from testudo_hardware.spec import load_robot


@pytest.fixture
def plain(tmp_path):
    path = tmp_path / "policy.onnx"
    make_tiny_policy(path, load_robot("gritsbot_x"))
    return PolicyArtefact.load(path)


@pytest.fixture
def archive(plain, tmp_path):
    path = tmp_path / "policies.zip"
    write_archive(path, {plain.contract.scenario: plain.path.read_bytes(), "rware": plain.path.read_bytes()})
    return path


def test_the_same_file_is_loaded_and_the_same_policies_are_the_same_archive(plain, archive):
    inside = archive / f"{plain.contract.scenario}.onnx"
    loaded = PolicyArtefact.load(inside, sha256=plain.sha256)
    assert (loaded.sha256, loaded.contract, loaded.path) == (plain.sha256, plain.contract, inside)
    assert read_policy_contract(inside, plain.sha256) == plain.contract
    assert fleet_beside(inside) == archive.parent / f"fleet_{plain.contract.scenario}.yaml"
    before = archive.read_bytes()
    write_archive(archive, {name.removesuffix(".onnx"): policy_bytes(archive / name) for name in names(archive)})
    assert archive.read_bytes() == before


def names(archive):
    with zipfile.ZipFile(archive) as opened:
        return opened.namelist()


def test_without_a_scenario_or_with_a_wrong_one_it_is_said_what_there_is(plain, archive):
    choice = f"{archive}/{plain.contract.scenario}.onnx or {archive}/rware.onnx"
    with pytest.raises(ArtefactError, match=f"is an archive of several policies; give {choice}"):
        PolicyArtefact.load(archive)
    with pytest.raises(ArtefactError, match=f"is an archive of several policies; give {choice}"):
        inspect(archive)
    with pytest.raises(ArtefactError, match=f"no such policy in the archive; give {choice}"):
        PolicyArtefact.load(archive / "chase.onnx")
    with pytest.raises(ArtefactError, match=f"found a policy for {plain.contract.scenario}, expected one for rware"):
        PolicyArtefact.load(archive / "rware.onnx")


def test_a_damaged_archive_is_refused(plain, archive):
    member = archive / f"{plain.contract.scenario}.onnx"
    data = bytearray(archive.read_bytes())
    data[200] ^= 0xFF
    archive.write_bytes(data)
    with pytest.raises(ArtefactError, match="the archive cannot be read"):
        PolicyArtefact.load(member)
    archive.write_bytes(b"no archive")
    with pytest.raises(ArtefactError, match="found no archive of policies"):
        PolicyArtefact.load(member)
