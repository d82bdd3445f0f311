"""Sweeps: what is varied, that a stop or a kill loses nothing, and what is written; most without any training."""

import json
import math
import sys
import threading

import pytest
from tests.policies.quick import TINY, TINY_OPTIONS

from testudo_deploy.cli import main
from testudo_hardware.errors import TestudoError
from testudo_policies.commands import train as train_module
from testudo_policies.learning.checkpoints import read_config_file
from testudo_policies.learning.progress import Progress
from testudo_policies.sweeping import results, worker
from testudo_policies.sweeping.declaration import Sweep, counted_trials, declare, locked, opened
from testudo_policies.sweeping.search_space import Dimension, parsed_space

PLOTS = results._PLOTS
RATE = "learning_rate=log:1e-4:1e-2"
WIDTH = "width=8,16"


class KilledError(BaseException):
    """Ends a worker as a kill does: nothing after it runs but what the kernel does."""


def good_at(config):
    """Return the result of a configuration; it is best at a learning rate of 1e-3."""
    return -abs(math.log10(config.learning_rate) + 3) + config.width / 1000


@pytest.fixture
def trainings(monkeypatch):
    """Train nothing: note configuration and run folder, and return the result; ``end`` may raise at a number."""
    ran, end = [], {}

    def trained(config, folder, objective, watch):
        ran.append((config, folder.name))
        if len(ran) in end:
            raise end.pop(len(ran))
        return good_at(config)

    monkeypatch.setattr(worker, "trained", trained)
    monkeypatch.setattr(results, "_PLOTS", ("slice",))
    return ran, end


def sweep(folder, *words):
    return main(["sweep", "navigation", "--folder", str(folder), *TINY_OPTIONS, *words])


def test_the_best_of_all_trials_is_written_as_options_for_training(trainings, tmp_path, capsys, monkeypatch):
    ran, _ = trainings
    monkeypatch.setattr(results, "_PLOTS", PLOTS)
    folder = tmp_path / "sweep"
    assert sweep(folder, "--space", RATE, "--space", WIDTH, "--trials", "6") == 0
    assert len(ran) == 6
    best = max((config for config, _ in ran), key=good_at)
    assert read_config_file(folder / "best.json") == best
    assert all(TINY.rollout == config.rollout and 1e-4 <= config.learning_rate <= 1e-2 for config, _ in ran)
    shown = " ".join(capsys.readouterr().out.split())
    assert "best trials (6 finished)" in shown
    assert {path.stem for path in (folder / "plots").iterdir()} >= {
        "optimization_history",
        "slice",
        "param_importances",
    }
    # options that are given beside count more
    taken = []
    monkeypatch.setattr(train_module, "build_run", lambda config: taken.append(config) or sys.exit())
    with pytest.raises(SystemExit):
        main(["train", "--like", str(folder / "best.json"), "--seed", "5", "--run", str(tmp_path / "run")])
    assert taken == [best.__class__(**{**vars(best), "seed": 5})]


@pytest.mark.parametrize("end", [KeyboardInterrupt(), KilledError()], ids=["Ctrl-C", "kill"])
def test_a_stopped_sweep_goes_on_with_the_trial_that_was_under_way(end, trainings, tmp_path, capsys):
    ran, ends = trainings
    ends[3] = end
    words = ("--space", RATE, "--trials", "5")
    if isinstance(end, KeyboardInterrupt):
        assert sweep(tmp_path, *words) == 130
    else:
        with pytest.raises(KilledError):
            sweep(tmp_path, *words)
        with (tmp_path / "journal.log").open("a") as file:
            file.write('{"op_code": 6, "wor')  # a line that the kill cut off
    before = list(ran)
    assert main(["sweep", "--folder", str(tmp_path), "--trials", "5"]) == 0
    assert "1 stopped trials go on" in " ".join(capsys.readouterr().out.split())
    assert ran[3] == before[2]  # the same options in the same run folder, which has its checkpoint
    assert len(ran) == 5 + 1
    assert len({name for _, name in ran}) == 5
    assert len(counted_trials(opened(tmp_path))) == 5
    # nothing is left to do, and more trials are more
    assert main(["sweep", "--folder", str(tmp_path), "--trials", "5"]) == 0
    assert len(ran) == 6
    assert main(["sweep", "--folder", str(tmp_path), "--trials", "6"]) == 0
    assert len(ran) == 7


def test_a_trial_that_was_stopped_twice_is_counted_once_and_has_not_failed(trainings, tmp_path):
    _, ends = trainings
    ends |= {2: KeyboardInterrupt(), 3: KeyboardInterrupt()}
    words = ("--space", RATE, "--trials", "3")
    assert [sweep(tmp_path, *words), *(main(["sweep", "--folder", str(tmp_path), "--trials", "3"]) for _ in "ab")] == [
        130,
        130,
        0,
    ]
    assert results.state_counts(opened(tmp_path)) == {"finished": 3, "pruned": 0, "stopped": 0, "failed": 0}


