"""The verbs of learning through the program itself: the short path, and what is refused."""

import json
import os
import shutil
from pathlib import Path

import pytest
from tests.policies.quick import TINY, TINY_OPTIONS, quick_compilation

from testudo_deploy.cli import main
from testudo_deploy.compiling import shared_library
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.contract.shipped_policies import policy_file
from testudo_deploy.fleet.fleet import load_fleet
from testudo_policies.commands import train as train_module
from testudo_policies.evaluation.evaluation import HELD_OUT_SEED
from testudo_policies.exporting import packaging, parity
from testudo_policies.learning.checkpoints import load_config, save_config
from testudo_policies.learning.training_run import TrainingResult


@pytest.fixture(scope="module", autouse=True)
def _quick(tmp_path_factory):
    """Compile quickly, and give back the cores that a benchmark leaves."""
    cores = os.sched_getaffinity(0)
    with quick_compilation(tmp_path_factory):
        yield
    os.sched_setaffinity(0, cores)


def succeed(capsys, *words):
    """Run the program and return what it printed."""
    status = main([str(word) for word in words])
    shown = capsys.readouterr()
    assert status == 0, shown.err
    return shown.out


@pytest.fixture(scope="module")
def run(tiny_run, tmp_path_factory):
    """Return a copy of the folder of the tiny run that `testudo train` wrote."""
    return shutil.copytree(tiny_run, tmp_path_factory.mktemp("verbs") / "run")


@pytest.fixture(scope="module")
def policy(run):
    """Return the file that `testudo export` made of it, after an evaluation."""
    numbers = run / "evaluation.json"
    # each baseline is a program
    assert main(["evaluate", str(run), "--episodes", "2", "--baselines", "none", "--json", str(numbers)]) == 0
    with pytest.MonkeyPatch.context() as patch:  # each number of slots is a program; see test_onnx_export.py
        patch.setattr(parity, "SLOTS", (1, 3, 8))
        patch.setattr(packaging, "_LOOP_STEPS", 100)
        assert main(["export", str(run), "--json", str(run / "export.json")]) == 0
    return run / "policy.onnx"


def test_train_tells_where_it_is_and_what_comes_next(run, capsys):
    shown = succeed(capsys, "train", "--run", run)  # it is finished: nothing is left to do
    assert f"resuming {run} with its own configuration" in " ".join(shown.split())
    assert "finished: 4 of 4 updates" in shown
    assert "next: testudo evaluate" in shown
    assert load_config(run) == TINY


def test_evaluate_writes_its_numbers(run, tmp_path):
    assert main(["evaluate", str(run), "--episodes", "4", "--json", str(tmp_path / "numbers.json")]) == 0
    values, *baselines = json.loads((tmp_path / "numbers.json").read_text())
    assert [item["policy"] for item in (values, *baselines)] == ["trained", "hand-written", "untrained", "astar"]
    assert len({item["mean_return"] for item in (values, *baselines)}) == 4
    assert {item["first_seed"] for item in (values, *baselines)} == {HELD_OUT_SEED}
    assert values["episodes"] == 4
    assert values["team_size"] == TINY.team_size
    names = {"success", "success_low", "contacts", "minimum_separation_m", "deadlocks"}
    assert names <= set(values)


def test_evaluate_takes_the_file_and_other_team_sizes(policy, capsys, tmp_path):
    numbers = tmp_path / "numbers.json"
    shown = succeed(capsys, "evaluate", policy, "--episodes", "4", "--team-size", "2", "3", "--json", numbers)
    assert "navigation" in shown
    assert "return" in shown
    assert "its place here" in shown
    assert f"wrote {numbers}" in shown.replace("\n", "")
    assert [item["team_size"] for item in json.loads(numbers.read_text())] == 4 * [2, 3]


def test_export_writes_a_proven_file_and_a_fleet_that_pins_it(policy, run):
    values = json.loads((run / "export.json").read_text())
    artefact = PolicyArtefact.load(policy, sha256=values["sha256"])
    assert values["parity"]["max_error"] <= 1e-5
    found = artefact.contract.evaluation
    (evaluation,) = json.loads((run / "evaluation.json").read_text())
    assert list(found) == [str(TINY.team_size)]
    assert found[str(TINY.team_size)] | {"metrics": {}} == evaluation
    assert (evaluation["policy"], evaluation["episodes"]) == ("trained", 2)
    assert load_fleet(run / "fleet.yaml").policy_sha256 == artefact.sha256


