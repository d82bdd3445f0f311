"""Datasets from runs: rewards are those of training, arrays fit together, what is missing is said."""

import json
from dataclasses import replace

import flashbax.vault
import jax
import numpy as np
import pandas as pd
import pytest
from tests.deploy.talking_policy import make_talking_policy
from tests.sim.recorded_run import record_run

from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_deploy.shield.projection_margins import projection_parameters
from testudo_hardware.errors import TestudoError
from testudo_hardware.motion import MotionState
from testudo_hardware.spec import load_robot
from testudo_policies.dataset.composition import CompositionProfile, statistics
from testudo_policies.dataset.coverage import coverage
from testudo_policies.dataset.dataset_file import Dataset, DatasetSource, check_has_policy, find_runs, save_arrays
from testudo_policies.dataset.episodes import episodes_of
from testudo_policies.dataset.lerobot_folder import save_lerobot
from testudo_policies.dataset.vault_folder import save_vault
from testudo_policies.learning.builder import make_environment
from testudo_runs.run_reader import Track
from testudo_sim.online_task.task_state import scoring_of

DECISIONS = 12


@pytest.fixture(scope="module")
def artefact(tmp_path_factory):
    from tests.deploy.tiny_policy import make_tiny_policy

    from testudo_deploy.contract.policy_artefact import PolicyArtefact

    path = tmp_path_factory.mktemp("policy") / "policy.onnx"
    make_tiny_policy(path, load_robot("gritsbot_x"), 4)
    return PolicyArtefact.load(path)


@pytest.fixture(scope="module")
def run(artefact):
    return record_run(artefact, artefact_spec(), seconds=6.0, silent=((0, 60, 90),))


def artefact_spec():
    return load_robot("gritsbot_x")


def source(run, artefact, tmp_path):
    return DatasetSource(
        tmp_path,
        artefact.contract,
        artefact.sha256,
        "0",
        "now",
        complete=True,
        episodes=episodes_of(run, artefact.contract),
    )


def trained(team_size, price):
    """Return the training environment's own transitions: scenes (T + 1), rewards (T, N) and changes (T, N)."""
    spec = artefact_spec()
    environment = make_environment("navigation", spec, projection_parameters(spec), team_size)
    environment = replace(environment, change_price=price)
    world = jax.jit(environment.reset)(jax.random.split(jax.random.key(3), 1))
    first, step, rows, signals_of = world, jax.jit(environment.step), [], jax.jit(environment.signals)
    for key in jax.random.split(jax.random.key(4), DECISIONS):
        signals = jax.device_get(signals_of(world))
        wanted = 2 * (signals["goal_world"] - signals["control_point_world"])  # too fast: the shield changes it
        world, result = step(world, wanted, key)
        rows.append(
            jax.device_get(
                (environment.scene(result.last).robots, result.reward[:, 0], result.metrics.change_m_s[:, 0])
            )
        )
    return jax.device_get(environment.scene(first).robots), rows, np.asarray(first.task.goal_world[..., 0])


def as_run(run, start, rows, goals, begin_s, step_s):
    """Return the run with the poses, changes and goals of those transitions, one tick and pose for each decision."""
    stamps = begin_s + step_s * np.arange(len(rows) + 1)
    scenes = [start, *(row[0] for row in rows)]
    truth, ticks, robots = {}, {}, []
    for i, name in enumerate(run.robots):
        mine = [MotionState(*(np.asarray(x)[..., i, 0] for x in (s.position_world, s.yaw, s.velocity))) for s in scenes]
        truth[name] = Track(
            stamps,
            stamps,
            np.array([m.position_world for m in mine], float),
            np.array([m.yaw for m in mine], float),
            np.array([m.velocity for m in mine], float),
        )
        record = next(tick for tick in run.ticks[name] if tick.decided)
        # the change of a decision is recorded within it
        ticks[name] = tuple(
            replace(
                record,
                sequence=k,
                stamp_s=stamps[k] + (0.01 if k else 0.0) - (step_s / 2 if k else 0.0),
                change_m_s=float(rows[k - 1][2][i]) if k else 0.0,
            )
            for k in range(len(rows) + 1)
        )
        robots.append(replace(run.fleet.robot(name), goal_world=tuple(goals[:, i].tolist())))
    return replace(run, truth=truth, ticks=ticks, fleet=replace(run.fleet, robots=tuple(robots)))


