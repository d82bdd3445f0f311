"""A run stops at any moment, goes on to the same bits, and refuses what does not fit."""

import json
import shutil
import signal
import struct
from dataclasses import asdict, replace

import jax
import orbax.checkpoint as ocp
import pytest
from tensorboardX.proto.event_pb2 import Event
from tests.policies.quick import TINY, assert_equal_trees

from testudo_hardware.errors import TestudoError
from testudo_policies.learning import training_run
from testudo_policies.learning.builder import build
from testudo_policies.learning.checkpoints import CheckpointError, Checkpoints, load_config, save_config
from testudo_policies.learning.run_files import MetricsLog
from testudo_policies.learning.training_run import load_parameters, train_run

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def components():
    return build(TINY)


@pytest.fixture(scope="module")
def update(components, quick):
    """Return the compiled update."""
    state = components.learner.start.eval_shape(jax.random.key(0))
    return jax.jit(components.learner.update).lower(state).compile()


@pytest.fixture
def compiled_once(update, monkeypatch):
    """Let training use the compiled update, so that a run takes a second."""
    monkeypatch.setattr(training_run, "_compiled", lambda *_: update)


def raising_at(number, function, *, after=False):
    """Return the function; its call of this number (from 1) is interrupted, before or after."""
    calls = []

    def wrapped(*arguments, **options):
        calls.append(1)
        if len(calls) == number and not after:
            raise KeyboardInterrupt
        result = function(*arguments, **options)
        if len(calls) == number:
            raise KeyboardInterrupt
        return result

    return wrapped


def logged_updates(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["update"] for line in lines]


def finished_like(tiny_run, components, folder):
    """Go on in a folder to the end and compare with the run that was never stopped."""
    result = train_run(components, folder)
    assert result.finished
    assert result.updates == 4
    assert_equal_trees(result.parameters, load_parameters(components, tiny_run))
    assert_equal_trees(result.parameters, load_parameters(components, folder))


