"""The red team: no attack without the key makes robots touch, and each control shows that the attack works."""

from dataclasses import replace

import pytest

from testudo_bench.red_team import bench_redteam as bench
from testudo_bench.red_team.bench_redteam import COLUMNS, row_figures, table_row
from testudo_bench.red_team.episode import EpisodeOutcome, run_episode
from testudo_bench.red_team.rows import Effect, rows
from testudo_bench.red_team.saved_outcomes import Arm
from testudo_bench.red_team.signed_network import Defences
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot

SPEC = load_robot("robomaster_s1")
ROWS = {row.name: row for row in rows()}
NOBODY = rows()[0]
STILL, TOUCHED, MOVING = (EpisodeOutcome(*one, 0.4, way) for one, way in (((0, 0), 2.0), ((5, 0), 2.0), ((5, 5), 2.0)))


def test_every_row_has_a_control_but_those_that_have_no_defence():
    assert len(ROWS) == len(rows())
    assert {row.name for row in rows() if row.control is None} == {"nobody", "nobody, straight", "estop"}
    assert all(row.control != Defences() for row in rows())


@pytest.mark.parametrize("name", ["everything", "former run"])
def test_an_intruder_without_the_key_has_no_effect_and_drives_robots_without_the_defence(name):
    row = ROWS[name]
    intact = run_episode(SPEC, row, Defences(), 0, horizon_s=2.4)
    alone = run_episode(SPEC, NOBODY, Defences(), 0, horizon_s=2.4)
    assert intact.contacts == 0
    assert intact.way_m > 0.8 * alone.way_m > 0.2
    assert run_episode(SPEC, row, row.control, 0).contacts_at_own_speed > 0


def test_a_robot_that_a_hunter_touches_stands_unless_the_growth_is_left_out():
    row = ROWS["hunter 1, R5 alone"]
    intact = run_episode(SPEC, row, Defences(), 1)
    assert intact.contacts > 0
    assert intact.contacts_at_own_speed == 0
    assert run_episode(SPEC, row, row.control, 1).contacts_at_own_speed > 0


def test_a_hunter_of_twice_the_speed_of_the_robots_touches_robots_that_drive_unless_the_fleet_states_its_speed():
    """It breaks assumption 6 otherwise: without the statement the red team found contacts at own speed."""
    row = ROWS["hunter 2"]
    assert all(run_episode(SPEC, row, Defences(), number).contacts_at_own_speed == 0 for number in (0, 1))
    assert any(run_episode(SPEC, row, row.control, number).contacts_at_own_speed > 0 for number in range(4))


def test_the_bodies_may_be_those_of_mujoco():
    row = ROWS["driver"]
    assert run_episode(SPEC, row, Defences(), 0, mujoco=True, horizon_s=2.0).contacts == 0
    assert run_episode(SPEC, row, row.control, 0, mujoco=True).contacts_at_own_speed > 0


@pytest.mark.parametrize(
    ("name", "intact", "control", "holds"),
    [
        ("driver", STILL, MOVING, True),
        ("driver", TOUCHED, MOVING, True),
        ("driver", MOVING, MOVING, False),
        ("driver", STILL, TOUCHED, False),  # the control must fail
        ("status", STILL, replace(STILL, way_m=0.3), True),
        ("status", STILL, STILL, False),
    ],
)
def test_a_row_holds_if_nobody_moves_in_a_contact_and_its_control_fails(name, intact, control, holds):
    found = {Arm(name, mujoco=False, control=False): [intact], Arm(name, mujoco=False, control=True): [control]}
    figures = row_figures(ROWS[name], found, mujoco=False)
    assert figures["holds"] is holds
    assert len(table_row(figures)) == len(COLUMNS)
    assert figures["control_effect"] == (Effect.STANDS if name == "status" else Effect.CONTACT)


def _count(found, tasks, until_s, saved, say):
    for arm, _, count in tasks:
        found.add(arm, [MOVING if arm.control else STILL] * count, "source")
    found.write(saved)
    return False


def test_the_bench_reports_what_it_measured(monkeypatch):
    """A run of 45 minutes was lost to a key that its summary named and no row had."""
    monkeypatch.setattr(bench, "_measure", _count)
    result = bench.bench_redteam(quick=True)
    assert "0 contacts at own speed" in result.title
    assert len(result.rows) == 2 * len(rows())
    assert result.values["contacts_at_own_speed"] == 0


def test_a_campaign_goes_on_with_the_episodes_that_its_file_lacks(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "_measure", _count)
    file = tmp_path / "red.json"
    first = bench.bench_redteam(repeats=12, saved=file).values
    assert bench.bench_redteam(repeats=12, saved=file).values["sources"] == first["sources"]
    whole = bench.bench_redteam(repeats=25, saved=file).values
    assert {row["episodes"] for row in whole["rows"] if row["tier"] == "kinematic"} == {25}
    assert whole["sources"] == {"source": whole["episodes"]}
    with pytest.raises(TestudoError, match=r"expected those of gritsbot_x"):
        bench.bench_redteam(robot="gritsbot_x", saved=file)
    file.write_text("{}")
    with pytest.raises(TestudoError, match=r"no output of `testudo bench redteam`"):
        bench.bench_redteam(saved=file)