def test_workers_share_the_trials_and_begin_no_more_than_asked(trainings, tmp_path):
    ran, _ = trainings
    declare(tmp_path, Sweep(TINY, (RATE,), "train/return", prune=False))
    workers = [threading.Thread(target=worker.work, args=(tmp_path, 5, lambda _: None)) for _ in range(2)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert len(ran) == 5
    assert len({name for _, name in ran}) == 5


def test_a_trial_below_the_median_is_pruned_and_one_that_cannot_run_fails(monkeypatch, tmp_path, capsys):
    seen = []

    def trained(config, folder, objective, watch):
        seen.append(config)
        if len(seen) == 7:
            raise TestudoError("--minibatches: 3 does not divide it")
        level = 0.0 if len(seen) == 6 else 1.0
        for update in range(1, 11):
            watch(Progress(update, 10, 16 * update, 1.0, 16.0, {objective: level}))
        return level

    monkeypatch.setattr(worker, "trained", trained)
    monkeypatch.setattr(results, "_PLOTS", ())
    assert sweep(tmp_path, "--space", RATE, "--trials", "7") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "trial 5: pruned, train/return is below the median" in shown
    assert "trial 6: failed: --minibatches: 3 does not divide it" in shown
    assert "5 finished, 1 pruned, 1 failed" in shown


def test_a_worker_ends_when_its_sweep_was_killed():
    watch = worker.Watch(None, Sweep(TINY, (RATE,), "train/return", prune=True), print, parent=-1)
    with pytest.raises(KeyboardInterrupt):
        watch(Progress(1, 10, 16, 1.0, 16.0, {}))


def test_a_trial_is_a_training_run(tiny_run, monkeypatch, tmp_path):
    """Its result is the mean over the last tenth; a figure that is never known is named, with those that are."""
    rows = [json.loads(line) for line in (tiny_run / "metrics.jsonl").read_text().splitlines()]
    assert worker.trained(TINY, tiny_run, "train/reward", lambda _: None) == rows[-1]["train/reward"]
    with pytest.raises(TestudoError, match=r"train/return is not known at the end; train longer .*value/mean"):
        worker.trained(TINY, tiny_run, "train/return", lambda _: None)


def test_ranges_and_choices_have_the_type_of_their_option():
    assert parsed_space(["learning-rate=log:1e-4:1e-2", "entropy=0:0.02", "rollout=4:64", "width=8,16,8"]) == (
        Dimension("learning_rate", (), 1e-4, 1e-2, is_log=True),
        Dimension("entropy", (), 0.0, 0.02),
        Dimension("rollout", (), 4, 64, is_whole=True),
        Dimension("width", (8, 16)),
    )
    assert parsed_space(["algorithm=ippo,mappo", "curriculum=true,false"])[1].choices == (True, False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--space: found none, expected every option once"),
        (["--space", "width=8,16", "--space", "width=32"], "--space: found width, width, expected every option once"),
        (["--space", "colour=1,2"], "--space colour=1,2: found option 'colour', expected one of robot"),
        (["--space", "seed=1,2"], "found option 'seed', expected one of"),
        (["--space", "width="], "found no value"),
        (["--space", "width=8,x"], "found 'x', expected a number"),
        (["--space", "width=8,1.5"], "found '1.5', expected a whole number"),
        (["--space", "algorithm=a:b"], "found no range of numbers"),
        (["--space", "entropy=log:0:1"], "of `log` above 0"),
        (["--space", "entropy=2:1"], "expected a rising range"),
        (["--space", RATE, "--trials", "0"], "--trials: found 0, expected at least 1"),
        (["--space", RATE, "--robot", "r2d2"], "robot 'r2d2' is not known"),
        (["--space", RATE, "--trainer", "brax-ppo"], "expected --trainer testudo"),
    ],
)
def test_what_is_no_sweep_is_refused_before_anything_is_written(words, message, tmp_path, capsys):
    assert sweep(tmp_path / "new", *words) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "new").exists()


def test_a_folder_has_one_sweep_and_one_search_space(trainings, tmp_path, capsys):
    declare(tmp_path, Sweep(TINY, (RATE,), "train/return", prune=False))
    with locked(tmp_path, "sweep.lock"):
        assert main(["sweep", "--folder", str(tmp_path)]) == 2
    assert "found a sweep at work" in capsys.readouterr().err
    assert main(["sweep", "--folder", str(tmp_path), "--space", WIDTH]) == 2
    assert "--space: found another one" in capsys.readouterr().err
