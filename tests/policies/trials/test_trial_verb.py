"""`testudo trial` keeps what was done at Ctrl-C, goes on with the same command, and says what was not counted."""

import json

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet
from tests.policies.trials.test_trials import result, simulated

from testudo_deploy.launch.fleet_run import FleetRunInterruptedError, FleetRunState
from testudo_hardware.errors import TestudoError
from testudo_policies.commands import trial as verb
from testudo_policies.trials.trial_draw import Trial


class Team:
    """In place of a policy that is loaded and simulated."""

    def __init__(self, fleet, *, lock_step):
        self.fleet, self.lock_step = fleet, lock_step

    def trials(self, seed, count):
        return tuple(Trial(k + 1, seed + k, (), {}) for k in range(count))

    def simulated(self, seed, count):
        return simulated(count)


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Return a function that runs the verb with runs by ``act`` in place of a fleet, and the numbers that were run."""
    fleet, ran = make_tiny_fleet(tmp_path), []
    monkeypatch.setattr(verb, "TrialTeam", Team)

    def run(act, **given):
        def run_trial(_team, one, *_):
            ran.append(one.number)
            return act(one.number)

        monkeypatch.setattr(verb, "run_trial", run_trial)
        return verb.trial(fleet.file, repeat=3, out=tmp_path / "out", json=tmp_path / "found.json", **given)

    return run, ran


def test_ctrl_c_keeps_what_was_done_and_the_same_command_goes_on(call, tmp_path, capsys):
    run, ran = call

    def interrupted(number):
        if number == 2:
            raise FleetRunInterruptedError(FleetRunState(("r0",)))
        return result(number)

    with pytest.raises(KeyboardInterrupt):
        run(interrupted)
    assert "stopped; 1 of 3 trials are kept in" in " ".join(capsys.readouterr().out.split())
    assert run(result) == 0
    assert ran == [1, 2, 2, 3]
    assert json.loads((tmp_path / "found.json").read_text())["scored"] == 3


@pytest.mark.parametrize("given", [{"scored": False, "outcome": "not_at_start"}, {"contacts": 1}])
def test_a_trial_that_is_not_counted_or_had_a_contact_fails_the_command(call, given, capsys):
    run, _ = call
    assert run(lambda number: result(number, **given) if number == 2 else result(number)) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert ("trial 2 is not counted: not_at_start" in shown) == ("outcome" in given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"patience": 1.0}, "--patience: found 1 s, expected 5 to 3600 s"),
        ({"backend": "hw", "lock_step": True}, "--lock-step: found with --backend hw"),
        ({"reach": verb.ReachOptions(local=True)}, "--local: found with --backend sim"),
        ({"backend": "hw"}, "orders: found false, expected true"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_runs(call, given, says, tmp_path):
    run, ran = call
    with pytest.raises(TestudoError, match=says):
        run(result, **given)
    assert ran == []
    assert not (tmp_path / "out").exists()
