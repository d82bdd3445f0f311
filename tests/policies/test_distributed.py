"""Two processes on this machine train one policy, as two hosts would."""

import shutil
import signal
import time
from dataclasses import replace

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from tests.policies.quick import TINY
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
from testudo_policies.distributed import (
    AXIS,
    CONTINUE,
    SAVE,
    STOP,
    DevicePlacement,
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
    vote = ProcessVote(None)
    assert [vote.decide(request) for request in (CONTINUE, SAVE, STOP)] == [CONTINUE, SAVE, STOP]


@pytest.fixture(scope="module")
def alone(quick, tmp_path_factory):
    """Return the folder of a run on one device."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert train_run(build(spread()), folder).finished
    return folder


@pytest.fixture(scope="module")
def pair(quick, tmp_path_factory):
    """Return the folder of the same run on two devices, and what the program printed."""
    folder = tmp_path_factory.mktemp("pair") / "run"
    return folder, outcome(start(folder, devices=2))


def test_two_devices_give_the_losses_of_one_for_the_same_worlds(alone, pair):
    folder, found = pair
    assert (found["devices"], found["updates"]) == (2, 3)
    assert_same_run(folder, alone)


def test_a_run_on_two_devices_is_evaluated_and_exported_from_one(alone, pair):
    folder, found = pair
    parameters = load_parameters(build(spread()), folder)
    assert digest(parameters) == found["digest"]
    for one, two in zip(
        jax.tree_util.tree_leaves(load_parameters(build(spread()), alone)),
        jax.tree_util.tree_leaves(parameters),
        strict=True,
    ):
        # Adam divides a gradient by its own size: where that is almost zero its rounding counts
        np.testing.assert_allclose(two, one, atol=1e-4)


@pytest.mark.slow
def test_the_same_seed_on_as_many_devices_gives_the_same_bits(pair, tmp_path):
    assert outcome(start(tmp_path / "run", devices=2)) == pair[1]


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_devices(alone, tmp_path):
    folder = tmp_path / "run"
    seen = []

    def stop(progress):
        seen.append(progress)
        raise KeyboardInterrupt

    assert train_run(build(spread()), folder, stop).updates == 2
    assert outcome(start(folder, devices=2))["updates"] == 3
    assert_same_run(folder, alone)


@pytest.mark.parametrize(
    ("changes", "available", "used"),
    [
        ({}, 1, 1),
        ({}, 2, 2),
        ({}, 3, 2),  # 8 worlds do not go into 3
        ({}, 8, 8),
        ({"minibatches": 16}, 2, 1),  # a minibatch is a single robot
        ({"worlds": 9, "minibatches": 2}, 4, 3),
    ],
)
def test_devices_that_would_not_get_an_equal_share_are_left_out(changes, available, used):
    config = replace(TINY, **{"worlds": 8, "minibatches": 2, **changes})
    assert DevicePlacement.shares(config, available) == used


def test_one_device_needs_no_mesh():
    placement = DevicePlacement.create(TINY, jax.devices()[:1])
    assert (placement.mesh, placement.count) == (None, 1)


def test_what_grows_with_the_worlds_is_spread_and_all_else_is_on_every_device():
    ppo = build(spread()).learner
    places = DevicePlacement(Mesh(np.array(jax.devices()[:1]), (AXIS,))).places(ppo)
    state = jax.eval_shape(ppo.init, jax.random.key(0))
    for place, leaf in zip(
        jax.tree_util.tree_leaves(places.rollout), jax.tree_util.tree_leaves(state.rollout), strict=True
    ):
        split = [size for name, size in zip(place.spec, leaf.shape, strict=True) if name == AXIS]
        assert split in ([8], [16]), "worlds, or robots of all worlds"
    for part in (places.parameters, places.optimiser, places.key, places.updates):
        assert all(place.is_fully_replicated for place in jax.tree_util.tree_leaves(part))
        assert not any(AXIS in place.spec for place in jax.tree_util.tree_leaves(part))


def test_a_copied_folder_of_two_devices_is_complete(pair, tmp_path):
    # evaluated on another machine: nothing of the run lies outside its folder
    shutil.copytree(pair[0], tmp_path / "run")
    assert digest(load_parameters(build(spread()), tmp_path / "run")) == pair[1]["digest"]
