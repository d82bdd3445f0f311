"""Damaged bags: never a traceback, nothing false, the valid part kept, and what was lost is told.

The bags hold two topics whose values follow from their stamps, so that every sample that comes back can be checked.
"""

import shutil

import numpy as np
import pytest
from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter
from tests.runs.importing.bag_maker import NANO, START_NS, STORE, TYPES, mapping, message, write_bag

from testudo_deploy.cli import main
from testudo_hardware.errors import TestudoError
from testudo_runs.importing.bags import propose_map, read_bags
from testudo_runs.importing.bags.bag_recovery import recover_bag

COUNT = 600
TEXT = "{topic: /r0/odom, robot: r0, role: odometry}\n{topic: /r0/cmd_vel, robot: r0, role: command}"
FORMS = ("zstd", "plain", "sqlite3")


def values_at(k):
    """Return what the message of number k says: 13 numbers of which no two are alike."""
    return np.sin(k * 0.37 + np.arange(13)) + k


def rows():
    for k in range(COUNT):
        stamp = START_NS + k * 10_000_000
        yield "/r0/odom", "Odometry", stamp, message("Odometry", stamp, values_at(k), "odom", "base")
        yield "/r0/cmd_vel", "TwistStamped", stamp, message("TwistStamped", stamp, values_at(k)[:6], "base")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a bag of each form: MCAP in small packed chunks with checksums, MCAP plain without, SQLite."""
    base = tmp_path_factory.mktemp("bags")
    write_bag(base / "plain", rows())
    write_bag(base / "sqlite3", rows(), storage="sqlite3")
    write_bag(base / "zstd", list(rows())[:1])
    with (base / "zstd" / "zstd.mcap").open("wb") as stream:
        writer = McapWriter(stream, chunk_size=8192, compression=CompressionType.ZSTD)
        writer.start(profile="ros2", library="test")
        channels = {}
        for topic, kind, stamp, content in rows():
            name = TYPES[kind]
            if topic not in channels:
                definition = STORE.generate_msgdef(name, ros_version=2)[0].encode()
                channels[topic] = writer.register_channel(
                    topic, "cdr", writer.register_schema(name, "ros2msg", definition)
                )
            writer.add_message(channels[topic], stamp, bytes(STORE.serialize_cdr(content, name)), stamp)
        writer.finish()
    text = (base / "plain" / "metadata.yaml").read_text().replace("plain", "zstd")
    (base / "zstd" / "metadata.yaml").write_text(text)
    return base


def bag_file(bag):
    return next(file for file in bag.iterdir() if file.suffix in (".mcap", ".db3"))


def sentence_of(call):
    """Return what a call gives, and the one sentence in which it is refused instead."""
    try:
        return call(), ""
    except TestudoError as error:
        sentence = str(error)
    assert sentence
    assert "\n" not in sentence
    return None, sentence


def read(bag):
    """Return which messages came back, by role, and what was told; None if the bag was refused in a sentence."""
    damage = []
    found, refused = sentence_of(lambda: read_bags([bag], mapping(TEXT), lambda _: None, damage))
    if refused:
        return None, [refused]
    numbers = {}
    for role, series in found.robots["r0"].series.items():
        times_ns = np.rint(series.stamp_s * NANO).astype(np.int64) + (found.start_ns - START_NS)
        numbers[role] = {int(t) // 10_000_000: row for t, row in zip(times_ns, series.values, strict=True)}
    return numbers, damage


def check_true(numbers):
    for role, found in numbers.items():
        for k, row in found.items():
            assert 0 <= k < COUNT
            np.testing.assert_array_equal(row, values_at(k)[: len(row)], err_msg=f"{role} {k}")


def share_kept(numbers):
    return sum(len(found) for found in numbers.values()) / (2 * COUNT) if numbers else 0.0


def cut(share):
    return lambda data: data[: int(len(data) * share)]


def overwritten(share, size, byte=0):
    def spoil(data):
        at = int(len(data) * share)
        return data[:at] + bytes([byte]) * len(data[at : at + size]) + data[at + size :]

    return spoil


def swapped(at, new):
    return lambda data: data[:at] + new + data[at + len(new) :]


def removed(share, size):
    return lambda data: data[: int(len(data) * share)] + data[int(len(data) * share) + size :]


def inserted(share, size):
    def spoil(data):
        at = int(len(data) * share)
        return data[:at] + np.random.default_rng(0).bytes(size) + data[at:]

    return spoil


def doubled(share, size):
    return lambda data: data[: int(len(data) * share) + size] + data[int(len(data) * share) :]


def flipped(count, low=0.05, high=0.95):
    def spoil(data):
        rng, spoilt = np.random.default_rng(1), bytearray(data)
        for at in rng.integers(int(len(data) * low), int(len(data) * high), count):
            spoilt[at] ^= 1 << int(rng.integers(8))
        return bytes(spoilt)

    return spoil


DAMAGE = {  # what is done to the file, and the share of the messages that must be left at least
    "cut at 20 %": (cut(0.2), 0.1),
    "cut at 50 %": (cut(0.5), 0.35),
    "cut at 90 %": (cut(0.9), 0.7),
    "last byte cut": (cut(0.999999), 0.9),
    "end cut": (lambda data: data[:-50], 0.9),
    "cut to its beginning": (lambda data: data[:40], 0.0),
    "empty": (lambda _: b"", 0.0),
    "beginning overwritten": (swapped(0, b"\xff" * 8), 0.7),
    "first block overwritten": (swapped(0, b"\xff" * 600), 0.0),
    "a zero block in the middle": (overwritten(0.5, 4096), 0.4),
    "a block of ones early": (overwritten(0.15, 4096, 255), 0.1),
    "a large hole": (overwritten(0.3, 20_000), 0.2),
    "the end overwritten": (overwritten(0.95, 1 << 20), 0.6),
    "a piece missing": (removed(0.5, 1000), 0.3),
    "one byte missing": (removed(0.5, 1), 0.3),
    "a piece twice": (doubled(0.4, 777), 0.3),
    "garbage inside": (inserted(0.5, 500), 0.3),
    "garbage behind": (inserted(1.0, 5000), 0.9),
    "one bit": (flipped(1), 0.8),
    "twenty bits": (flipped(20), 0.0),
    "a thousand bits": (flipped(1000), 0.0),
    "all garbage": (lambda data: np.random.default_rng(2).bytes(len(data)), 0.0),
    "all zero": (lambda data: bytes(len(data)), 0.0),
    "another format": (lambda _: b"PK\x03\x04" + bytes(1000), 0.0),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", DAMAGE)
def test_the_valid_part_is_kept_and_the_rest_is_told(whole, tmp_path, form, kind):
    spoil, least = DAMAGE[kind]
    bag = shutil.copytree(whole / form, tmp_path / form)
    file = bag_file(bag)
    data = file.read_bytes()
    file.write_bytes(spoil(data))
    numbers, told = read(bag)
    # a change of what no message needs, such as an index, costs nothing; without checksums a bit's change is not seen
    assert told or share_kept(numbers) == 1.0 or ("bit" in kind and form != "zstd")
    # twenty flipped bits fall upon the tree of a database as well as upon its rows
    if form == "zstd" or "bit" not in kind:
        check_values = form == "zstd" or not kind.startswith(
            ("a piece", "one byte", "garbage", "a zero", "a block", "a large", "the end")
        )
        if check_values:
            check_true(numbers or {})
    assert share_kept(numbers) >= (least if form != "sqlite3" or kind not in SHIFTED else 0.0)


SHIFTED = {"a piece missing", "one byte missing", "a piece twice", "garbage inside", "beginning overwritten"}
"""Pages of a database stand at multiples of their size: behind a shift none is found."""


def test_chunks_before_a_damage_are_all_there(whole, tmp_path):
    """Of MCAP with checksums every chunk before the damage comes back, and those behind it, too."""
    bag = shutil.copytree(whole / "zstd", tmp_path / "zstd")
    file = bag_file(bag)
    data = file.read_bytes()
    for share in np.linspace(0.1, 0.9, 9):
        file.write_bytes(overwritten(share, 16, 255)(data))
        numbers, told = read(bag)
        check_true(numbers)
        missing = sorted(set(range(COUNT)) - set(numbers["odometry"]))
        assert told or not missing
        assert len(missing) < 80  # at most two chunks
        file.write_bytes(cut(share)(data))
        numbers, _ = read(bag)
        check_true(numbers)
        have = sorted(numbers["odometry"])
        assert have == list(range(len(have)))  # a prefix, without holes


@pytest.mark.parametrize("form", FORMS)
def test_random_damage_never_ends_in_a_traceback(whole, tmp_path, form):
    """Random damages: read, proposed and rebuilt, or refused in one sentence."""
    rng = np.random.default_rng(FORMS.index(form))
    bag = shutil.copytree(whole / form, tmp_path / form)
    file = bag_file(bag)
    data = file.read_bytes()
    for trial in range(24):
        spoilt = bytearray(data)
        for _ in range(rng.integers(1, 6)):
            at, size = int(rng.integers(len(spoilt))), int(rng.integers(1, 3000))
            kind = rng.integers(5)
            if kind == 0:
                spoilt[at : at + size] = rng.bytes(min(size, len(spoilt) - at))
            elif kind == 1:
                del spoilt[at : at + size]
            elif kind == 2:
                spoilt[at:at] = rng.bytes(size)
            elif kind == 3:
                del spoilt[max(at, 10) :]
            else:
                spoilt[at] ^= 255
        file.write_bytes(bytes(spoilt))
        read(bag)
        if trial % 8 == 0:
            for use in (propose_map, lambda path: recover_bag(path, tmp_path / f"out{trial}")):  # noqa: B023
                sentence_of(lambda use=use: use(bag))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "rosbag2_bagfile_information: 7",
        "{",
        "\x00\x01",
        "rosbag2_bagfile_information: {version: x}",
        "rosbag2_bagfile_information: {version: 99, relative_file_paths: [gone.mcap]}",
        "rosbag2_bagfile_information: {version: 5, relative_file_paths: [../../secret.db3, 7, null]}",
        "rosbag2_bagfile_information: {version: 5, message_count: many, topics_with_message_count: [1, {}]}",
    ],
)
def test_metadata_that_does_not_hold_costs_nothing(whole, tmp_path, text):
    bag = shutil.copytree(whole / "zstd", tmp_path / "zstd")
    (bag / "metadata.yaml").write_text(text)
    numbers, _ = read(bag)
    check_true(numbers)
    assert share_kept(numbers) == 1.0


def test_a_missing_part_of_a_split_bag_is_told(whole, tmp_path):
    bag = shutil.copytree(whole / "zstd", tmp_path / "zstd")
    text = (bag / "metadata.yaml").read_text().replace("- zstd.mcap", "- zstd.mcap\n  - zstd_1.mcap")
    (bag / "metadata.yaml").write_text(text)
    numbers, told = read(bag)
    assert share_kept(numbers) == 1.0
    assert any("zstd_1.mcap is missing" in line for line in told)


@pytest.mark.parametrize("form", FORMS)
def test_a_packed_file_that_was_cut(whole, tmp_path, form):
    import zstandard

    bag = shutil.copytree(whole / form, tmp_path / form)
    file = bag_file(bag)
    packer, data = zstandard.ZstdCompressor().compressobj(), file.read_bytes()
    packed = (
        b"".join(
            packer.compress(data[at : at + 4096]) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
            for at in range(0, len(data), 4096)
        )
        + packer.flush()
    )
    file.with_name(file.name + ".zstd").write_bytes(packed[: len(packed) * 3 // 4])
    file.unlink()
    numbers, told = read(bag)
    assert told
    check_true(numbers or {})
    assert share_kept(numbers) > 0.3


def test_a_killed_recorder_leaves_a_log_beside_the_database(tmp_path):
    """What stands in the write-ahead log alone is read, too, and the source stays as it is."""
    import sqlite3

    bag = write_bag(tmp_path / "bag", list(rows())[:200], storage="sqlite3")
    base = bag / "bag.db3"
    connection = sqlite3.connect(base)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    for number, (_, kind, stamp, content) in enumerate(list(rows())[200:400]):
        data = bytes(STORE.serialize_cdr(content, TYPES[kind]))
        connection.execute(
            "INSERT INTO messages (topic_id, timestamp, data) VALUES (?, ?, ?)", (1 + number % 2, stamp, data)
        )
    connection.commit()
    killed = shutil.copytree(bag, tmp_path / "killed")
    connection.close()
    assert (killed / "bag.db3-wal").stat().st_size
    (killed / "bag.db3-shm").unlink(missing_ok=True)
    before = {file.name: file.read_bytes() for file in killed.iterdir()}
    (killed / "metadata.yaml").unlink()
    numbers, told = read(killed)
    check_true(numbers)
    assert len(numbers["odometry"]) == len(numbers["command"]) == 200
    assert not told
    before.pop("metadata.yaml")
    assert {file.name: file.read_bytes() for file in killed.iterdir()} == before


@pytest.mark.parametrize("form", FORMS)
def test_the_exit_status_tells_of_damage_unless_it_is_allowed(whole, tmp_path, form, capsys):
    bag = shutil.copytree(whole / form, tmp_path / form)
    (tmp_path / "map.yaml").write_text(
        "schema: testudo/map/1\nname: lab\nabout: test\ntopics:\n"
        + "".join(f"  - {line}\n" for line in TEXT.splitlines())
    )
    words = ["--map", str(tmp_path / "map.yaml"), "--robot-type", "irobot_create", "--allow-implausible"]
    assert main(["import", str(bag), str(tmp_path / "a"), *words]) == 0
    file = bag_file(bag)
    file.write_bytes(cut(0.6)(file.read_bytes()))
    assert main(["import", str(bag), str(tmp_path / "b"), *words]) == 1
    assert main(["import", str(bag), str(tmp_path / "c"), *words, "--allow-damage"]) == 0
    assert "Lost" in capsys.readouterr().out
    assert main(["inspect", str(tmp_path / "c")]) in (0, None)
