"""One HTML page that holds everything: styles, plots and film are inside, nothing is fetched."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from testudo_analysis.report import sections
from testudo_analysis.report.html_markup import text
from testudo_analysis.report.report_data import ReportData
from testudo_analysis.report.summary import all_passed, verdicts

_SECTIONS = (
    ("summary", "Summary", sections.headline),
    ("fleet", "Fleet run", sections.fleet),
    ("shield", "Shield", sections.shield),
    ("training", "Training", sections.training),
    ("evaluation", "Evaluation", sections.evaluation),
    ("parity", "Parity", sections.parity),
    ("reinference", "Re-inference", sections.reinference),
    ("gap", "Gap", sections.gap),
    ("margins", "Margins", sections.margins),
    ("versions", "Versions and hashes", sections.versions),
    ("next", "How to go on", sections.next_steps),
)


def write_html(data: ReportData, path: Path) -> Path:
    """Write the page and return its path.

    Raises:
        TestudoError: the film cannot be read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(data), encoding="utf-8")
    return path


def page(data: ReportData) -> str:
    """Return the page."""
    style = (resources.files("testudo_analysis.report") / "page.css").read_text(encoding="utf-8")
    made = [(anchor, title, make(data)) for anchor, title, make in _SECTIONS]
    shown = [(anchor, title, content) for anchor, title, content in made if content]
    links = "".join(f'<a href="#{anchor}">{text(title)}</a>' for anchor, title, _ in shown)
    body = "".join(
        f'<section id="{anchor}"><h2>{text(title)}</h2>{content}</section>' for anchor, title, content in shown
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(data.title)}</title><style>{style}</style></head><body>"
        f"<header><div><h1>{text(data.title)}</h1><p>{text(data.subtitle)}</p></div>"
        f"{banner(data)}</header><nav>{links}</nav><main>{body}</main></body></html>\n"
    )


def banner(data: ReportData) -> str:
    """Return the overall verdict; nothing if nothing is asked for."""
    lines = verdicts(data)
    asked = [line for line in lines if line.passed is not None and not line.is_timing]
    if not asked:
        return ""
    good, total = sum(bool(line.passed) for line in asked), len(asked)
    kind, word = ("good", "all passed") if all_passed(lines) else ("bad", f"{total - good} failed")
    count = f"{good} of {total} checks passed"
    return f'<div class="banner {kind}"><strong>{word}</strong>{count}</div>'