def test_inspect_shows_it_and_writes_its_values(capsys, tmp_path):
    policy = policy_file(Path("navigation"))
    shown = succeed(capsys, "inspect", policy, "--json", tmp_path / "policy.json")
    assert "neighbour_position_world" in shown
    values = json.loads((tmp_path / "policy.json").read_text())
    assert values["file"]["sha256"] == PolicyArtefact.load(policy).sha256
    assert values["contract"]["robot"] == "gritsbot_x"


def test_bench_robot_times_its_ticks(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("testudo_deploy.commands.tick_timing._TICKS", 50)
    monkeypatch.setattr(shared_library, "FLAGS", ["-O0", *shared_library.FLAGS[1:]])  # compiles sooner
    numbers = tmp_path / "robot.json"
    options = ("--repeats", "1", "--worlds", "20", "--json", numbers)
    shown = succeed(capsys, "bench", "robot", "--policy", policy_file(Path("navigation")), *options)
    assert "policy and shield, p50" in shown
    values = json.loads(numbers.read_text())
    assert values["neighbours"] == 8
    for name in ("policy_and_shield", "tick"):
        assert 0 < values[f"{name}_p50_us"] <= values[f"{name}_p99_us"]
        assert values[f"{name}_p50_us"] < values[f"numpy_{name}_p50_us"]
    assert values["compiled"]
    assert values["largest_difference"] <= 1e-9
    assert values["machine"]["cores"] >= 1


def test_bench_import_times_reading_and_writing(capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("TESTUDO_REAL_DATA", raising=False)
    monkeypatch.setattr("testudo_bench.performance.recorded_runs._DURATION_S", 5.0)
    numbers = tmp_path / "import.json"
    shown = succeed(capsys, "bench", "import", "--repeats", "1", "--team-size", "2", "--json", numbers)
    assert "times real time" in shown
    values = json.loads(numbers.read_text())
    assert (values["logs"], values["robots"], values["messages"]) == ("made", 2, 2 * (5 * 67 + 5 * 64))
    assert 0 < values["writing_s"] < values["wall_s"]


def test_bench_projection_times_solves_and_whole_shields(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("testudo_bench.performance.projection._SIZES", ((2, 2, 10.0), (3, 2, 1.0)))
    monkeypatch.setattr("testudo_bench.performance.projection._TICKS", 20)
    numbers = tmp_path / "projection.json"
    shown = succeed(capsys, "bench", "projection", "--repeats", "1", "--json", numbers)
    assert "quadprog" in shown
    values = json.loads(numbers.read_text())
    assert all(case["solves_per_s"] > 0 for case in values["projection"])
    assert all(case["share_bound"] > 0.5 for case in values["projection"] if "share_bound" in case)
    assert [case["robot"] for case in values["latency"]] == ["gritsbot_x", "robomaster_s1", "crazyflie_2x"]
    assert all(0 < case["p50_us"] <= case["p99_us"] for case in values["latency"])


@pytest.mark.slow  # a program for each size
def test_bench_crowd_times_worlds_of_more_and_more_robots(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("testudo_bench.performance.crowds._SIZES", ((4, 1), (32, 1), (33, 1)))
    monkeypatch.setattr("testudo_bench.performance.crowds._DECISIONS", 1)
    numbers = tmp_path / "crowd.json"
    shown = succeed(capsys, "bench", "crowd", "--repeats", "1", "--json", numbers)
    assert "real time" in shown
    values = json.loads(numbers.read_text())
    assert [row["robots"] for row in values["worlds"]] == [4, 32, 33]
    assert all(row["contacts"] == 0 and row["compile_s"] > 0 for row in values["worlds"])
    assert values["worlds"][1]["cost_over_32"] == 1


def test_train_that_is_stopped_says_so_in_its_exit_status(tmp_path, capsys, monkeypatch):
    stopped = TrainingResult(None, 2, finished=False, compile_s=0.0, seconds=0.0)
    monkeypatch.setattr(train_module, "train_run", lambda *_: stopped)
    assert main(["train", "--run", str(tmp_path), *TINY_OPTIONS]) == 130
    assert "stopped; the same command with --run resumes it: 2 of 4" in capsys.readouterr().out


@pytest.mark.slow
def test_train_that_ctrl_c_stops_goes_on_with_the_same_command(tmp_path, capsys, monkeypatch):
    class Display:
        def __init__(self, console):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *unused):
            pass

        def show(self, _):
            raise KeyboardInterrupt

    monkeypatch.setattr(train_module, "TrainingDisplay", Display)
    assert main(["train", "--run", str(tmp_path), *TINY_OPTIONS]) == 130
    assert "stopped; the same command with --run resumes it: 2 of 4" in capsys.readouterr().out
    monkeypatch.undo()
    assert "finished: 4 of 4 updates" in succeed(capsys, "train", "--run", tmp_path)


REFUSED = {
    "train: unknown scenario": (["train", "chess"], "scenario 'chess' is not known"),
    "train: unknown robot": (["train", "--robot", "r2d2"], "robot 'r2d2' is not known; known are"),
    "train: no such robot file": (["train", "--robot", "own.toml"], "own.toml: no such robot file"),
    "train: unknown algorithm": (["train", "--algorithm", "dqn"], "expected one of mappo, ippo"),
    "train: team of one": (["train", "--team-size", "1"], "--team-size: found 1, expected at least 2"),
    "train: crowd": (["train", "--team-size", "500"], "500 robots do not fit"),
    "train: broken run": (["train", "--run", "broken"], "config.json: not JSON"),
    "train: run is a file": (["train", "--run", "file"], "file: cannot be written"),
    "evaluate: no file": (["evaluate", "no.onnx"], "no.onnx: no such file; make one with"),
    "evaluate: no run": (["evaluate", "empty"], "not a training run: config.json is missing"),
    "evaluate: untrained": (["evaluate", "untrained"], "no checkpoint yet; run `testudo train"),
    "evaluate: broken run": (["evaluate", "broken"], "config.json: not JSON"),
    "evaluate: no policy": (["evaluate", "file"], "file: truncated or not an ONNX file"),
    "evaluate: nowhere": (["evaluate", "empty", "--json", "no/x.json"], "folder no does not exist"),
    "cross: no policy": (["cross"], "cross: found no policy; expected training runs or policy files"),
    "cross: episodes": (["cross", "empty", "--episodes", "0"], "--episodes: found 0, expected 1 to"),
    "cross: no run": (["cross", "empty"], "not a training run: config.json is missing"),
    "export: no run": (["export", "empty"], "not a training run: config.json is missing"),
    "export: a file": (["export", "file"], "file: not a training run"),
    "export: untrained": (["export", "untrained"], "no checkpoint yet"),
    "export: nowhere": (["export", "untrained", "--json", "empty"], "empty: is a folder"),
    "shield: robot": (["shield", "r2d2"], "robot 'r2d2' is not known"),
    "shield: arena": (
        ["shield", "gritsbot_x", "--arena", "1", "2", "3"],
        "--arena: found [1.0, 2.0, 3.0], expected 2 numbers",
    ),
    "wrap: no description": (["wrap", "file", "--contract", "no.yaml"], "no.yaml: no such description"),
    "wrap: itself": (["wrap", "file", "--contract", "no.yaml", "--out", "file"], "--out file: is the policy itself"),
    "inspect: no file": (["inspect", "no.onnx"], "no.onnx: no such file"),
    "inspect: an empty folder": (["inspect", "empty"], "the source holds no file"),
    "inspect: neither": (["inspect", "file"], "no file is recognised by its header: found file"),
    "inspect: no recording": (["inspect", "broken"], "no file is recognised by its header: found config.json"),
    "inspect: no mapping": (["inspect", "empty", "--map", "kitti"], "--map: 'kitti' is not known; known are crazyflie"),
    "import: one path": (["import", "empty"], "import: found one path, expected SOURCE... RUN"),
    "import: nothing": (["import", "no", "new"], "no: no such file or folder"),
    "import: no logs": (["import", "broken", "new"], "no file is recognised by its header: found config.json"),
    "import: not empty": (["import", "file", "broken"], "broken: exists already; give a new folder for the run"),
    "import: robot": (["import", "file", "new", "--robot-type", "r2d2"], "--robot-type: robot 'r2d2' is not known"),
    "dataset: one path": (["dataset", "empty"], "expected run folders and a file to write"),
    "dataset: not npz": (["dataset", "empty", "data.h5"], "data.h5: expected a file name that ends in .npz"),
    "dataset: no run": (["dataset", "empty", "data.npz"], "empty: found no run.json in it or below"),
    "improve: no run": (["improve", "no", "--policy", "p.onnx"], "no: no such run folder"),
    "improve: no policy": (["improve", "empty", "--policy", "p.onnx"], "p.onnx: no such file"),
    "improve: no time": (["improve", "empty", "--policy", "p.onnx", "--minutes", "0"], "--minutes: found 0.0"),
    "security: no fleet": (["security", "no.yaml", "keys"], "no.yaml: no such fleet file"),
    "security: domain": (["security", "no.yaml", "keys", "--domain", "300"], "--domain: found '300', expected"),
    "doctor: seconds": (["doctor", "--seconds", "nan"], "--seconds: found nan, expected 0 to 600 s"),
    "doctor: domain": (["doctor", "--domain", "300"], "--domain: found '300', expected a number from 0 to 232"),
    "estop: no fleet": (["estop", "no.yaml"], "no.yaml: no such fleet file"),
    "estop: domain": (["estop", "--domain", "300"], "--domain: found '300', expected a number from 0 to 232"),
    "estop: wait": (["estop", "--wait", "nan"], "--wait: found nan, expected a time above 0 s"),
    "rearm: wait": (["rearm", "r0", "--wait", "0"], "--wait: found 0, expected a time above 0 s"),
    "calibrate: no fleet": (["calibrate", "tb1", "--fleet", "no.yaml"], "no.yaml: no such fleet file"),
    "navigate: no fleet": (["navigate", "no.yaml"], "no.yaml: no such fleet file"),
    "policy: no fleet": (["policy", "no.yaml", "other.onnx"], "no.yaml: no such fleet file"),
    "goal: no fleet": (["goal", "no.yaml", "r0", "1", "2"], "no.yaml: no such fleet file"),
    "trial: no fleet": (["trial", "no.yaml"], "no.yaml: no such fleet file"),
    "trial: patience": (["trial", "no.yaml", "--patience", "nan"], "--patience: found nan s, expected 5 to 3600 s"),
    "teleop: no fleet": (["teleop", "no.yaml", "r0"], "no.yaml: no such fleet file"),
    "lost: no fleet": (["lost", "no.yaml", "r0", "--where-last-seen"], "no.yaml: no such fleet file"),
    "arm: nobody": (["arm"], "arm: no robot is named; expected one or more"),
    "pause: nobody": (["pause"], "pause: no robot is named; expected one or more"),
    "station: no fleet": (["station", "no.yaml"], "no.yaml: no such fleet file"),
    "station: port": (["station", "no.yaml", "--port", "99999"], "--port: found 99999, expected 0 to 65535"),
    "start: wait": (["start", "r0", "--wait", "-1"], "--wait: found -1, expected a time above 0 s"),
    "rearm: nobody": (["rearm"], "rearm: no robot is named; expected one or more"),
    "bench: unknown": (
        ["bench", "chess"],
        (
            "'chess' is not known; known are calibrate, crowd, drone_bands, drone_identify, drones, emulated, estop, "
            "faults, fleet, forecast, games, gpu, hosts, identify, import, improve, kills, learning, lossy, mpe, "
            "mutants, orders, platoon, projection, radio, redteam, replay, robot, screen, shield, sim, tamper, tasks, "
            "tiers"
        ),
    ),
    "bench: policy missing": (["bench", "robot"], "--policy is missing"),
    "bench: other option": (["bench", "sim", "--policy", "p"], "--policy: not an option of this"),
    "report: no run": (["report", "empty"], "empty: "),
    "view: no such name": (
        ["view", "chess"],
        "chess: no such file, folder or scenario; give a recorded run, a policy.onnx",
    ),
    **{
        f"{words[0]}: no shipped policy": (
            words,
            "chess: no such file, and no policy of that name ships; those that ship",
        )
        for words in (
            ["up", "--policy", "chess"],
            ["inspect", "chess"],
            ["evaluate", "chess"],
            ["cross", "chess"],
            ["replay", "empty", "--policy", "chess"],
            ["incident", "empty", "--policy", "chess"],
            ["improve", "empty", "--policy", "chess"],
            ["bench", "robot", "--policy", "chess"],
            ["fleet", "import", "file", "--policy", "chess"],
        )
    },
    "bench: no file": (["bench", "robot", "--policy", "no.onnx"], "no.onnx: no such file"),
    "bench: unknown robot": (["bench", "sim", "--robot", "r2d2"], "robot 'r2d2' is not known"),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_one_sentence_and_status_2(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "broken"):
        (tmp_path / name).mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    (tmp_path / "file").write_text("no policy at all")
    save_config(tmp_path / "untrained", TINY)
    before = sorted(tmp_path.rglob("*"))
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("testudo: ")
    assert shown.count("\n") == 1
    assert message in shown
    assert sorted(tmp_path.rglob("*")) == before  # nothing is left behind


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--episodes", "0"], "--episodes: found 0, expected at least 1"),
        (["--team-size", "1"], "--team-size: found 1, expected at least 2 robots"),
        (["--team-size", "2", "500"], "500 robots do not fit"),
        (["--seed", "-5"], "--seed: found -5"),
    ],
)
def test_evaluate_refuses_what_it_cannot_run(words, message, run, capsys):
    assert main(["evaluate", str(run), *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [["train", "--volume", "3"], ["train", "--worlds", "many"]])
def test_an_option_that_is_none_ends_with_status_2(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert words[1] in capsys.readouterr().err
