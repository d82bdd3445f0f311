"""A landing is computed again from its record, by the shield of landings and with the wish that was recorded."""

from dataclasses import replace

import pytest
from tests.deploy.flying_pair import World, with_phases
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_analysis.replay.reinference import model_of
from testudo_analysis.replay.reinference_checks import TOLERANCE
from testudo_analysis.replay.tick_replay import TickReplay
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.supervision.modes import Event, Mode


@pytest.fixture(scope="module")
def flight(tmp_path_factory):
    """Return a policy file and the ticks of one flight."""
    fleet = with_phases(make_tiny_fleet(tmp_path_factory.mktemp("drones"), 1, "crazyflie_2x"))
    world = World(fleet)
    world.seconds(0.3)
    assert world.ask(Event.ARM).granted
    world.until(Mode.HOLD, 12.0)
    world.seconds(1.2)
    assert world.ask(Event.START).granted
    world.seconds(1.0)
    world.ask(Event.LAND)
    world.until(Mode.DISARMED, 15.0)
    return PolicyArtefact.load(fleet.policy), world.drones[0].records


def rerun(artefact, records):
    made = TickReplay(artefact, model_of(artefact))
    for record in records:
        made.take(record)
    made.finish()
    return made


def test_every_tick_of_a_flight_comes_again(flight):
    artefact, records = flight
    made = rerun(artefact, records)
    down = [record for record in records if record.reason == "land" and record.nominal_world is not None]
    assert len(down) > 100
    assert made.reinferred > len(down)
    worst = {check.name: check.error for check in made.errors.checks()}
    assert max(worst.values()) <= TOLERANCE, worst


def test_a_landing_whose_command_was_altered_shows(flight):
    artefact, records = flight
    index = next(k for k, record in enumerate(records) if record.reason == "land" and record.nominal_world is not None)
    x, y, z = records[index + 10].sent_command
    altered = [*records]
    altered[index + 10] = replace(records[index + 10], sent_command=(x + 0.05, y, z))
    worst = {check.name: check.error for check in rerun(artefact, altered).errors.checks()}
    assert worst["sent"] > 0.04
