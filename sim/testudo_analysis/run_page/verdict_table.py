"""The verdict of a page for the terminal."""

from rich import box
from rich.markup import escape
from rich.table import Table

from testudo_analysis.run_page.document import SIGNS
from testudo_analysis.run_page.page_data import RunPage, Severity

_COLOURS = {Severity.BAD: "red", Severity.DOUBT: "yellow", Severity.NOTE: "cyan", Severity.GOOD: "green"}
_SHOWN = 6


def verdict_table(page: RunPage) -> Table:
    """Return the findings, the worst first, each with its command."""
    colour = _COLOURS[page.severity]
    title = f"[{colour}]{SIGNS[page.severity]} {page.verdict}[/]: {escape(page.detail)}"
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=False)
    made.add_column("sign", no_wrap=True)
    made.add_column("what", overflow="fold", ratio=1)
    for finding in page.findings[:_SHOWN]:
        words = [escape(finding.what), f"[yellow]{escape(finding.doubt)}[/]" if finding.doubt else ""]
        if finding.cause:
            words.append(f"likely cause: {escape(finding.cause)}")
        if finding.command:
            words.append(f"[bold]{escape(finding.command)}[/]")
        colour = _COLOURS[finding.severity]
        made.add_row(f"[{colour}]{SIGNS[finding.severity]}[/]", "\n".join(filter(None, words)))
    if len(page.findings) > _SHOWN:
        made.caption = f"and {len(page.findings) - _SHOWN} less severe on the page"
        made.caption_justify = "left"
    return made
