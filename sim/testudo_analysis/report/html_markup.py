"""HTML elements of the pages; all text is escaped here."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from testudo_analysis.report.plot_style import PlotImage
from testudo_hardware.errors import TestudoError

_FILM_TYPES = {".gif": "image/gif", ".webp": "image/webp", ".png": "image/png"}


class Html:
    """Markup, which is not escaped again."""

    def __init__(self, markup: str) -> None:
        self.markup = markup


def document(
    title: str, subtitle: str, sections: Iterable[tuple[str, str, str]], *, banner: str = "", heading: str = ""
) -> str:
    """Return a self-contained page.

    ``title`` is that of the window, and of the page without ``heading``; each section has an anchor, title and content,
    and those without content are left out; ``banner`` is markup beside the heading.
    """
    style = (resources.files("testudo_analysis.report") / "page.css").read_text(encoding="utf-8")
    shown = [section for section in sections if section[2]]
    links = "".join(f'<a href="#{anchor}">{text(name)}</a>' for anchor, name, _ in shown)
    body = "".join(
        f'<section id="{anchor}"><h2>{text(name)}</h2>{content}</section>' for anchor, name, content in shown
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{style}</style></head><body>"
        f"<header><div><h1>{text(heading or title)}</h1><p>{text(subtitle)}</p></div>{banner}</header>"
        f"<nav>{links}</nav><main>{body}</main></body></html>\n"
    )


def text(value: object) -> str:
    """Return a value as escaped text; None becomes a dash."""
    return "-" if value is None else escape(str(value))


def pill(passed: bool | None, good: str = "passed", bad: str = "failed") -> Html:
    """Return the label of a verdict; None is for information only."""
    if passed is None:
        return Html('<span class="pill none">for information</span>')
    kind, word = ("good", good) if passed else ("bad", bad)
    return Html(f'<span class="pill {kind}">{text(word)}</span>')


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Iterable[int] = ()) -> str:
    """Return a table; columns ``numbers`` are right-aligned. Cells may be `Html`."""
    right = set(numbers)

    def cells(tag: str, values: Sequence[object]) -> str:
        return "".join(
            f"<{tag}{' class=num' if k in right else ''}>"
            f"{value.markup if isinstance(value, Html) else text(value)}</{tag}>"
            for k, value in enumerate(values)
        )

    head = f"<thead><tr>{cells('th', columns)}</tr></thead>" if any(columns) else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>'


def code(value: object) -> Html:
    """Return a value in monospace type."""
    return Html(f"<code>{text(value)}</code>")


def facts(values: Mapping[str, object]) -> str:
    """Return a list of names and values."""
    items = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in values.items())
    return f'<dl class="facts">{items}</dl>'


def figure(picture: PlotImage | None, caption: str) -> str:
    """Return a plot with its caption; empty without a plot."""
    if picture is None:
        return ""
    image = f'<img alt="{escape(picture.description, quote=True)}" src="{picture.data_uri}">'
    return f"<figure>{image}<figcaption>{text(caption)}</figcaption></figure>"


def film(path: Path, caption: str) -> str:
    """Return an embedded animation or picture from a file.

    Raises:
        TestudoError: the file is missing, or its type is not supported.
    """
    kind = _FILM_TYPES.get(path.suffix.lower())
    if kind is None:
        known = ", ".join(_FILM_TYPES)
        raise TestudoError(f"{path}: film: found {path.suffix!r}, expected one of {known}")
    try:
        data = base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise TestudoError(f"{path}: film: cannot be read: {error.strerror}") from error
    image = f'<img class="film" alt="film of the run" src="data:{kind};base64,{data}">'
    return f"<figure>{image}<figcaption>{text(caption)}</figcaption></figure>"


def link(address: str, words: str, about: str) -> str:
    """Return a link to a file in the folder of the page, with a description."""
    return f'<p><a href="{escape(quote(address), quote=True)}">{text(words)}</a>: {text(about)}.</p>'


def details(summary: str, content: str) -> str:
    """Return collapsed content."""
    return f"<details><summary>{text(summary)}</summary>{content}</details>"


def paragraph(value: str) -> str:
    """Return a paragraph of text."""
    return f"<p>{text(value)}</p>"
