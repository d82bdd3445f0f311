"""Two processes on this machine train one policy, as two hosts would."""

import signal
import time

import pytest
from tests.policies.spread_run import (
    assert_same_run,
    digest,
    free_address,
    logged,
    outcome,
    spread,
    start,
)

from testudo_hardware.errors import TestudoError
from testudo_policies.distributed.process_group import (
    CONTINUE,
    SAVE,
    STOP,
    ProcessVote,
    from_first,
    gather_agreement,
    join,
)
from testudo_policies.learning.builder import build
from testudo_policies.learning.training_run import load_parameters, train_run

pytestmark = pytest.mark.usefixtures("quick")


def start_two(folders, updates=3):
    """Start two processes, each with a folder of its own."""
    address = free_address()
    return [start(folder, updates, (address, 2, number)) for number, folder in enumerate(folders)]


@pytest.mark.slow
def test_two_processes_end_with_the_same_parameters_and_the_losses_of_one(tmp_path):
    folders = [tmp_path / name for name in ("first", "second")]
    processes = start_two(folders)
    train_run(build(spread()), tmp_path / "alone")
    first, second = (outcome(process) for process in processes)
    assert first == second  # the hash of all parameters among it
    assert (first["devices"], first["updates"], first["finished"]) == (2, 3, True)
    assert_same_run(folders[0], tmp_path / "alone")
    assert digest(load_parameters(build(spread()), folders[0])) == first["digest"]
    assert not folders[1].exists(), "process 0 alone writes"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ctrl_c_of_one_process_stops_both_after_the_same_update_and_both_go_on(tmp_path):
    folders, updates = [tmp_path / name for name in ("first", "second")], 150
    processes = start_two(folders, updates)
    log, end = folders[0] / "metrics.jsonl", time.monotonic() + 240
    while not (log.exists() and log.read_text().count("\n") > 3):
        assert all(process.poll() is None for process in processes), processes[0].communicate()
        assert time.monotonic() < end
        time.sleep(0.01)
    processes[1].send_signal(signal.SIGINT)
    first, second = (outcome(process) for process in processes)
    assert first == second
    assert not first["finished"]
    assert 3 < first["updates"] < updates
    assert list(logged(folders[0])["update"]) == list(range(1, first["updates"] + 1))
    again = [outcome(process) for process in start_two(folders, updates)]
    assert again[0] == again[1]
    assert (again[0]["updates"], again[0]["finished"]) == (updates, True)
    assert list(logged(folders[0])["update"]) == list(range(1, updates + 1))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((None, 2, None), "--processes and --process-id need --coordinator HOST:PORT"),
        (("here", 2, 0), "--coordinator: found 'here', expected HOST:PORT or auto"),
        (("localhost:1", None, 0), "--processes: found None, expected the number of processes"),
        (("localhost:1", 2, None), "--process-id: found None, expected 0 to 1"),
        (("localhost:1", 2, 2), "--process-id: found 2, expected 0 to 1"),
    ],
)
def test_a_meeting_that_cannot_be_is_refused(words, message):
    with pytest.raises(TestudoError, match=message):
        join(*words)


def test_a_process_alone_needs_nobody():
    join(None, None, None)
    assert from_first(b"abc") == gather_agreement(lambda: b"abc") == b"abc"
    ballot = ProcessVote(None)
    assert [ballot.ask(wish) for wish in (CONTINUE, SAVE, STOP)] == [CONTINUE, SAVE, STOP]
