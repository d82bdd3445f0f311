"""Every changed, missing, inserted or moved message breaks the chain of hashes, and the topic is named."""

import json
import shutil
from dataclasses import replace

import pytest
from tests.deploy.run_messages import RunMessages, record
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_bench.tampering.run_copy import Note, RunCopy
from testudo_deploy.authentication.fleet_key import FleetKey, new_key, write_key
from testudo_deploy.launch.run_folder import RunWriter
from testudo_runs.bags.mcap_file import read_messages
from testudo_runs.importing.bags.bag_recovery import recover_bag
from testudo_runs.run_reader import read_run

TICKS = 60


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return make_tiny_fleet(tmp_path_factory.mktemp("fleet"), 2, "gritsbot_x")


@pytest.fixture(scope="module")
def folder(fleet, tmp_path_factory):
    return record(tmp_path_factory.mktemp("run") / "run", fleet, TICKS)


@pytest.fixture(scope="module")
def copy(folder):
    return RunCopy.of(folder)


def proof_of(folder):
    damage = []
    return read_messages(folder, damage)[1], damage


def test_an_unchanged_run_is_proven_and_so_is_a_copy_of_its_records(folder, copy, tmp_path):
    for run in (folder, copy.write(tmp_path / "copy")):
        proof, damage = proof_of(run)
        assert proof.is_whole
        assert damage == []
        assert proof.proven == proof.messages == len(copy.places)
        assert len(proof.checkpoints) > 4


def replaced(records, place, **changes):
    return [*records[:place], records[place]._replace(**changes), *records[place + 1 :]]


def swapped(records, place):
    return [*records[:place], records[place + 1], records[place], *records[place + 2 :]]


CHANGES = {
    "changed": lambda r, k: replaced(r, k, data=r[k].data[:-1] + bytes([r[k].data[-1] ^ 1])),
    "sequence": lambda r, k: replaced(r, k, sequence=r[k].sequence + 7),
    "time": lambda r, k: replaced(r, k, log_ns=r[k].log_ns + 1),
    "publish time": lambda r, k: replaced(r, k, publish_ns=r[k].publish_ns - 1),
    "missing": lambda r, k: [*r[:k], *r[k + 1 :]],
    "inserted": lambda r, k: [*r[: k + 1], *r[k:]],
    "moved": swapped,
}


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_one_change_is_named_with_its_topic(copy, tmp_path, kind, share):
    places = copy.places[:-1]
    place = places[round(share * (len(places) - 2))]
    if not isinstance(copy.records[place + 1], Note):
        place -= 1
    found = copy.with_records(CHANGES[kind]([*copy.records], place)).write(tmp_path / "run")
    proof, damage = proof_of(found)
    assert not proof.is_whole
    expected = kind if kind in ("missing", "inserted", "moved") else "changed"
    assert {one.kind for one in proof.deviations} == {expected}
    assert proof.is_contradicted == (kind != "missing")
    assert copy.note(place).topic in {one.topic for one in proof.deviations}
    assert all(any(str(one) in text for text in damage) for one in proof.deviations)
    assert not read_run(found).complete


@pytest.mark.parametrize("which", ["first", "middle", "last", "all"])
def test_a_chain_without_a_record_is_no_proof(copy, tmp_path, which):
    chain = [k for k, one in enumerate(copy.records) if not isinstance(one, Note)]
    gone = {"first": chain[:1], "middle": chain[2:3], "last": chain[-1:], "all": chain}[which]
    kept = [one for k, one in enumerate(copy.records) if k not in gone]
    found = copy.with_records(kept).write(tmp_path / "run")
    proof, damage = proof_of(found)
    assert not proof.is_whole
    assert damage
    assert proof.exists == (which != "all")


@pytest.mark.parametrize("key", ["total", "tags", "counts", "hash", "previous", "number", "final"])
def test_a_changed_checkpoint_is_a_fault(copy, tmp_path, key):
    chain = [k for k, one in enumerate(copy.records) if not isinstance(one, Note)]
    place = chain[2]
    other = {**copy.records[chain[3]], "counts": "{}", "final": "yes"}
    changed = {**copy.records[place], key: other[key]}
    records = [*copy.records[:place], changed, *copy.records[place + 1 :]]
    proof, damage = proof_of(copy.with_records(records).write(tmp_path / "run"))
    assert not proof.is_whole
    assert damage


