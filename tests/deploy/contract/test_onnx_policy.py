"""The header is what the `onnx` package reads; a file that is cut short is never taken whole."""

import onnx
import pytest
from tests.deploy.tiny_policy import make_tiny_policy

from testudo_deploy.contract.policy_header import ArtefactError, read_header
from testudo_hardware.spec import load_robot


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("header") / "policy.onnx"
    make_tiny_policy(path, load_robot("gritsbot_x"))
    return path.read_bytes()


def test_header_is_what_the_onnx_package_reads(data):
    model = onnx.load_from_string(data)
    header = read_header(data, "policy.onnx")
    assert header.ir_version == model.ir_version
    assert header.opsets == {item.domain: item.version for item in model.opset_import}
    assert header.metadata == {item.key: item.value for item in model.metadata_props}
    assert len(header.metadata["testudo"]) > 1000


def test_large_versions_and_other_domains_are_read(data):
    model = onnx.load_from_string(data)
    model.ir_version = 2**40
    model.opset_import.append(onnx.helper.make_opsetid("com.example", 300))
    header = read_header(model.SerializeToString(), "policy.onnx")
    assert header.ir_version == 2**40
    assert header.opsets["com.example"] == 300


def test_a_cut_file_is_refused_or_has_lost_its_last_fields(data):
    whole = read_header(data, "policy.onnx")
    refused = 0
    for length in range(1, len(data), 7):
        try:
            assert read_header(data[:length], "policy.onnx") != whole
        except ArtefactError:
            refused += 1
    assert refused > 0.95 * len(data) / 7


@pytest.mark.parametrize("junk", [b"\x00" * 100, b"not an ONNX file at all", b"\xff" * 64, b"{}"])
def test_what_is_no_onnx_file_is_refused(junk):
    with pytest.raises(ArtefactError, match="truncated or not an ONNX file"):
        read_header(junk, "policy.onnx")
