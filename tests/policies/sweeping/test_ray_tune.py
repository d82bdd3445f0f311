"""A sweep by Ray Tune: the same study and runs as without, wherever a trial runs; most without any process of Ray's."""

import subprocess
import sys
import time

import pytest
from tests.policies.quick import TINY, TINY_OPTIONS

from testudo_deploy.cli import main
from testudo_hardware.errors import TestudoError
from testudo_policies.sweeping import results
from testudo_policies.sweeping.declaration import REASON, Sweep, counted_trials, declare, opened, requeue_stopped

RATE = "learning_rate=log:1e-4:1e-2"


@pytest.fixture(scope="module")
def ray_tune():
    """Import Ray, which takes seconds, in the one worker that runs this file, and not in all that collect it."""
    from testudo_policies.sweeping import ray_tune

    return ray_tune


@pytest.fixture
def asked(tmp_path, ray_tune):
    """Return what stands between Ray and the study of a new sweep of seven trials, and what it says."""
    declare(tmp_path, Sweep(TINY, (RATE,), "train/return", prune=True))
    said = []
    return ray_tune.Asked(
        tmp_path, Sweep(TINY, (RATE,), "train/return", prune=True), 7, opened(tmp_path), said.append
    ), said


def course(level):
    return {"course": [(10 * part, level) for part in range(1, 11)]}


def test_what_ray_reports_is_what_the_study_is_told(asked):
    """Results, a failed machine, a refused configuration and a pruned trial count as in a sweep without Ray."""
    asked, said = asked
    for number in range(4):
        order = asked.next(str(number))
        assert order["run"] == f"trial_{number:04d}"
        assert 1e-4 <= order["values"]["learning_rate"] <= 1e-2
        assert not asked.is_pruned(str(number), course(1.0))
        asked.end(str(number), course(1.0) | {"result": 1.0 + number}, failed=False)
    asked.next("lost")
    asked.end("lost", {}, failed=True)
    asked.next("refused")
    asked.end("refused", {"course": [], "reason": "here: --minibatches: 3 does not divide it"}, failed=False)
    asked.next("last")
    assert asked.next("more") is None  # as many as asked for
    asked.end("last", {"result": float("nan")}, failed=False)
    assert results.state_counts(asked.study) == {"finished": 4, "pruned": 0, "stopped": 0, "failed": 3}
    reasons = [trial.user_attrs[REASON] for trial in asked.study.trials if REASON in trial.user_attrs]
    assert reasons == [
        "its process or machine failed 3 times",
        "here: --minibatches: 3 does not divide it",
        "train/return is not finite",
    ]
    assert "trial 3: train/return 4; best 4 (trial 3)" in said


def test_a_trial_of_rays_is_pruned_and_one_that_is_stopped_goes_on_in_its_run_folder(asked):
    asked, _ = asked
    for number in range(5):
        asked.next(str(number))
        asked.is_pruned(str(number), course(1.0))
        asked.end(str(number), {"result": 1.0}, failed=False)
    asked.next("low")
    assert asked.is_pruned("low", course(0.0))
    asked.end("low", course(0.0), failed=False)
    order = asked.next("stopped")
    asked.is_pruned("stopped", {"course": [(1, 1.0)]})
    asked.end("stopped", {"course": [(1, 1.0)]}, failed=False)  # Ctrl-C: no result, and no reason
    assert results.state_counts(asked.study) == {"finished": 5, "pruned": 1, "stopped": 1, "failed": 0}
    assert requeue_stopped(asked.study) == 1
    again = asked.next("again")
    assert (again["run"], again["values"]) == (order["run"], order["values"])
    assert not asked.is_pruned("again", {"course": [(1, 1.0), (2, 1.0)]})
    assert len(counted_trials(asked.study)) == 7


@pytest.mark.parametrize(
    ("amounts", "workers", "expected"),
    [
        ([2], 2, 1),
        ([16], 3, 5),
        ([1, 9], 2, 4),  # not 5: the first machine has no room for another one
        ([8, 8], 2, 8),
        ([1], 4, 0.25),  # of one accelerator
        ([1, 1], 3, 0.5),
        ([0, 0], 2, 0),
    ],
)
def test_trials_share_what_the_machines_have_so_that_all_fit(amounts, workers, expected, ray_tune):
    assert ray_tune.share(amounts, workers) == expected


def test_a_machine_that_does_not_see_the_folder_is_named(tmp_path, ray_tune):
    with pytest.raises(TestudoError, match=r"away: found no sweep, .* all machines have to see it"):
        ray_tune._result(tmp_path / "away", {}, [])


def test_without_ray_or_a_cluster_one_sentence_says_so(tmp_path, capsys, monkeypatch, ray_tune):
    words = ["sweep", "navigation", "--folder", str(tmp_path / "new"), *TINY_OPTIONS, "--space", RATE]
    assert main([*words, "--ray", "nowhere:x"]) == 2
    assert "--ray nowhere:x: found no cluster (" in " ".join(capsys.readouterr().err.split())
    with monkeypatch.context() as patch:
        patch.setattr(ray_tune.ray, "init", never_started)
        assert main([*words, "--ray", "local"]) == 2
    assert "--ray local: found no cluster (The current node timed out)" in " ".join(capsys.readouterr().err.split())
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "testudo_policies.sweeping.ray_tune")
    monkeypatch.delattr("testudo_policies.sweeping.ray_tune")
    assert main([*words[:3], str(tmp_path / "other"), *words[4:], "--ray", "local"]) == 2
    assert "the package ray is not installed: pip install 'testudo[ray]'" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "other").exists()


def never_started(*_, **__):
    raise Exception("The current node timed out")  # noqa: TRY002 -- as Ray does


@pytest.mark.slow
@pytest.mark.timeout(900)  # Ray and JAX start twice, in five processes
def test_a_sweep_of_two_processes_of_rays_goes_on_after_a_kill(tmp_path):
    """Each run has each of its updates once, whichever process wrote it, and the sweep ends with its table."""
    program = [sys.executable, "-m", "testudo_deploy.cli", "sweep"]
    ray = ["--folder", str(tmp_path / "sweep"), "--workers", "2", "--trials", "2", "--ray", "local"]
    options = [*(word for word in TINY_OPTIONS if "decisions" not in word), "--decisions=8000"]
    begun = subprocess.Popen(
        [*program, "navigation", *ray, *options, "--space", RATE, "--objective", "train/reward", "--no-prune"]
    )
    figures = tmp_path / "sweep" / "trial_0001" / "metrics.jsonl"
    while begun.poll() is None and not (figures.is_file() and figures.read_text()):
        time.sleep(0.2)
    begun.kill()
    begun.wait()
    ended = subprocess.run([*program, *ray], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "2 stopped trials go on from their checkpoints" in " ".join(ended.stdout.split())
    assert "best trials (2 finished)" in ended.stdout
    for name in ("trial_0000", "trial_0001"):
        rows = (tmp_path / "sweep" / name / "metrics.jsonl").read_text().splitlines()
        assert len(rows) == 8000 // (TINY.worlds * TINY.rollout)
