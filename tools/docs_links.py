# ruff: noqa: INP001 (a hook of mkdocs, not a package)
"""Turns links to files outside of docs/ into plain code text: the site holds the pages, not the sources."""

from __future__ import annotations

import re
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+(?!tutorials/|images/)[\w./-]+\.(?:py|toml|md|yaml|sh|js))(?:#[\w-]+)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text of a page with its links to sources as code; mkdocs calls this for every page."""
    depth = page.file.src_uri.count("/")

    def shown(found: re.Match[str]) -> str:
        text, target = found[1], found[2]
        outside = target.count("../") > depth
        return f"`{text.strip('`')}`" if outside else found[0]

    return _LINK.sub(shown, markdown)
