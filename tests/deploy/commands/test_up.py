"""`testudo up` prints warnings before the start."""

import pytest
from tests.deploy.tiny_fleet import make_tiny_fleet

from testudo_deploy.commands import up as verb
from testudo_hardware.errors import TestudoError


class _ReachedError(TestudoError):
    pass


@pytest.mark.parametrize(("robot", "count"), [("crazyflie_2x", 1), ("gritsbot_x", 0)])
def test_thrust_that_may_not_do_is_told_once_before_the_start(tmp_path, monkeypatch, capsys, robot, count):
    def refuse(*_, **__):
        raise _ReachedError

    monkeypatch.setattr(verb, "run_fleet", refuse)
    fleet = make_tiny_fleet(tmp_path, robot=robot, lane_m=1.0)
    with pytest.raises(_ReachedError):
        verb.up(fleet.file, record=False)
    said = capsys.readouterr().out
    assert said.count(f"warning: {robot}: with the worst values of its file") == count
    assert said.count("warning: this fleet has no key") == 1
    assert said.count("warning: ") == count + 1
