"""HTML elements of the page; all text is escaped here."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape


class Html:
    """Markup, which is not escaped again."""

    def __init__(self, markup: str) -> None:
        self.markup = markup


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


def chart(name: str) -> str:
    """Return the place of a chart that the page's script draws from the data of this name."""
    return f'<div class="chart" data-chart="{escape(name, quote=True)}"></div>'


def details(summary: str, content: str) -> str:
    """Return collapsed content."""
    return f"<details><summary>{text(summary)}</summary>{content}</details>"


def paragraph(value: str) -> str:
    """Return a paragraph of text."""
    return f"<p>{text(value)}</p>"