def test_a_changed_file_or_definition_is_a_fault(folder, copy, tmp_path):
    changed = replace(copy, facts={"policy_sha256": "0" * 64})
    assert any("attached file" in text for text in proof_of(changed.write(tmp_path / "facts"))[1])
    beside = shutil.copytree(folder, tmp_path / "beside")
    info = json.loads((beside / "run.json").read_text())
    (beside / "run.json").write_text(json.dumps(info | {"seed": 5}))
    assert any("run.json: is not the file" in text for text in proof_of(beside)[1])


def test_a_cut_run_is_proven_up_to_its_last_checkpoint(folder, tmp_path):
    cut = shutil.copytree(folder, tmp_path / "cut")
    data = (cut / "run_0.mcap").read_bytes()
    (cut / "run_0.mcap").write_bytes(data[: int(0.6 * len(data))])
    proof, damage = proof_of(cut)
    assert 0 < proof.proven <= proof.messages
    assert not proof.deviations
    assert not proof.is_closed
    assert "cut off after checkpoint" in proof.sentence
    assert damage
    notes = recover_bag(cut, tmp_path / "rescued").notes
    assert any(f"{proof.proven} of {proof.messages} messages are as recorded" in note for note in notes)
    assert read_run(tmp_path / "rescued").proof.exists is False


def test_a_wholly_rewritten_run_shows_only_by_key_or_last_hash(copy, tmp_path):
    place = copy.places[50]
    changed = copy.with_records(CHANGES["changed"]([*copy.records], place)).chained()
    proof, damage = proof_of(changed.write(tmp_path / "run", tells_hash=True))
    assert proof.is_whole
    assert damage == []
    assert proof.refusals(None, "") == []
    assert proof.refusals(new_key(), "")
    original = proof_of(copy.folder)[0].last_hash
    assert proof.refusals(None, original)
    assert proof_of(copy.folder)[0].refusals(None, original) == []


def test_the_key_of_the_fleet_signs_every_checkpoint(fleet, tmp_path):
    key = new_key()
    write_key(key, tmp_path / "fleet.key")
    messages = RunMessages(fleet)
    with RunWriter(tmp_path / "run", messages.topics, replace(fleet, key_file=tmp_path / "fleet.key")) as writer:
        for k in range(30):
            for topic, data in messages.at(writer._start_s + 0.033 * k, k):
                writer.write(topic, data, writer._start_s + 0.033 * k)
    proof, damage = proof_of(tmp_path / "run")
    assert (proof.is_whole, proof.is_signed, damage) == (True, True, [])
    assert proof.last_hash == writer.chain_hash
    assert proof.refusals(key, writer.chain_hash) == []
    assert "not signed with this fleet key" in proof.refusals(FleetKey(bytes(32)), "")[0]
    rewritten = RunCopy.of(tmp_path / "run").chained()
    proof, _ = proof_of(rewritten.write(tmp_path / "rewritten", tells_hash=True))
    assert "not signed" in proof.refusals(key, "")[0]


def test_a_run_without_a_chain_is_named_as_such_and_read(copy, tmp_path):
    """As older recorders wrote it: neither checkpoints nor a word of them in run.json."""
    info = json.loads((copy.folder / "run.json").read_text())
    del info["chain"]
    text = json.dumps(info, indent=2) + "\n"
    attached = tuple(replace(one, data=text.encode()) if one.name == "run.json" else one for one in copy.attached)
    notes = [one for one in copy.records if isinstance(one, Note)]
    found = replace(copy, attached=attached).with_records(notes).write(tmp_path / "run", tells_hash=True)
    (found / "run.json").write_text(text)
    run = read_run(found)
    assert run.complete
    assert run.warnings == ()
    assert "no chain of hashes" in run.proof.sentence
