"""Random changes of the benchmark change one message, are reported by the chain of hashes, and the control is not."""

import numpy as np
import pytest
from tests.deploy.run_messages import record
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_bench.tampering.changes import KINDS, changed
from testudo_bench.tampering.run_copy import RunCopy
from testudo_runs.bags.mcap_file import read_messages


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    base = tmp_path_factory.mktemp("run")
    return RunCopy.of(record(base / "run", make_tiny_fleet(base, 2, "gritsbot_x"), 40))


@pytest.mark.parametrize("kind", KINDS)
def test_a_random_change_is_reported_with_its_topic(run, tmp_path, kind):
    random = np.random.default_rng(1)
    for number in range(6):
        copy, change = changed(run, kind, random)
        assert copy.records != run.records
        damage = []
        proof = read_messages(copy.write(tmp_path / f"{number}"), damage)[1]
        assert not proof.is_whole
        assert any(change.topic in text for text in damage), (change, damage)


def test_the_copy_of_a_run_is_not_reported_and_a_chain_computed_again_hides_a_change(run, tmp_path):
    """The control; and why a chain without a key proves nothing against somebody who rewrites the file."""
    random = np.random.default_rng(2)
    for name, copy in (("copy", run), ("again", changed(run, "field", random)[0].chained())):
        damage = []
        assert read_messages(copy.write(tmp_path / name, tells_hash=True), damage)[1].is_whole
        assert damage == []


def test_every_field_of_every_message_is_in_reach(run):
    random = np.random.default_rng(3)
    fields = {(change.topic, change.field) for _, change in (changed(run, "field", random) for _ in range(400))}
    assert {topic for topic, _ in fields} == {run.note(place).topic for place in run.places}
    assert any(field == "twist.angular.z" for _, field in fields)
    assert any("estimate" in field or "reserved_segment_world" in field for _, field in fields)
