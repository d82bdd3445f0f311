"""In a real browser: the map shows the robots, a press reaches the stop, a click gives a goal, old data is grey."""

import pytest
from tests.analysis.run_page.chromium import chromium, tab
from tests.deploy.station_page.page_stage import NAMES, PLACES, Desk, served

pytestmark = pytest.mark.skipif(chromium() is None, reason="no Chromium here: install the package chromium")

DRIVES = (0, 158, 115)  # colour of a robot that drives
LIVE = "document.querySelectorAll('.robot .mode').length === 4 && !document.body.classList.contains('lost')"


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Return a tab with the page of four robots, and the desk behind it."""
    desk = Desk()
    with tab(tmp_path_factory.mktemp("browser"), (1280, 800), reached="127.0.0.1") as page, served(desk) as server:
        page.open(server.access.address)
        page.wait(LIVE)
        yield page, desk, server


def place_on_screen(page, place):
    return page.value(
        f"(([x, y], {{ left, top }}) => [left + x, top + y])"
        f"(testudo.map.px({list(place)}), testudo.map.canvas.getBoundingClientRect())"
    )


def test_the_map_shows_every_robot_where_it_is(opened):
    page, _, _ = opened
    for name in NAMES:
        found = page.value(f"""(() => {{
            const {{ map, state }} = testudo, [x, y] = map.px({list(PLACES[name])}), ratio = devicePixelRatio;
            const at = map.robotAt(state.fleet, state.picture, x, y);
            return [at, ...map.pen.getImageData(Math.round((x - 8) * ratio), Math.round(y * ratio), 1, 1).data];
        }})()""")
        assert found[:4] == [name, *DRIVES]
    modes = page.value("[...document.querySelectorAll('.mode')].map((mode) => mode.textContent)")
    assert modes == ["▶ active"] * 4
    assert not page.errors


def test_a_click_gives_the_chosen_robot_a_goal_and_the_refusal_is_shown(opened):
    page, desk, _ = opened
    page.click(*place_on_screen(page, PLACES["r3"]))
    page.wait("testudo.state.chosen === 'r3'")
    assert desk.requests == []  # choosing is no order
    page.click(*place_on_screen(page, (-1.2, 0.7)))
    page.wait("testudo.state.pending.size === 1")
    (found,) = desk.requests
    assert (found.verb, found.robots) == ("goal", ("r3",))
    assert found.place_world == pytest.approx((-1.2, 0.7), abs=0.01)
    desk.answer(1, "r3", "r3: goal (-1.20, 0.70): is 0.04 m from obstacle 0, expected at least 0.1 m", done=False)
    page.wait("testudo.state.pending.size === 0")
    assert "from obstacle 0" in page.value("document.querySelector('.toast.no').textContent")
    page.press("Escape")
    page.wait("testudo.state.chosen === ''")


@pytest.mark.parametrize("how", ["button", "key"])
def test_a_press_reaches_the_stop_and_the_confirmations_are_shown(opened, how):
    page, desk, _ = opened
    before, desk.pressed = desk.stops, False
    page.value("document.querySelector('#robots button').focus()")  # the key must not act on this one
    if how == "button":
        box = page.value("(({left, top, width, height}) => [left, top, width, height])"
                         "(document.getElementById('stop').getBoundingClientRect())")  # fmt: skip
        assert box[2] > 300
        assert box[3] > 90
        page.click(box[0] + box[2] / 2, box[1] + box[3] / 2)
    else:
        page.press(" ")
    page.wait("testudo.state.stop && testudo.state.stop.values")
    assert desk.stops == before + 1
    shown = page.value("document.getElementById('stop-result').textContent")
    assert "All 4 guards confirmed" in shown
    assert "r3 100 ms" in shown
    assert not [found for found in desk.requests if found.verb == "start"]
    desk.pressed = False
    page.wait("document.getElementById('stop-result').textContent.startsWith('No longer stopped: r0')")


def test_when_nobody_confirms_the_page_says_so(opened):
    page, desk, _ = opened
    good = desk.stop_answer
    desk.stop_answer = {"confirmed": False, "sentence": "Nobody answered: stop the robots by hand.", "robots": {}}
    page.press(" ")
    page.wait("testudo.state.stop && testudo.state.stop.values")
    desk.stop_answer = good
    assert "Nobody answered" in page.value("document.getElementById('stop-result').textContent")
    assert page.value("document.getElementById('stop-result').className") == "mark bad"


def test_old_data_turns_grey_nothing_can_be_asked_and_the_stop_stays(opened):
    page, desk, _ = opened
    desk.is_paused = True  # the server runs, and the fleet's picture stands still
    page.wait("document.body.classList.contains('lost')")
    assert "No connection to the station" in page.value("document.getElementById('banner').textContent")
    assert page.value("getComputedStyle(document.getElementById('map')).filter") == "grayscale(1)"
    assert page.value("getComputedStyle(document.getElementById('robots')).filter") == "grayscale(1)"
    assert page.value("[...document.querySelectorAll('button.do')].every((one) => one.disabled)")
    requests = len(desk.requests)
    page.click(*place_on_screen(page, PLACES["r3"]))
    page.click(*place_on_screen(page, (0.0, 0.9)))
    assert len(desk.requests) == requests
    stops = desk.stops
    page.press(" ")
    page.wait("testudo.state.stop && testudo.state.stop.values")
    assert desk.stops == stops + 1
    desk.is_paused = False
    page.wait(LIVE)
    assert not page.errors


REPORT = """<title>open</title><script type="module">
const { host } = location, asked = (path) => fetch(`http://${host}/${path}`, { method: "POST" });
const found = await Promise.allSettled([asked("stop"), asked("request"), fetch(`http://${host}/events`)]);
document.title = `tried ${found.map((one) => one.status).join(" ")}`;
</script>"""


def test_a_report_opens_from_the_list_and_its_scripts_reach_nothing(opened, tmp_path):
    page, desk, _ = opened
    (tmp_path / "report.html").write_text(REPORT)
    desk.reports = {"one": tmp_path / "report.html"}
    desk.run_list = [
        {"name": "one", "started_s": 1.7e9, "severity": "bad", "verdict": "1 fault", "report": "one", "advice": ""}
    ]
    page.wait("document.querySelector('#runs a') !== null")
    assert page.value("document.querySelector('#runs .mark').textContent") == "✖ 1 fault"
    before, address = desk.stops, page.value("location.href")
    page.open(page.value("document.querySelector('#runs a').href"))
    page.wait("document.title.startsWith('tried')")
    assert page.value("document.title") == "tried rejected rejected rejected"
    assert desk.stops == before
    page.open(address)
    page.wait(LIVE)


def test_without_the_server_a_press_says_that_nobody_answered(opened):
    page, _, server = opened
    server.__exit__()
    page.wait("document.body.classList.contains('lost')")
    page.press(" ")
    page.wait("document.getElementById('stop-result').textContent.includes('NOBODY ANSWERED')")
    assert page.value("getComputedStyle(document.getElementById('stop')).filter") == "none"