def test_a_run_leaves_configuration_metrics_and_checkpoint(tiny_run, components):
    assert load_config(tiny_run) == TINY
    assert logged_updates(tiny_run) == [1, 2, 3, 4]
    last = json.loads((tiny_run / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["decisions"] == TINY.decisions
    names = ("train/reward", "train/successes", "train/episodes", "train/contacts", "shield/intervention_rate")
    assert all(isinstance(last[name], float) for name in names)
    terms = {name: value for name, value in last.items() if name.startswith("reward/")}
    assert set(terms) == {f"reward/{name}" for name in ("progress", "waiting", "success", "changes")}
    assert sum(terms.values()) == pytest.approx(last["train/reward"], abs=1e-5)
    assert last["value/explained_variance"] <= 1
    assert last["value/scale"] > 0
    assert last["shield/change_m_s"] >= 0
    parameters = load_parameters(components, tiny_run)
    assert jax.tree.structure(parameters) == jax.tree.structure(
        components.learner.start.eval_shape(jax.random.key(0)).parameters
    )


def test_four_updates_equal_two_and_two_after_a_resume(tiny_run, components, update, tmp_path, monkeypatch):
    # the session that goes on compiles for itself, as the one of the whole run did
    seen = []

    def stop_at_once(progress):
        seen.append(progress)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training_run, "_compiled", lambda *_: update)
        first = train_run(components, tmp_path, stop_at_once)
    assert (first.finished, first.updates) == (False, 2)  # the second was under way
    assert [item.update for item in seen] == [1]
    assert seen[-1].decisions == TINY.worlds * TINY.rollout
    assert logged_updates(tmp_path) == [1, 2]
    assert_equal_trees(first.parameters, load_parameters(components, tmp_path))
    finished_like(tiny_run, components, tmp_path)
    assert logged_updates(tmp_path) == [1, 2, 3, 4]


def test_a_restored_state_is_of_the_same_types_so_that_the_same_program_goes_on(tiny_run, components):
    # weak types, and the device that a restored array is bound to, are part of what JAX compiles
    fresh = components.learner.start(jax.random.key(0))
    with Checkpoints(tiny_run, reading=True) as checkpoints:
        restored = checkpoints.restore(fresh)
    assert jax.tree.structure(restored) == jax.tree.structure(fresh)
    for new, old in zip(jax.tree_util.tree_leaves(restored), jax.tree_util.tree_leaves(fresh), strict=True):
        assert jax.typeof(new) == jax.typeof(old)
        assert new.committed == old.committed


def test_a_finished_run_is_left_as_it_is(tiny_run, components, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(tiny_run, folder)
    monkeypatch.setattr(training_run, "_compiled", None)  # nothing is compiled either
    finished_like(tiny_run, components, folder)
    assert logged_updates(folder) == [1, 2, 3, 4]


def test_ctrl_c_while_compiling_ends_at_once_and_the_folder_starts_from_nothing(
    tiny_run, components, update, tmp_path, monkeypatch
):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(training_run, "_compiled", stopped)
    with pytest.raises(KeyboardInterrupt):
        train_run(components, tmp_path)
    assert load_config(tmp_path) == TINY
    with pytest.raises(CheckpointError, match="no checkpoint yet; run `testudo train --run"):
        load_parameters(components, tmp_path)
    monkeypatch.setattr(training_run, "_compiled", lambda *_: update)
    finished_like(tiny_run, components, tmp_path)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("moment", ["update", "log", "checkpoint"])
def test_ctrl_c_at_any_moment_of_an_update_leaves_a_folder_that_goes_on(
    moment, after, tiny_run, components, update, compiled_once, tmp_path, monkeypatch
):
    # the third update is hit: before its work, or after it and before the result is noted; the log is
    # one update behind
    if moment == "update":
        broken = raising_at(3, update, after=after)
        monkeypatch.setattr(training_run, "_compiled", lambda *_: broken)
    elif moment == "log":
        monkeypatch.setattr(MetricsLog, "write", raising_at(2, MetricsLog.write, after=after))
    else:
        monkeypatch.setattr(training_run, "_CHECKPOINT_EVERY_S", -1.0)
        monkeypatch.setattr(Checkpoints, "save", raising_at(3, Checkpoints.save, after=after))
    stopped = train_run(components, tmp_path)
    assert not stopped.finished
    assert stopped.updates == (2 if moment == "update" else 3)
    assert_equal_trees(stopped.parameters, load_parameters(components, tmp_path))
    assert logged_updates(tmp_path) == [*range(1, stopped.updates + 1)]
    monkeypatch.undo()
    monkeypatch.setattr(training_run, "_compiled", lambda *_: update)
    finished_like(tiny_run, components, tmp_path)
    assert logged_updates(tmp_path) == [1, 2, 3, 4]


def test_the_next_update_is_sent_off_before_the_metrics_of_the_last_are_read(components, update, tmp_path, monkeypatch):
    order = []

    def noted(state):
        order.append("update")
        return update(state)

    monkeypatch.setattr(training_run, "_compiled", lambda *_: noted)
    train_run(components, tmp_path, lambda progress: order.append(progress.update))
    assert order == ["update", "update", 1, "update", 2, "update", 3, 4]


def test_a_second_ctrl_c_while_saving_falls_back_to_the_checkpoint_before(
    tiny_run, components, update, compiled_once, tmp_path, monkeypatch
):
    monkeypatch.setattr(training_run, "_CHECKPOINT_EVERY_S", -1.0)
    save = raising_at(3, Checkpoints.save)
    monkeypatch.setattr(Checkpoints, "save", raising_at(4, save))
    with pytest.raises(KeyboardInterrupt):
        train_run(components, tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(training_run, "_compiled", lambda *_: update)
    assert logged_updates(tmp_path) == [1, 2, 3]
    finished_like(tiny_run, components, tmp_path)
    assert logged_updates(tmp_path) == [1, 2, 3, 4]  # the third was done again, and stands once


def test_ctrl_c_while_orbax_writes_waits_until_the_checkpoint_is_whole(
    tiny_run, components, compiled_once, tmp_path, monkeypatch
):
    # Orbax writes in threads that an exception does not stop: the save after it met their files
    written = []
    save = ocp.CheckpointManager.save

    def interrupted_save(manager, step, **options):
        signal.raise_signal(signal.SIGINT)
        save(manager, step, **options)
        written.append(step)

    monkeypatch.setattr(training_run, "_CHECKPOINT_EVERY_S", -1.0)
    monkeypatch.setattr(ocp.CheckpointManager, "save", interrupted_save)
    stopped = train_run(components, tmp_path)
    assert (stopped.finished, stopped.updates, written) == (False, 1, [1])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    monkeypatch.setattr(ocp.CheckpointManager, "save", save)
    finished_like(tiny_run, components, tmp_path)


def test_a_process_that_is_killed_while_it_saves_leaves_the_checkpoint_before(
    tiny_run, components, compiled_once, tmp_path
):
    # what Orbax leaves of a write that was cut off: a folder that has not got its name yet
    folder = tmp_path / "run"
    shutil.copytree(tiny_run, folder)
    torn = folder / "checkpoints" / "5.orbax-checkpoint-tmp"
    shutil.copytree(folder / "checkpoints" / "4", torn)
    (torn / "default" / "manifest.ocdbt").write_bytes(b"")
    finished_like(tiny_run, components, folder)


def test_metrics_go_on_after_a_line_that_was_cut_off(tmp_path):
    with MetricsLog(tmp_path, 0) as log:
        log.write(1, 10, 1.5, {"train/return": 1.0})
        log.write(2, 20, 2.5, {"train/return": 2.0})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"update": 3, "deci')
    with MetricsLog(tmp_path, 2) as log:
        log.write(3, 30, 0.5, {"train/return": 3.0})
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows] == [1, 2, 3]
    assert [row["seconds"] for row in rows] == [1.5, 2.5, 3.0]  # time goes on as well
    assert board_points(tmp_path / "tensorboard") == [("train/return", 10.0 * n, 1.0 * n) for n in (1, 2, 3)]


def board_points(folder):
    """Return name, step and value of every number that TensorBoard finds in a folder."""
    points = []
    for file in sorted(folder.iterdir()):
        data = file.read_bytes()
        while data:  # a record: its length, a check sum, the event, a check sum
            (size,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + size])
            points += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
            data = data[16 + size :]
    return points


GOOD = {"format": "testudo/training/1", **asdict(TINY)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "format: found None, expected 'testudo/training/1'"),
        ("null", "format: found None"),
        (json.dumps({**GOOD, "format": "testudo/training/2"}), "found 'testudo/training/2'"),
        (json.dumps({**GOOD, "worlds": "many"}), "worlds: found 'many', expected a whole number"),
        (json.dumps({**GOOD, "clip": None}), "clip: found None, expected a number"),
        (json.dumps({**GOOD, "colour": 3}), "colour: unknown key"),
        (json.dumps({k: v for k, v in GOOD.items() if k != "clip"}), "clip: missing"),
    ],
)
def test_a_configuration_that_does_not_hold_is_refused(text, message, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError) as caught:
        load_config(tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path / "config.json") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(CheckpointError, match=r"not a training run: config.json is missing; give"):
            load_config(folder)
    assert not list(tmp_path.iterdir())


