# ruff: noqa: INP001 (an extension of griffe, not a package)
"""Shows the comment beside a field or constant in the reference, where other attributes have a docstring."""

from __future__ import annotations

import io
import tokenize
from functools import cache
from pathlib import Path
from typing import Any

import griffe


class CommentDocs(griffe.Extension):
    """Takes `name: type  # meaning` as the docstring of an attribute that has none."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Set the docstring of one attribute; griffe calls this for each that it reads from a source."""
        comment = _comments(Path(str(attr.filepath))).get(attr.lineno or 0)
        if attr.docstring is None and comment and not comment.startswith(("noqa", "type:", "fmt:", "pyright:")):
            attr.docstring = griffe.Docstring(comment[0].upper() + comment[1:] + ".", parent=attr)


@cache
def _comments(file: Path) -> dict[int, str]:
    """Return the comments of a file by line number."""
    tokens = tokenize.generate_tokens(io.StringIO(file.read_text(encoding="utf-8")).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
