"""The verb shows and writes the figures, and bad input is one sentence."""

import json

import pytest
from tests.analysis.gap.runs import ROBOT

from testudo_analysis.commands.gap import gap
from testudo_bench.performance.recorded_runs import measure
from testudo_bench.synthetic_data.synthetic_runs import synthetic_recording
from testudo_hardware.errors import TestudoError
from testudo_hardware.spec import load_robot
from testudo_runs.recording.load import load_recording
from testudo_runs.recording.write import write_recording


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return the folders of two runs: the robots of the second are ten per cent slower."""
    base = tmp_path_factory.mktemp("runs")
    for name, truth in (("one", None), ("other", {"all": {"speed_scale": 0.9}})):
        write_recording(synthetic_recording(load_robot(ROBOT), seconds=30.0, truth=truth), base / name)
    return base / "one", base / "other"


def test_the_verb_shows_the_comparison_and_writes_numbers(folders, tmp_path, capsys):
    one, other = folders
    assert gap(one, against=other, json=tmp_path / "more" / "gap.json") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Against" in shown
    assert "higher" in shown
    values = json.loads((tmp_path / "more" / "gap.json").read_text(encoding="utf-8"))
    assert values["schema"] == "testudo/gap/1"
    assert values["source"] == "imported"
    assert {row["model"] for row in values["types"][0]["rows"]} == {"dead reckoning", "nominal"}


def test_a_slower_robot_is_named_first(folders, tmp_path):
    assert gap(folders[1], json=tmp_path / "gap.json") == 0
    values = json.loads((tmp_path / "gap.json").read_text(encoding="utf-8"))
    assert values["types"][0]["causes"]["nominal"][0]["kind"] == "speed scale"


@pytest.mark.slow
def test_another_robot_file_is_set_beside(folders, tmp_path):
    from dataclasses import replace

    from testudo_analysis.identify.estimation.identification_result import Estimate, Identification
    from testudo_analysis.identify.robot_file_writer import write_identified

    found = Identification(ROBOT, ("robot1",), (Estimate("dynamics.speed_scale", 0.9, 0.89, 0.91, "1"),), ())
    file = tmp_path / "slow.toml"
    write_identified(ROBOT, found, file)
    assert gap(folders[1], against=file, identified=file, json=tmp_path / "gap.json") == 0
    values = json.loads((tmp_path / "gap.json").read_text())
    (row,) = [
        row for row in values["against"] if (row["robot"], row["channel"], row["horizon_s"]) == ("all", "position", 2.0)
    ]
    assert abs(row["relative"]) < 1e-6  # the identified file against itself
    assert values["types"][0]["parameters"]["identified"]["speed_scale"] == 0.9
    assert replace(load_robot(file)).speed_scale == 0.9


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["missing"], "no such run folder"),
        (["RUN", "--robot-type", "nobody"], "nobody"),
        (["RUN", "--identified", "nofile.toml"], "nofile.toml"),
        (["RUN", "--against", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_sentence(folders, tmp_path, capsys, words, said):
    words = [str(folders[0]) if word == "RUN" else word for word in words]
    with pytest.raises(TestudoError, match=said):
        gap(*_parsed(words), json=tmp_path / "gap.json")
    assert not (tmp_path / "gap.json").exists()


def _parsed(words):
    from pathlib import Path

    rest = dict(zip((word[2:].replace("-", "_") for word in words[1::2]), words[2::2], strict=True))
    values = {key: value if key == "robot_type" else Path(value) for key, value in rest.items()}
    return (Path(words[0]), values.get("against"), values.get("robot_type"), values.get("identified"))


def test_the_benchmark_counts_real_time_once(folders):
    values = measure(load_recording(folders[0]), 1).values
    assert values["real_s"] == pytest.approx(load_recording(folders[0]).duration_s, abs=0.5)
    assert values["times_real_time"] == pytest.approx(values["real_s"] / values["wall_s"])
    assert values["starts"] > 2900