def test_reading_a_run_without_a_checkpoint_makes_nothing(components, tmp_path):
    save_config(tmp_path, TINY)
    with pytest.raises(CheckpointError, match="no checkpoint yet; run `testudo train --run"):
        load_parameters(components, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_folder_with_another_configuration_is_not_overwritten(tiny_run):
    before = (tiny_run / "config.json").read_text()
    with pytest.raises(CheckpointError, match=r"another configuration: worlds: found 4, expected 8"):
        train_run(build(replace(TINY, worlds=8)), tiny_run)
    assert (tiny_run / "config.json").read_text() == before


def test_a_run_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written"):
        save_config(tmp_path / "run", TINY)


@pytest.mark.parametrize("changes", [{"width": 16}, {"memory": 8}, {"robot": "crazyflie_2x"}, {"algorithm": "ippo"}])
def test_a_checkpoint_of_another_configuration_is_refused(changes, tiny_run, capfd):
    with pytest.raises(CheckpointError, match="checkpoint 4 is of another configuration") as caught:
        load_parameters(build(replace(TINY, **changes)), tiny_run)
    assert "\n" not in str(caught.value)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("file", ["_METADATA", "manifest.ocdbt"])
def test_a_damaged_checkpoint_is_refused_with_the_way_out(file, tiny_run, components, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(tiny_run, folder)
    (folder / "checkpoints" / "4" / "default" / file).write_bytes(b"not what was written")
    with pytest.raises(CheckpointError, match=r"checkpoint 4 is damaged .*; remove .*4 to resume"):
        load_parameters(components, folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "dqn"}, "--algorithm: found 'dqn', expected one of mappo, ippo, pqn-vdn"),
        ({"algorithm": "qmix"}, "--algorithm qmix: found --command velocity, expected waypoints"),
        ({"algorithm": "vdn", "command": "waypoints", "message": 2}, "--algorithm vdn: found --message 2, expected 0"),
        ({"algorithm": "vdn", "trainer": "brax-ppo"}, "--algorithm vdn: found --trainer brax-ppo, expected testudo"),
        (
            {"algorithm": "hasac", "command": "waypoints"},
            "--algorithm hasac: found --command waypoints, expected velocity",
        ),
        ({"team_size": 1}, "--team-size: found 1, expected at least 2 robots"),
        ({"team_size": 500}, "500 robots do not fit"),
        ({"robot": "r2d2"}, "robot 'r2d2' is not known; known are"),
        (
            {"scenario": "chess"},
            "scenario 'chess' is not known; known are arctic_transport, chase, coverage, crossing",
        ),
        ({"worlds": 0}, "--worlds: found 0, expected at least 1"),
        ({"memory": -1}, "--memory: found -1, expected at least 0"),
        ({"seed": -1}, "--seed: found -1, expected 0 to 2147483647"),
        ({"minibatches": 3}, "--minibatches: 3 does not divide 4 worlds x 2 robots"),
        ({"learning_rate": float("nan")}, "--learning-rate: found nan"),
        ({"discount": 1.5}, "--discount: found 1.5, expected 0 to 1"),
        ({"max_gradient": 0.0}, "--max-gradient: found 0.0"),
        ({"failures": 1.5}, "--failures: found 1.5, expected 0 to 1"),
        ({"failures": 0.1, "trainer": "brax-ppo"}, "--failures: found 0.1 with --trainer brax-ppo, expected testudo"),
        ({"curriculum": True}, "--curriculum: scenario 'navigation' has no difficulties"),
        (
            {"curriculum": True, "scenario": "material_transport", "trainer": "brax-ppo"},
            "--curriculum: found it with --trainer brax-ppo, expected testudo",
        ),
    ],
)
def test_a_configuration_that_cannot_run_is_refused_before_anything_is_written(changes, message):
    with pytest.raises(TestudoError) as caught:
        build(replace(TINY, **changes))
    assert message in str(caught.value)
