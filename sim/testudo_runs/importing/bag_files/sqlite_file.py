"""Reads the messages of a rosbag2 SQLite file, whole or damaged, of any version of its tables."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from testudo_runs.bags.bag_contents import CDR, BagContents, BagMessage, BagTopic, Keep, Tell
from testudo_runs.importing.bag_files.sqlite_pages import Pages, Value, is_cut

_BLOCK = 1000
_BESIDE = ("-wal", "-journal")
_TOPIC_COLUMNS = ("id", "name", "type", "serialization_format", "offered_qos_profiles", "type_description_hash")


class SqliteBag:
    """Reads one file; what is lost goes into ``damage``, in words. The file itself is never written to."""

    def __init__(self, file: Path, contents: BagContents, damage: list[str]) -> None:
        self._file, self._contents, self._damage = file, contents, damage
        self._topics: dict[int, BagTopic] = {}

    def messages(self, keep: Keep, tell: Tell = lambda _: None) -> Iterator[BagMessage]:
        """Yield the messages of wanted topics in the order of their rows."""
        taken: set[int] = set()
        try:
            yield from self._regular(keep, tell, taken)
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            before = self._contents.count
            yield from self._salvaged(keep, taken)
            self._damage.append(
                f"{self._file.name}: the database is damaged ({error}): {len(taken)} messages were "
                f"read, {self._contents.count - before} of them page by page"
            )

    def _regular(self, keep: Keep, tell: Tell, taken: set[int]) -> Iterator[BagMessage]:
        with TemporaryDirectory(prefix="testudo_bag_") as scratch:
            file = self._beside_copied(Path(scratch))
            if file == self._file and (cut := is_cut(file)):
                # SQLite would take zeros for what is missing of a page
                raise sqlite3.DatabaseError(cut)
            with closing(sqlite3.connect(f"{file.absolute().as_uri()}?{self._mode(file)}", uri=True)) as base:
                self._read_topics(base)
                (last,) = base.execute("SELECT max(id) FROM messages").fetchone()
                rows = base.execute("SELECT id, topic_id, timestamp, data FROM messages ORDER BY id")
                unknown, before = 0, None
                while block := rows.fetchmany(_BLOCK):
                    for number, topic_id, log_ns, data in block:
                        if before is not None and number <= before:  # a broken tree may go round in circles
                            raise sqlite3.DatabaseError("its rows do not follow one another")
                        before = number
                        topic = self._topics.get(topic_id)
                        taken.add(number)
                        if topic is None or not isinstance(log_ns, int) or not isinstance(data, bytes):
                            unknown += 1
                            continue
                        self._contents.take(topic, log_ns)
                        if keep(topic):
                            yield BagMessage(topic, log_ns, log_ns, 0, data)
                    tell(block[-1][0] / max(last, 1))
                if unknown:
                    self._damage.append(
                        f"{self._file.name}: {unknown} messages are of no known topic or of no message's form; left out"
                    )

    def _mode(self, file: Path) -> str:
        return "immutable=1" if file == self._file else "mode=rw"

    def _beside_copied(self, scratch: Path) -> Path:
        """Return the file, or a copy where a killed recorder left a log beside it that has to be applied first."""
        beside = [
            name
            for end in _BESIDE
            if (name := self._file.with_name(self._file.name + end)).is_file() and name.stat().st_size
        ]
        if not beside:
            return self._file
        for file in (self._file, *beside):
            shutil.copyfile(file, scratch / file.name)
        return scratch / self._file.name

    def _read_topics(self, base: sqlite3.Connection) -> None:
        tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {"topics", "messages"} <= tables:
            raise sqlite3.DatabaseError("the tables of rosbag2 are not in it")
        columns = [row[1] for row in base.execute("PRAGMA table_info(topics)")]
        definitions: dict[str, tuple[str, str]] = {}
        if "message_definitions" in tables:
            definitions = {
                kind: (text, form)
                for kind, form, text in base.execute(
                    "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
                )
            }
        for row in base.execute("SELECT * FROM topics ORDER BY id"):
            facts = dict(zip(columns, row, strict=True))
            self._add_topic(facts, *definitions.get(facts["type"], ("", "")))

    def _add_topic(self, facts: dict[str, Value], text: str, form: str) -> None:
        topic = BagTopic(
            str(facts["name"]),
            str(facts["type"]),
            str(facts.get("serialization_format") or CDR),
            text,
            form,
            str(facts.get("offered_qos_profiles") or ""),
            str(facts.get("type_description_hash") or ""),
        )
        self._topics[int(facts["id"])] = topic
        self._contents.topics.setdefault(topic.name, topic)

    def _salvaged(self, keep: Keep, taken: set[int]) -> Iterator[BagMessage]:
        """Yield what no query gave, from the pages."""
        found: dict[int, tuple[int, int, bytes]] = {}
        topics: dict[int, list[Value]] = {}
        definitions: dict[str, tuple[str, str]] = {}
        for number, row in Pages(self._file).rows():
            match row:
                case [None | int(), int(topic_id), int(log_ns), bytes(data)]:
                    found[number] = (topic_id, log_ns, data)
                case [None | int(), str(name), str(kind), str(), *_] if name.startswith("/") and "/" in kind:
                    topics[number] = row
                case [None | int(), str(kind), "ros2msg" | "ros2idl" as form, str(text), str()]:
                    definitions[kind] = (text, form)
        self._add_rows(topics, definitions)
        unknown = 0
        for number in sorted(found.keys() - taken):
            topic_id, log_ns, data = found[number]
            topic = self._topics.get(topic_id)
            if topic is None:
                unknown += 1
                continue
            taken.add(number)
            self._contents.take(topic, log_ns)
            if keep(topic):
                yield BagMessage(topic, log_ns, log_ns, 0, data)
        if unknown:
            self._damage.append(f"{self._file.name}: {unknown} messages of topics whose names are lost; left out")

    def _add_rows(self, topics: dict[int, list[Value]], definitions: dict[str, tuple[str, str]]) -> None:
        """Take topics that no query gave."""
        for number, row in sorted(topics.items()):
            if number not in self._topics:
                facts = dict(zip(_TOPIC_COLUMNS, [number, *row[1:6]], strict=False))
                self._add_topic(facts, *definitions.get(str(row[2]), ("", "")))
