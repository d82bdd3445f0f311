"""The page as one self-contained HTML file: styles, scripts and data are in it, and nothing is fetched."""

import json
from importlib import resources
from pathlib import Path

from testudo_analysis.run_page.html_markup import text
from testudo_analysis.run_page.page_data import CANNOT_TELL, Finding, PageScene, RunPage, Severity
from testudo_deploy.station_page.run_list import VERDICT_NAME
from testudo_hardware.errors import TestudoError

SIGNS = {Severity.BAD: "✖", Severity.DOUBT: "▲", Severity.NOTE: "●", Severity.GOOD: "✔"}
"""Signs beside the colours, for readers who cannot tell these apart."""

_SCRIPTS = ("data.js", "scene.js", "plots.js", "events.js", "charts.js", "page.js")
_MOMENTS = 6  # further moments of one finding with a button
_SHOWN = 6  # findings outside of the collapsed part


def write_page(page: RunPage, path: Path) -> Path:
    """Write the page and return its path.

    Raises:
        TestudoError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document(page), encoding="utf-8")
    except OSError as error:
        raise TestudoError(f"{path}: cannot be written: {error.strerror}") from error
    return path


def document(page: RunPage) -> str:
    """Return the page as HTML."""
    held = json.dumps(page.to_dict(), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    script = "\n".join(_asset(name) for name in _SCRIPTS)
    sections = [("verdict", "Verdict", _verdict(page))]
    if page.scene is not None:
        sections.append(("timeline", "Timeline", _timeline(page.scene)))
    shown = [section for section in page.sections if section.markup]
    sections += [
        (
            section.anchor,
            section.title,
            f'<section class="card" id="{section.anchor}"><h2>{text(section.title)}</h2>{section.markup}</section>',
        )
        for section in shown
    ]
    links = "".join(f'<a href="#{anchor}">{text(title)}</a>' for anchor, title, _ in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="{VERDICT_NAME}" content="{page.severity}:{text(page.verdict)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(page.title)}</title><style>{_asset('page.css')}</style></head><body>"
        f"<header><h1>{text(page.title)}</h1><p>{text(page.subtitle)}</p></header>"
        f"<nav>{links}</nav><main>{''.join(markup for _, _, markup in sections)}</main>"
        f'<script type="application/json" id="page-data">{held}</script>'
        f'<script type="module">{script}</script></body></html>\n'
    )


def _verdict(page: RunPage) -> str:
    items = [_finding(finding) for finding in page.findings]
    shown, rest = "".join(items[:_SHOWN]), items[_SHOWN:]
    more = (
        f'<details><summary>{len(rest)} less severe</summary><ol class="findings">{"".join(rest)}</ol></details>'
        if rest
        else ""
    )
    return (
        f'<section class="card verdict" id="verdict"><div class="badge {page.severity}" role="status">'
        f"<span>{SIGNS[page.severity]}</span>{text(page.verdict)}</div><p>{text(page.detail)}</p>"
        f'<ol class="findings">{shown}</ol>{more}</section>'
    )


def _finding(finding: Finding) -> str:
    parts = [f"<p><strong>{text(_sentence(finding.what))}</strong></p>"]
    if finding.doubt:
        kind = "doubt" if CANNOT_TELL in finding.doubt else "error"
        parts.append(f'<p class="{kind}">{text(_sentence(finding.doubt))}</p>')
    if finding.cause:
        parts.append(f"<p>Likely cause: {text(finding.cause)}.</p>")
    go = "" if finding.at_s is None else f'<button data-at="{finding.at_s:.3f}">go to {finding.at_s:.1f} s</button>'
    if finding.command:
        purpose = f"<span>{text(finding.purpose)}</span>" if finding.purpose else ""
        go += f'<code>{text(finding.command)}</code><button class="copy">copy</button>{purpose}'
    if go:
        parts.append(f'<div class="do">{go}</div>')
    shown = None if finding.at_s is None else round(finding.at_s, 1)
    others = [at_s for at_s in dict.fromkeys(round(at_s, 1) for at_s in finding.moments) if at_s != shown]
    if others:
        links = "".join(f'<button data-at="{at_s:.3f}">{at_s:.1f} s</button>' for at_s in others[:_MOMENTS])
        more = f"<span>and {len(others) - _MOMENTS} more</span>" if len(others) > _MOMENTS else ""
        parts.append(f'<div class="do"><span>also at</span>{links}{more}</div>')
    sign = f'<span class="sign" title="{finding.severity}">{SIGNS[finding.severity]}</span>'
    return f'<li class="{finding.severity}">{sign}<div>{"".join(parts)}</div></li>'


def _sentence(words: str) -> str:
    return words if words.endswith(".") else f"{words}."


def _timeline(scene: PageScene) -> str:
    drawn = (
        ["dashed rings: model, from the real pose every 2 s"] if any(b.model is not None for b in scene.bodies) else []
    )
    return _asset("timeline.html").replace("{{ grid }}", text(" · ".join(drawn) or "colours as in films"))


def _asset(name: str) -> str:
    return (resources.files("testudo_analysis.run_page") / "assets" / name).read_text(encoding="utf-8")
