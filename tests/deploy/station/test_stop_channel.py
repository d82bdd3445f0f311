"""The local way to the emergency stop: pressed from a shell before Python starts, answered on a socket."""

import os
import stat
import subprocess
import time
from pathlib import Path

import pytest

from testudo_deploy.station.stop_channel import (
    FOLDER_VARIABLE,
    PRESS,
    StopChannel,
    StopClients,
    channel_name,
    stop_folder,
)

PROGRAM = Path(__file__).parents[3] / "deploy/bin/testudo"
DOMAIN = 77


class Resident:
    """What stands behind a channel, in place of the node."""

    def __init__(self, folder, *, local=True):
        self.sources = []
        self.channel = StopChannel(
            channel_name(DOMAIN, local=local), press=self.sources.append, ask=self.ask, folder=folder
        )

    def ask(self, word):
        if word == PRESS:
            self.sources.append("socket")
        return {"pressed": bool(self.sources), "robots": {"r0": {"stopped": False}}}

    def is_pressed(self, patience_s=5.0):
        end_s = time.monotonic() + patience_s
        while not self.sources and time.monotonic() < end_s:
            time.sleep(0.01)
        return bool(self.sources)


@pytest.fixture
def resident(tmp_path):
    made = Resident(tmp_path / "stop")
    with made.channel:
        yield made


def shell(folder, *words, **environment):
    """Run the program as in a terminal where Python does not start at all."""
    here = {"PATH": os.environ["PATH"], FOLDER_VARIABLE: str(folder), **environment}
    program = folder.parent / "testudo"
    program.write_text(PROGRAM.read_text())
    program.chmod(0o755)
    for name in ("python", "python3"):
        (folder.parent / name).write_text("#!/bin/sh\nexit 3\n")
        (folder.parent / name).chmod(0o755)
    result = subprocess.run([program, *words], env=here, capture_output=True, text=True, timeout=20, check=False)
    assert (result.returncode, result.stderr) == (3, "")


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (["estop", "--domain", "77"], {}),
        (["estop", "fleet.yaml", "--domain=77", "--local"], {}),
        (["--debug", "estop"], {"ROS_DOMAIN_ID": "77"}),
    ],
)
def test_the_shell_presses_although_python_does_not_start(resident, tmp_path, words, environment):
    shell(tmp_path / "stop", *words, **environment)
    assert resident.is_pressed()


@pytest.mark.parametrize(
    "words",
    [["estop", "--domain", "7"], ["estop", "--domain", "77", "--release"], ["estop", "--help"], ["status"], []],
)
def test_the_shell_presses_nothing_else(resident, tmp_path, words):
    """Another domain, a release, a question, another verb: the pipe of this domain stays silent."""
    shell(tmp_path / "stop", *words, ROS_DOMAIN_ID="77" if "--domain" not in words and words[:1] != ["status"] else "1")
    assert not resident.is_pressed(0.3)


def test_the_shell_does_not_wait_for_a_process_that_was_killed(tmp_path):
    folder = tmp_path / "stop"
    folder.mkdir()
    os.mkfifo(folder / "77_local_1.press")
    shell(folder, "estop", "--domain", "77")


def test_a_client_presses_gets_an_answer_and_every_change(resident, tmp_path):
    with StopClients(DOMAIN, PRESS, local=True, folder=tmp_path / "stop") as clients:
        clients.listen(5.0, enough=lambda: bool(clients.answers))
        assert resident.sources == ["socket"]
        assert clients.complete
        resident.ask = lambda _: {"pressed": True, "robots": {"r0": {"stopped": True}}}
        resident.channel._ask = resident.ask
        resident.channel.notify()
        clients.listen(5.0, enough=lambda: clients.answers[0]["robots"]["r0"]["stopped"])
        assert clients.answers[0]["robots"]["r0"]["stopped"]


def test_a_process_of_another_reach_is_pressed_but_is_not_the_whole_answer(resident, tmp_path):
    """`testudo estop` without --local must also look for robots on the network."""
    with StopClients(DOMAIN, PRESS, local=False, folder=tmp_path / "stop") as clients:
        clients.listen(5.0, enough=lambda: bool(clients.answers))
        assert resident.is_pressed()
        assert not clients.complete


def test_nobody_there_costs_no_time(tmp_path):
    begin_s = time.monotonic()
    with StopClients(DOMAIN, PRESS, local=True, folder=tmp_path) as clients:
        clients.listen(30.0)
    assert time.monotonic() - begin_s < 10.0
    assert (clients.answers, clients.complete) == ((), False)


def test_only_its_user_reaches_it_and_its_files_go_with_it(tmp_path):
    folder = tmp_path / "stop"
    with Resident(folder).channel:
        files = sorted(folder.iterdir())
        assert [file.suffix for file in files] == [".press", ".sock"]
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert list(folder.iterdir()) == []


def test_a_folder_that_somebody_else_may_have_made_is_refused(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "stop").symlink_to(tmp_path / "theirs")
    with (
        pytest.raises(PermissionError, match="belongs to another user, or is a link"),
        Resident(tmp_path / "stop").channel,
    ):
        pass


def test_the_files_of_a_process_that_was_killed_are_removed(tmp_path):
    folder = tmp_path / "stop"
    folder.mkdir()
    (folder / "5_local_999999999.sock").touch()
    with Resident(folder).channel:
        assert not (folder / "5_local_999999999.sock").exists()


def test_shell_and_python_look_in_the_same_folder(monkeypatch):
    text = PROGRAM.read_text()
    assert "/tmp/testudo-*" in text  # noqa: S108 -- refused if another user owns it
    for name in (FOLDER_VARIABLE, "XDG_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    assert stop_folder() == Path(f"/tmp/testudo-{os.getuid()}")  # noqa: S108
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert stop_folder() == Path("/run/user/7/testudo")
