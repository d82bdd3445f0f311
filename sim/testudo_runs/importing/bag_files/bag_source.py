"""Streams the messages of a bag, whatever its files are: MCAP or SQLite, packed or not, one or many."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import zstandard

from testudo_runs.bags.bag_contents import BagContents, BagError, BagMessage, BagTopic, Keep, Tell
from testudo_runs.bags.mcap_file import McapStream
from testudo_runs.importing.bag_files.bag_folder import BagFolder, is_mcap, is_packed, open_folder
from testudo_runs.importing.bag_files.sqlite_file import SqliteBag

_FRAME = b"\x28\xb5\x2f\xfd"
_MAX_MESSAGE = 1 << 30
_PIECE = 1 << 20


class BagSource:
    """One bag. What is lost goes into ``damage``, in words; what is read adds to ``contents``."""

    def __init__(self, path: str | Path, damage: list[str]) -> None:
        """Find the files of the bag.

        Raises:
            BagError: there is no bag.
        """
        self.damage = damage
        self.folder: BagFolder = open_folder(path, damage)
        self.contents = BagContents()

    @property
    def name(self) -> str:
        """Return how the bag is called where several are merged."""
        return self.folder.name

    def messages(self, keep: Keep = lambda _: True, tell: Tell = lambda _: None) -> Iterator[BagMessage]:
        """Yield the messages of wanted topics, file by file.

        Raises:
            BagError: a file cannot be opened at all.
        """
        sizes = [file.stat().st_size for file in self.folder.files]
        before, known, place = 0, len(self.damage), itertools.count()
        for file, size in zip(self.folder.files, sizes, strict=True):
            scale, begun = size / max(sum(sizes), 1), before / max(sum(sizes), 1)
            for message in self._file(file, keep, lambda share, scale=scale, begun=begun: tell(begun + scale * share)):
                yield message._replace(order=next(place))
            before += size
        expected, found = self.folder.expected, self.contents.count
        if expected is not None and expected != found and len(self.damage) == known:
            self.damage.append(f"{self.name}: holds {found} messages; {expected} were written")

    def _file(self, file: Path, keep: Keep, tell: Tell) -> Iterator[BagMessage]:
        try:
            with TemporaryDirectory(prefix="testudo_bag_") as scratch:
                plain = self._unpacked(file, Path(scratch))
                reader = McapStream if is_mcap(plain) else SqliteBag
                for message in reader(plain, self.contents, self.damage).messages(keep, tell):
                    if message.data[:4] == _FRAME:  # no CDR begins so: each message is packed by itself
                        message = self._opened(message)  # noqa: PLW2901
                    if message is not None:
                        yield message
        except OSError as error:
            raise BagError(f"{file}: cannot be read: {error.strerror or error}") from error

    def _opened(self, message: BagMessage) -> BagMessage | None:
        try:
            data = zstandard.ZstdDecompressor().decompress(message.data, max_output_size=_MAX_MESSAGE)
        except (zstandard.ZstdError, MemoryError):
            self.damage.append(f"{self.name}: a packed message of {message.topic.name} cannot be unpacked; left out")
            return None
        return message._replace(data=data)

    def _unpacked(self, file: Path, scratch: Path) -> Path:
        """Return the file, or what can be unpacked of a packed one."""
        if not is_packed(file):
            return file
        plain = scratch / file.name.removesuffix(".zstd")
        with file.open("rb") as packed, plain.open("wb") as out:
            reader = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
            try:
                while piece := reader.read(_PIECE):
                    out.write(piece)
            except zstandard.ZstdError as error:
                self.damage.append(f"{file.name}: cannot be unpacked to its end ({error})")
        return plain


def survey(
    path: str | Path, damage: list[str], keep: Keep = lambda _: False, tell: Tell = lambda _: None
) -> tuple[BagSource, dict[BagTopic, list[BagMessage]]]:
    """Read a bag to its end and return it with the messages of wanted topics, by topic.

    Raises:
        BagError: there is no bag.
    """
    source = BagSource(path, damage)
    found: dict[BagTopic, list[BagMessage]] = {}
    for message in source.messages(keep, tell):
        found.setdefault(message.topic, []).append(message)
    return source, found
