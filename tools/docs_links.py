# ruff: noqa: INP001 (a hook of mkdocs, not a package)
"""Hooks of mkdocs: links to files outside of docs/ become code text, and the site contains the script of Mermaid."""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.utils import get_relative_url

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+(?!tutorials/|images/)[\w./-]+\.(?:py|toml|md|yaml|sh|js))(?:#[\w-]+)?\)")

_MERMAID = "assets/javascripts/mermaid.min.js"
_MERMAID_SHA256 = "74d7c46dabca328c2294733910a8aa1ed0c37451776e8d5295da38a2b758fb9b"
"""Of dist/mermaid.min.js in the npm package mermaid 11.16.0."""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text of a page with its links to sources as code; mkdocs calls this for every page."""
    depth = page.file.src_uri.count("/")

    def shown(found: re.Match[str]) -> str:
        text, target = found[1], found[2]
        outside = target.count("../") > depth
        return f"`{text.strip('`')}`" if outside else found[0]

    return _LINK.sub(shown, markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Return the HTML of a page; a page with Mermaid pictures loads the script of the site."""
    if 'class="mermaid"' not in output:
        return output
    return output.replace("</head>", f'<script src="{get_relative_url(_MERMAID, page.url)}"></script></head>', 1)


def on_post_build(config: Any, **_: Any) -> None:
    """Write the script of Mermaid into the site.

    Raises:
        PluginError: the script of the package is not the published one.
    """
    script = resources.files("artoo_mermaid").joinpath("assets/mermaid.min.js").read_bytes()
    found = hashlib.sha256(script).hexdigest()
    if found != _MERMAID_SHA256:
        raise PluginError(f"artoo_mermaid: mermaid.min.js: found SHA-256 {found}, expected {_MERMAID_SHA256}")
    target = Path(config.site_dir) / _MERMAID
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(script)
