"""The gap in sentences: robots that stood are not taken for the whole team."""

from types import SimpleNamespace

from testudo_analysis.gap.block_bootstrap import Interval
from testudo_analysis.gap.presentation.findings_text import _stillness


def row(robot, travel_m):
    return SimpleNamespace(
        robot=robot,
        travel_m=travel_m,
        model="nominal",
        channel="position",
        horizon_s=2.0,
        median=Interval(0.009, 0.008, 0.010),
    )


def said(*rows):
    return list(_stillness(SimpleNamespace(best="nominal", rows=rows), 2.0))


def test_robots_that_stood_are_named_beside_one_that_drove():
    (sentence,) = said(row("all", 0.001), row("r1", 0.16), row("r2", 0.0), row("r3", 0.001))
    assert sentence.startswith("r2, r3: stood for most of the time")
    assert "r1: 9.0 mm (8.0 to 10.0) on a distance of 160 mm" in sentence
    assert said(row("all", 0.16), row("r1", 0.16)) == []
    (sentence,) = said(row("all", 0.001), row("r1", 0.001))
    assert "hardly moved" in sentence
