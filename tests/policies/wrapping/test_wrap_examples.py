"""The examples of docs/adapters.md: each description wraps a file of its library's form."""

import re
from pathlib import Path

import numpy as np
import pytest
from tests.policies.wrapping import foreign_graphs

from testudo_deploy.cli import main
from testudo_deploy.contract.policy_artefact import PolicyArtefact
from testudo_policies.exporting.onnx_export import _import_converters
from testudo_policies.wrapping.wrap_file import load_wrap_file
from testudo_policies.wrapping.wrapping import wrap_policy

pytestmark = pytest.mark.usefixtures("quick")

PAGE = (Path(__file__).resolve().parents[3] / "docs/adapters.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## A policy of another library on robots")[2]
CODE, DESCRIPTIONS = (
    re.findall(rf"^```{kind}\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL) for kind in ("python", "yaml")
)
RSL_RL, SB3, JAXMARL = range(3)
FORMS = {
    "rsl_rl": (RSL_RL, foreign_graphs.rsl_rl, 13, 2),
    "Stable-Baselines3": (SB3, foreign_graphs.stable_baselines3, 9, 3),
    "JaxMARL": (JAXMARL, foreign_graphs.jaxmarl, 8, 5),
}


def described(folder, index):
    (folder / "c.yaml").write_text(DESCRIPTIONS[index])
    return load_wrap_file(folder / "c.yaml")


def test_each_library_has_its_code_and_its_description_of_few_lines():
    assert len(CODE) == len(DESCRIPTIONS) == len(FORMS)
    assert all(len((code + text).splitlines()) <= 30 for code, text in zip(CODE, DESCRIPTIONS, strict=True))
    assert all(compile(code, "docs/adapters.md", "exec") for code in CODE)


@pytest.mark.parametrize(("index", "make", "observation", "action"), FORMS.values(), ids=FORMS)
def test_a_file_of_the_librarys_form_becomes_a_policy_file(index, make, observation, action, tmp_path):
    make(tmp_path / "my.onnx", observation, action)
    report, _ = wrap_policy(tmp_path / "my.onnx", described(tmp_path, index), tmp_path / "policy.onnx", loop_steps=0)
    assert report.parity.max_error <= 1e-5
    assert PolicyArtefact.load(tmp_path / "policy.onnx").contract.provenance["wrapped"]["file"] == "my.onnx"


def test_a_network_of_jaxmarls_scripts_is_wrapped_by_the_code_of_the_page(tmp_path, monkeypatch):
    """Its ActorCritic: two layers of 64 with tanh for the actor and for the critic; distrax stands aside."""
    from types import SimpleNamespace

    import jax
    from flax import linen

    class ActorCritic(linen.Module):
        action_dim: int

        @linen.compact
        def __call__(self, x):
            def head(size):
                hidden = linen.tanh(linen.Dense(64)(linen.tanh(linen.Dense(64)(x))))
                return linen.Dense(size)(hidden)

            return SimpleNamespace(logits=head(self.action_dim)), head(1)[..., 0]

    network = ActorCritic(5)
    params = network.init(jax.random.key(0), np.zeros((1, 8), np.float32))
    monkeypatch.chdir(tmp_path)
    _import_converters()  # those of flax alone: all of jax2onnx take many seconds
    names = {"network": network, "params": params, "observation_size": 8}
    exec(compile(CODE[JAXMARL], "docs/adapters.md", "exec"), names)  # noqa: S102  (our own page)
    report, _ = wrap_policy(tmp_path / "my.onnx", described(tmp_path, JAXMARL), tmp_path / "policy.onnx", loop_steps=0)
    choices = [[0, 0], [-0.15, 0], [0.15, 0], [0, -0.15], [0, 0.15]]
    found = np.array(report.contract.test_vector.outputs["command"])
    assert all(any(np.allclose(row, choice) for choice in choices) for row in found)


def test_stable_baselines3_itself(tmp_path, monkeypatch):
    library = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
    import gymnasium

    class Robot(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-10, 10, (9,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)

        def reset(self, *, seed=None, options=None):
            return np.zeros(9, np.float32), {}

        def step(self, action):
            return np.zeros(9, np.float32), 0.0, True, False, {}

    monkeypatch.chdir(tmp_path)
    library.PPO("MlpPolicy", Robot(), device="cpu").save("ppo_robot")
    exec(compile(CODE[SB3], "docs/adapters.md", "exec"), {})  # noqa: S102  (our own page)
    wrap_policy(tmp_path / "my.onnx", described(tmp_path, SB3), tmp_path / "policy.onnx", loop_steps=0)


@pytest.mark.slow
def test_the_verb_drives_the_policy_and_writes_a_fleet_that_may_start(tmp_path):
    from testudo_deploy.admission.fleet_admission import checked_safety_contracts
    from testudo_deploy.fleet.fleet import load_fleet

    foreign_graphs.jaxmarl(tmp_path / "my.onnx", 8, 5)
    described(tmp_path, JAXMARL)
    words = ["--contract", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "policy.onnx")]
    assert main(["wrap", str(tmp_path / "my.onnx"), *words, "--json", str(tmp_path / "out.json")]) == 0
    assert PolicyArtefact.load(tmp_path / "policy.onnx").contract.parity["loop_steps"] == 100
    assert len(checked_safety_contracts(load_fleet(tmp_path / "fleet.yaml"))) == 3
    assert main(["evaluate", str(tmp_path / "policy.onnx"), "--episodes", "2"]) == 0
