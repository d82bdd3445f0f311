"""In a real browser: scrubbing moves scene, plots and incidents together, also by keyboard, and nothing is fetched."""

import pytest
from tests.analysis.incident.stories import meeting
from tests.analysis.run_page.chromium import chromium, tab

from testudo_analysis.incident.find_incidents import find_incidents
from testudo_analysis.incident.incident import IncidentThresholds
from testudo_analysis.run_page.build_page import RunContents, run_page
from testudo_analysis.run_page.document import write_page

pytestmark = pytest.mark.skipif(chromium() is None, reason="no Chromium here: install the package chromium")

TIMES = "[testudo.cursor.time, +document.getElementById('scene').dataset.time, "
TIMES += "+document.querySelector('.moments').dataset.time, +document.getElementById('time').value, "
TIMES += "...[...document.querySelectorAll('.track')].map((track) => +track.dataset.time)]"
PIXELS = "document.getElementById('scene').toDataURL()"
CURRENT = "document.querySelector('.moments [aria-current]')?.textContent || ''"
MARK = "document.querySelector('.plot .cursor').style.left"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Return a tab with the page of two robots that touched."""
    folder = tmp_path_factory.mktemp("browser")
    story = meeting(0.02)
    bounds = IncidentThresholds.of(story)
    contents = RunContents(story, tuple(find_incidents(story, bounds)), bounds)
    file = write_page(run_page(contents), folder / "report.html")
    with tab(folder / "profile") as opened:
        opened.open(f"{file.as_uri()}#t=1")
        opened.wait("globalThis.testudo !== undefined")
        yield opened


def test_a_link_opens_the_page_at_its_time(page):
    times = page.value(TIMES)
    assert len(times) > 6
    assert times == pytest.approx([1.0] * len(times), abs=0.06)


def test_scrubbing_moves_scene_plots_and_incidents_together(page):
    page.value("testudo.cursor.set(0.5)")
    before, mark = page.value(PIXELS), page.value(MARK)
    assert page.value(CURRENT) == ""
    contact_s = page.value("testudo.moments.moments[0].at")
    page.value(f"document.getElementById('time').value = {contact_s}")
    page.value("document.getElementById('time').dispatchEvent(new Event('input'))")
    times = page.value(TIMES)
    assert times == pytest.approx([contact_s] * len(times), abs=0.06)
    assert page.value(PIXELS) != before
    assert page.value(MARK) != mark
    assert "touched" in page.value(CURRENT)
    assert not page.errors


def test_a_click_in_a_plot_and_one_on_an_incident_go_there(page):
    page.value("document.querySelector('.plot').scrollIntoView()")
    left, top, width, height = page.value(
        "(({left, top, width, height}) => [left, top, width, height])"
        "(document.querySelector('.plot .track').getBoundingClientRect())"
    )
    page.click(left + 0.25 * width, top + height / 2)
    begin, end = page.value("[testudo.cursor.begin, testudo.cursor.end]")
    times = page.value(TIMES)
    assert times == pytest.approx([begin + 0.25 * (end - begin)] * len(times), abs=0.1)
    page.value("document.querySelector('.moments .jump').click()")
    assert page.value("testudo.cursor.time") == pytest.approx(page.value("testudo.moments.moments[0].at"))


def test_the_keyboard_moves_the_time_and_goes_to_incidents(page):
    page.value("document.activeElement.blur(); testudo.cursor.set(2)")
    page.press("ArrowRight")
    assert page.value("testudo.cursor.time") == pytest.approx(2.1)
    page.press("ArrowLeft", shift=True)
    assert page.value("testudo.cursor.time") == pytest.approx(1.1)
    page.press("End")
    assert page.value("testudo.cursor.time") == page.value("testudo.cursor.end")
    page.press("p")
    assert "touched" in page.value(CURRENT)


def test_the_view_turns_and_the_time_window_narrows(page):
    first = page.value(PIXELS)
    page.value("document.querySelector('[data-view=top]').click()")
    assert page.value(PIXELS) != first
    page.value("document.getElementById('closer').click()")
    low, high = page.value("testudo.cursor.window")
    assert high - low < page.value("testudo.cursor.end - testudo.cursor.begin") / 2
    assert low <= page.value("testudo.cursor.time") <= high
    page.value("document.getElementById('whole').click()")
    assert page.value("performance.getEntriesByType('resource').length") == 0
    assert not page.errors