def test_rewards_are_those_of_training_on_the_same_transitions(quick, run, artefact):
    price = 0.2
    contract = artefact.contract.replace(provenance={"config": {"change_price": price}})
    start, rows, goals = trained(3, price)
    step_s = scoring_of(contract, artefact_spec()).decision_s
    (episode,) = episodes_of(as_run(run, start, rows, goals, 100.0, step_s), contract)
    assert len(episode) == DECISIONS
    rewards = np.array([row[1] for row in rows])
    assert np.abs(rewards).max() > 0.5
    assert any(row[2].max() > 0.01 for row in rows)  # the shield's price is part of it
    np.testing.assert_allclose(episode.rewards, rewards, atol=2e-5)
    np.testing.assert_allclose(sum(episode.terms.values()), rewards, atol=2e-5)
    assert episode.truncations.tolist() == [False] * (DECISIONS - 1) + [True]
    assert not episode.terminals.any()


def test_what_the_policy_read_gives_what_it_commanded(run, artefact):
    (episode,) = episodes_of(run, artefact.contract)
    assert np.diff(episode.stamp_s) == pytest.approx(artefact.contract.decision_period_s)
    compared = 0
    for t, i in np.argwhere(episode.valid):
        inputs = {name: value[t, i] for name, value in episode.signals.items()}
        nominal, _ = artefact.step(inputs, episode.hidden[t, i])
        np.testing.assert_allclose(nominal, episode.actions[t, i], atol=1e-5)
        compared += 1
    assert compared > 30
    # robot 0 lost its odometry for a while and did not decide there
    assert not episode.valid[:, 0].all()
    assert episode.valid[:, 1].all()


def test_arrays_have_one_row_for_each_decision_and_agree_with_the_card(run, artefact, tmp_path):
    made = Dataset.of([source(run, artefact, tmp_path)] * 2)
    save_arrays(tmp_path / "data.npz", made.arrays())
    with np.load(tmp_path / "data.npz") as arrays:
        count = len(made.episodes[0])
        assert arrays["rewards"].shape == arrays["terminals"].shape == arrays["truncations"].shape == (2 * count, 3)
        assert arrays["actions"].shape == (2 * count, 3, 2)
        # the next observation is the one of the row below, within an episode
        np.testing.assert_array_equal(arrays["next_observations"][: count - 1], arrays["observations"][1:count])
        assert arrays["truncations"][[count - 1, -1]].all()
        card = json.loads(json.dumps(made.card(arrays, "x")))
        for name, facts in card["arrays"].items():
            assert list(arrays[name].shape) == facts["shape"], name
        layout = {item["name"]: item for item in card["observation"]}
        begin, end = layout["goal_world"]["columns"]
        np.testing.assert_allclose(arrays["observations"][0, 1, begin:end], run.fleet.robots[1].goal_world, atol=1e-6)
    assert card["observation"][-1]["columns"][1] == card["arrays"]["observations"]["shape"][2]
    assert card["invalid"] == 2 * int((~made.episodes[0].valid).sum())
    assert card["runs"][0]["policy_sha256"] == artefact.sha256


def test_a_profile_names_the_class_of_most_episodes_else_a_mixture(run, artefact):
    (episode,) = episodes_of(run, artefact.contract)
    assert episode.rest_return < 0  # waiting costs
    rest, best = episode.rest_return, 10.0

    def with_quality(*qualities):
        wanted = [rest + quality * (best - rest) for quality in qualities]
        return [replace(episode, rewards=np.full((1, 3), value)) for value in wanted]

    assert CompositionProfile.of(with_quality(1.0, 0.9, 0.8)).name == "Good"
    assert CompositionProfile.of(with_quality(1.0, 0.5, 0.6, 0.5, 0.6, 0.5)).name == "Medium"
    mixed = CompositionProfile.of(with_quality(1.0, 0.5, 0.1))
    assert (mixed.name, mixed.classes) == ("Replay", ("Good", "Medium", "Poor"))
    assert CompositionProfile.of(with_quality(1.0, 1.0), good_return=4 * (best - rest)).name == "Poor"
    assert sum(mixed.to_dict()["histogram"]["counts"]) == 3


def test_what_cannot_be_a_dataset_is_said_by_name(run, artefact, tmp_path):
    with pytest.raises(TestudoError, match="no such run folder"):
        find_runs([tmp_path / "nothing"])
    (tmp_path / "run.json").write_text(json.dumps({"kind": "imported"}))
    assert find_runs([tmp_path]) == [tmp_path]
    with pytest.raises(TestudoError, match=r"an imported run: fleet\.yaml and policy\.onnx missing"):
        check_has_policy(tmp_path)
    asleep = replace(run, ticks={**run.ticks, "r1": tuple(replace(t, decided=False) for t in run.ticks["r1"])})
    with pytest.raises(TestudoError, match="r1 has no recorded decision"):
        episodes_of(asleep, artefact.contract)
    one = source(run, artefact, tmp_path)
    other = replace(one, contract=replace(one.contract, scenario="push_box"))
    with pytest.raises(TestudoError, match="scenario: found push_box, expected navigation"):
        Dataset.of([one, other])


