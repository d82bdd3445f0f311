import pytest

from testudo_deploy.pacing import Pacer


def test_ticks_on_the_grid_are_never_late():
    pacer = Pacer(0.02)
    assert [pacer.begin(5.0 + 0.02 * k) for k in range(50)] == pytest.approx([0.0] * 50, abs=1e-9)
    assert (pacer.ticks, pacer.late_ticks, pacer.missed_ticks) == (50, 0, 0)


def test_lateness_is_measured_against_the_grid_and_not_the_tick_before():
    pacer = Pacer(0.02)
    times = [0.0, 0.023, 0.043, 0.06]
    assert [pacer.begin(now) for now in times] == pytest.approx([0.0, 0.003, 0.003, 0.0])


def test_a_late_first_tick_does_not_hide_later_ones():
    pacer = Pacer(0.02)
    times = [0.015, 0.02, 0.04, 0.063]
    assert [pacer.begin(now) for now in times] == pytest.approx([0.0, 0.0, 0.0, 0.003])


def test_a_stall_counts_as_late_and_its_ticks_as_missed():
    pacer = Pacer(0.02)
    pacer.begin(0.0)
    assert pacer.begin(0.125) == pytest.approx(0.105)
    assert (pacer.late_ticks, pacer.missed_ticks) == (1, 5)
    assert pacer.begin(0.14) == pytest.approx(0.0)
    assert pacer.worst_late_s == pytest.approx(0.105)
