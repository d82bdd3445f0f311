"""A dataset as a folder in the format of LeRobot 3.0: Parquet tables with JSON beside them.

Each robot of an episode is an episode of its own, as LeRobot knows single agents; all robots of a run have the same
observation layout. Format: LeRobotDataset v3.0 of Hugging Face (info.json, stats.json, tasks, episodes, data).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testudo_hardware.errors import TestudoError
from testudo_policies.dataset.dataset_file import Dataset, flat_observations
from testudo_runs.recording.write import whole_folder

VERSION = "v3.0"
OBSERVATION, ACTION, REWARD, DONE = "observation.state", "action", "next.reward", "next.done"
_DATA, _EPISODES = "data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet"
_WHOLE_HZ = 1e-6
_QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


def save_lerobot(folder: Path, contents: Dataset, card: Mapping[str, Any]) -> int:
    """Write the folder, whole or not at all, and return the number of frames.

    ``card`` is the dataset card, which goes into it as `testudo.json`. Decisions whose action or reward is unknown are
    left out, and the episode ends before them: LeRobot has no mask.

    Raises:
        TestudoError: the folder exists, cannot be written, or no decision is valid.
    """
    if folder.exists():
        raise TestudoError(f"{folder}: exists; expected the name of a new folder")
    period_s = float(card["decision_period_s"])
    frames, episodes = _frames(contents, period_s)
    if not episodes:
        raise TestudoError(f"{folder}: no decision of any robot is valid, expected at least one")
    task = f"{card['scenario']}, one of {card['robots']} {card['robot']}"
    try:
        with whole_folder(folder) as partial:
            for part in (_DATA, _EPISODES):
                (partial / part).parent.mkdir(parents=True)
            pd.DataFrame({name: list(values) for name, values in frames.items()}).to_parquet(partial / _DATA)
            pd.DataFrame([{**one, "tasks": [task]} for one in episodes]).to_parquet(partial / _EPISODES)
            pd.DataFrame({"task_index": [0]}, index=pd.Index([task], name="task")).to_parquet(
                partial / "meta/tasks.parquet"
            )
            _write(partial / "meta/info.json", _info(frames, len(episodes), period_s, card))
            _write(partial / "meta/stats.json", {name: _statistics(values) for name, values in frames.items()})
            _write(partial / "testudo.json", card)
    except OSError as error:
        raise TestudoError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return len(frames["index"])


def _frames(contents: Dataset, period_s: float) -> tuple[dict[str, np.ndarray], list[dict[str, int]]]:
    """Return the columns of all frames, and a row for each episode of one robot."""
    names = [signal.name for signal in contents.sources[0].contract.signals]
    parts: dict[str, list[np.ndarray]] = {}
    rows: list[dict[str, int]] = []
    count = 0
    for whole in contents.episodes:
        observations = flat_observations(whole.signals, names).astype(np.float32)
        ends = whole.terminals | whole.truncations
        for robot in range(len(whole.robots)):
            for begin, end in _spans(whole.valid[:, robot]):
                length = end - begin
                frame = np.arange(length)
                columns = {
                    OBSERVATION: observations[begin:end, robot],
                    ACTION: whole.actions[begin:end, robot].astype(np.float32),
                    REWARD: whole.rewards[begin:end, robot].astype(np.float32),
                    DONE: ends[begin:end],
                    "timestamp": (frame * period_s).astype(np.float32),
                    "frame_index": frame,
                    "episode_index": np.full(length, len(rows)),
                    "index": count + frame,
                    "task_index": np.zeros(length, np.int64),
                }
                for name, values in columns.items():
                    parts.setdefault(name, []).append(values)
                rows.append(_episode_row(len(rows), count, length))
                count += length
    return {name: np.concatenate(values) for name, values in parts.items()}, rows


def _spans(valid: np.ndarray) -> list[tuple[int, int]]:
    """Return begin and end of each group of valid decisions (T,) in a row."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], valid, [False]]).astype(np.int8)))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]


def _episode_row(number: int, begin: int, length: int) -> dict[str, int]:
    files = {f"{what}/{part}": 0 for what in ("data", "meta/episodes") for part in ("chunk_index", "file_index")}
    indices = {"dataset_from_index": begin, "dataset_to_index": begin + length}
    return {"episode_index": number, "length": length, **indices, **files}


def _info(frames: Mapping[str, np.ndarray], episodes: int, period_s: float, card: Mapping[str, Any]) -> dict[str, Any]:
    rate_hz = 1 / period_s
    names = {OBSERVATION: _observation_names(card), ACTION: _action_names(frames[ACTION].shape[1])}
    return {
        "codebase_version": VERSION,
        "robot_type": card["robot"],
        "total_episodes": episodes,
        "total_frames": len(frames["index"]),
        "total_tasks": 1,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": round(rate_hz) if abs(rate_hz - round(rate_hz)) < _WHOLE_HZ else rate_hz,
        "splits": {"train": f"0:{episodes}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": None,
        "features": {
            name: {"dtype": str(values.dtype), "shape": list(values.shape[1:]) or [1], "names": names.get(name)}
            for name, values in frames.items()
        },
    }


def _observation_names(card: Mapping[str, Any]) -> list[str]:
    """Return a name for each column, such as `goal_world[1]`."""
    return [
        f"{signal['name']}[{column}]"
        for signal in card["observation"]
        for column in range(signal["columns"][1] - signal["columns"][0])
    ]


def _action_names(count: int) -> list[str]:
    return [f"velocity_world[{axis}]" for axis in range(count)]


def _statistics(values: np.ndarray) -> dict[str, Any]:
    """Return the statistics of a column over all frames, as LeRobot normalises by them."""
    table = values.reshape(len(values), -1).astype(float)
    found = {"min": table.min(axis=0), "max": table.max(axis=0), "mean": table.mean(axis=0), "std": table.std(axis=0)}
    found |= {name: np.quantile(table, share, axis=0) for name, share in _QUANTILES.items()}
    return {name: part.tolist() for name, part in found.items()} | {"count": [len(values)]}


def _write(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")