def test_a_learned_message_follows_the_velocity_in_the_actions(tmp_path):
    talking = PolicyArtefact.load(make_talking_policy(tmp_path / "policy.onnx", artefact_spec()))
    episode = episodes_of(record_run(talking, artefact_spec(), seconds=3.0), talking.contract)[0]
    assert episode.actions.shape[1:] == (3, 4)
    t, i = len(episode) - 1, 1
    assert episode.valid[t, i]
    inputs = {name: value[t, i] for name, value in episode.signals.items()}
    output, _ = talking.step(inputs, episode.hidden[t, i])
    np.testing.assert_allclose(episode.actions[t, i], output, atol=1e-6)
    assert inputs["neighbour_message"].any()


def test_a_folder_for_lerobot_holds_each_valid_decision_of_each_robot_once(tmp_path, run, artefact):
    contents = Dataset.of([source(run, artefact, tmp_path)])
    arrays = contents.arrays()
    card = contents.card(arrays, "")
    out = tmp_path / "team"
    assert save_lerobot(out, contents, card) == int(arrays["infos/valid"].sum())
    frames = pd.read_parquet(out / "data/chunk-000/file-000.parquet")
    episodes = pd.read_parquet(out / "meta/episodes/chunk-000/file-000.parquet")
    info = json.loads((out / "meta/info.json").read_text())
    valid = arrays["infos/valid"].T  # robot after robot
    np.testing.assert_array_equal(np.stack(frames["action"]), arrays["actions"].swapaxes(0, 1)[valid])
    np.testing.assert_array_equal(np.stack(frames["observation.state"]), arrays["observations"].swapaxes(0, 1)[valid])
    np.testing.assert_allclose(frames["next.reward"], arrays["rewards"].T[valid], rtol=1e-6)
    assert info["total_frames"] == len(frames) == episodes["length"].sum()
    assert len(info["features"]["observation.state"]["names"]) == arrays["observations"].shape[-1]
    for row in episodes.itertuples():
        part = frames.iloc[row.dataset_from_index : row.dataset_to_index]
        assert (part["episode_index"] == row.episode_index).all()
        np.testing.assert_allclose(part["timestamp"], np.arange(row.length) / info["fps"], atol=1e-4)
    with pytest.raises(TestudoError, match=r"team: exists; expected the name of a new folder"):
        save_lerobot(out, contents, card)


def test_the_profile_has_the_statistics_of_off_the_grid_marl():
    found = statistics(np.array([0.0, 1.0, 1.2, 4.0, 10.0]))
    expected = {"mean": 3.24, "min": 0, "max": 10, "median": 1.2, "range": 10, "interquartile": 3.0, "mode": 1.5}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    shifted = np.array([0.0, 1.0, 1.2, 4.0, 10.0]) - 3.24
    third, fourth = ((shifted**n).mean() / found["std"] ** n for n in (3, 4))
    assert found["skewness"] == pytest.approx(third)
    assert found["kurtosis"] == pytest.approx(fourth - 3)
    assert statistics(np.array([2.0, 2.0]))["kurtosis"] is None


def test_coverage_counts_unique_pairs_of_what_is_valid():
    state = np.array([[0.1], [0.10004], [0.12], [0.1], [0.3]])  # two alike to four decimals, the third to one
    actions = np.array([0.5, 0.5, 0.5, 0.7, 0.5]).reshape(5, 1, 1)
    valid = np.array([[True]] * 4 + [[False]])
    arrays = {"infos/state": state, "actions": actions, "observations": state[:, None], "infos/valid": valid}
    found = coverage(arrays)
    assert found["transitions"] == 4
    assert found["SACo"] == found["OACo"] == 3 / 4
    assert found["SACo_coarse"] == 2 / 4
    assert found["pairs_by_count"] == {"1": 2, "2": 1}
    assert coverage({**arrays, "infos/valid": valid & False})["SACo"] is None


def test_a_vault_is_read_by_flashbax_as_it_was_written(tmp_path, run, artefact):
    contents = Dataset.of([source(run, artefact, tmp_path)])
    arrays = contents.arrays()
    card = contents.card(arrays, "")
    out = tmp_path / "team.vlt"
    assert save_vault(out, arrays, card) == len(arrays["rewards"])
    vault = flashbax.vault.Vault(rel_dir=str(tmp_path), vault_name="team.vlt", vault_uid=contents.profile.name)
    experience = vault.read().experience
    assert set(experience) == set(arrays)
    for name, values in arrays.items():
        np.testing.assert_array_equal(experience[name][0], values.astype(experience[name].dtype), name)
    with pytest.raises(TestudoError, match=r"team\.vlt: exists; expected the name of a new folder"):
        save_vault(out, arrays, card)
