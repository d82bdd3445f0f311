"""`testudo evaluate`: held-out episodes, with contacts counted at every simulation step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from testudo_deploy.contract.shipped_policies import policy_file
from testudo_hardware.errors import TestudoError
from testudo_policies.commands.driven_by_hand import ByHandOptions
from testudo_policies.commands.evaluate_study import (
    StudyOptions,
    is_by_hand,
    is_study,
    run_and_show,
    with_team_sizes,
)
from testudo_policies.commands.json_output import check_output, write_output
from testudo_policies.evaluation.baselines import BASELINES, ORCA, chosen_baselines, evaluate_baseline
from testudo_policies.evaluation.evaluation import (
    HELD_OUT_SEED,
    TRAINED,
    UNTRAINED,
    Evaluation,
    compiled_programs,
    evaluate_policy,
)
from testudo_policies.evaluation.evaluation_table import column, evaluation_table
from testudo_policies.evaluation.policy_under_test import PolicyUnderTest, by_hand, load_policy_under_test
from testudo_policies.evaluation.study import Runner
from testudo_policies.evaluation.worth_of_learning import worth_text
from testudo_policies.hand_written import HAND_WRITTEN
from testudo_policies.learning.progress import counted
from testudo_policies.train_config import TrainConfig
from testudo_sim.deployed_environment import STRIDE
from testudo_sim.devices import devices
from testudo_sim.environment import Environment
from testudo_sim.physics_choice import PhysicsChoice
from testudo_sim.starts import load_starts
from testudo_sim.team.batch_policy import BatchPolicy

_COUNTED = (
    "Contacts are counted at every simulation step: once a control tick with layer 1 alone, "
    f"{STRIDE} times a control tick with all layers."
)


@dataclass(frozen=True)
class Episodes:
    """The episodes of an evaluation."""

    episodes: int = 1000  # number of episodes for each team size
    seed: int = HELD_OUT_SEED  # seed of the first episode; each further episode adds 1
    starts: Path | None = None
    """Start file from `testudo incident --save-scenario`; every episode starts from it."""
    failures: float = 0.0  # probability that a robot fails during an episode: it brakes, permanently or temporarily


@dataclass(frozen=True)
class ScenarioOptions(ByHandOptions):
    """Options of a scenario that is given in place of a policy."""

    map: str = ""
    """Map of obstacles of such a scenario, as for `testudo train`."""

    def drives(self, source: Path) -> bool:
        """See `ByHandOptions.drives`."""
        found = super().drives(source)
        if self.map and not found:
            raise TestudoError(f"--map {self.map}: {source} has the map of its training; remove the option")
        return found

    def driven(self, source: Path, team_size: tuple[int, ...]) -> PolicyUnderTest:
        """Return the hand-written velocities of a scenario, once its rules are checked."""
        size = team_size[0] if team_size else TrainConfig.team_size
        return by_hand(str(source), self.robot or TrainConfig.robot, size, self.map)


def evaluate(
    policies: Annotated[tuple[Path, ...], tyro.conf.Positional],
    *,
    team_size: tuple[int, ...] = (),
    layers: Literal["1", "all"] = "1",
    shield: bool = True,
    baselines: str = "auto",
    chosen: Annotated[Episodes, tyro.conf.arg(name="")] = Episodes(),
    physics: Annotated[PhysicsChoice, tyro.conf.arg(name="")] = PhysicsChoice(),  # noqa: B008
    study: Annotated[StudyOptions, tyro.conf.arg(name="")] = StudyOptions(),  # noqa: B008
    scenario: Annotated[ScenarioOptions, tyro.conf.arg(name="")] = ScenarioOptions(),
    json: Path | None = None,
) -> int:
    """Evaluate a policy on held-out episodes: success, return, the scenario's metrics, contacts, separation, deadlocks.

    Beside it stand the scenario's hand-written velocities and the policy before its training, in the same episodes,
    and planners where every robot has a goal of its own.

    Several policies, or training runs of one experiment with several seeds, are a study: interquartile mean and
    optimality gap with bootstrap intervals over the runs, also in cells of declared factors, of which the table says
    whether training had them. Runs of another experiment are compared with --against.

    With --starts the episodes start at an incident of a real run, and exit status 1 means that robots touched again:
    a regression test for every failed run.

    Example:
        testudo evaluate policy.onnx --episodes 10000
        testudo evaluate foraging     (a policy that ships)
        testudo evaluate runs/mine --team-size 2 4 6 8 --json evaluation.json
        testudo evaluate runs/mine --baselines astar,cbs,rrt,orca --episodes 100
        testudo evaluate policy.onnx --layers all --team-size 4 8
        testudo evaluate policy.onnx --physics mjx --failures 0.1 --episodes 200
        testudo evaluate policy.onnx --starts incident.yaml --episodes 200
        testudo evaluate crossing_map --map camar_labmaze_40 --team-size 8     (a scenario, by hand)
        testudo evaluate runs/five --against runs/theirs --episodes 200     (five seeds of each)
        testudo evaluate runs/five --factor team_size=4,6,8 --factor message_loss=0,0.1,0.5 --picture study.png

    Args:
        policies: an exported policy.onnx, the name of one that ships, the folder of a training run, or a registered
            scenario; several policies, or a folder of `testudo train --seeds`, for a study.
        team_size: team sizes; default: that of the training.
        layers: `all` runs the same episodes with layer 1 alone and as deployed, with all layers.
        shield: `--no-shield` is the negative control: nominal commands pass without the shield.
        baselines: planners in the same episodes: astar (one robot after the other, in space and time), cbs
            (conflict-based search, up to 8 robots), rrt (RRT* of each robot by itself), all under the same shield; orca
            (ORCA in place of the shield). The hand-written and the untrained policy stand beside the trained one in any
            case. `auto`: astar where it applies; `none`: the trained policy alone.
        chosen: the episodes.
        physics: physics tier of the simulation.
        study: several policies, and factors.
        scenario: a scenario in place of a policy.
        json: file for the results.
    """
    check_output(json)
    check_output(study.picture, "--picture")
    return _Asked(team_size, layers, shield, baselines, chosen, physics, json).answered(policies, study, scenario)


@dataclass(frozen=True)
class _Asked:
    """What is asked for, but for the policies."""

    team_size: tuple[int, ...]
    layers: str
    shield: bool
    baselines: str
    chosen: Episodes
    physics: PhysicsChoice
    json: Path | None

    def __post_init__(self) -> None:
        """Refuse layers without a shield."""
        if self.layers == "all" and not self.shield:
            raise TestudoError(
                "--layers all: found it with --no-shield, which turns all layers off; give one of the two"
            )

    @property
    def place(self) -> dict[str, Any]:
        """Return options of `PolicyUnderTest.environment`."""
        return {"shielded": self.shield, "physics": self.physics, "failures": self.chosen.failures}

    def answered(self, policies: Sequence[Path], study: StudyOptions, scenario: ScenarioOptions) -> int:
        """Run a scenario, one policy or a study; return the exit status."""
        if len(policies) == 1 and scenario.drives(policies[0]):
            return self.of_one(scenario.driven(policies[0], self.team_size))
        files = tuple(policy_file(path) for path in policies)
        if is_study(files, study):
            return self.of_several(files, study)
        return self.of_one(load_policy_under_test(files[0]))

    def of_several(self, policies: Sequence[Path], study: StudyOptions) -> int:
        """Run a study."""
        console, chosen = _console(), self.chosen
        runner = Runner(
            partial(PolicyUnderTest.environment, **self.place),
            chosen.episodes,
            chosen.seed,
            is_by_hand(self.baselines, chosen.starts),
            partial(counted, console),
        )
        layers = ("1", "all") if self.layers == "all" else ("1" if self.shield else "none",)
        run_and_show(policies, with_team_sizes(study, self.team_size), layers, runner, self.json, console)
        return 0

    def of_one(self, tested: PolicyUnderTest) -> int:
        """Run one policy beside its baselines; return the exit status."""
        console, chosen = _console(), self.chosen
        if tested.note:
            console.print(tested.note, highlight=False)
        distribution = None if chosen.starts is None else load_starts(chosen.starts)
        sizes = self.team_size or (tested.team_size if distribution is None else distribution.size,)
        environments = _environments(partial(tested.environment, starts=distribution, **self.place), sizes, self.layers)
        columns = _columns(tested, self.baselines, environments[0])
        results = _run(columns, environments, tested.memory, chosen.episodes, chosen.seed, console)
        environment = environments[0]
        _show(console, results, f"{environment.scenario.name} on {environment.team.physics.name}")
        write_output(self.json, [result.to_dict() for result in results], console)
        return _regression(results, chosen.starts, console)


def _console() -> Console:
    console = Console()
    console.print(devices().text)
    return console


def _environments(make: Callable[..., Environment], sizes: tuple[int, ...], layers: str) -> list[Environment]:
    """Build all before the first run, so that an invalid team size is refused before any work."""
    both = (False, True) if layers == "all" else (False,)
    return [make(size, all_layers=deployed) for size in sizes for deployed in both]


def _run(
    columns: dict[str, BatchPolicy | None],
    environments: list[Environment],
    memory: int,
    episodes: int,
    seed: int,
    console: Console,
) -> list[Evaluation]:
    """Run the episodes of all columns in all environments."""
    programs = [compiled_programs(environment) for environment in environments]
    layers = len({environment.layers for environment in environments}) > 1
    results = []
    for name, acting in columns.items():
        for environment, compiled in zip(environments, programs, strict=True):
            if name == ORCA and environment.layers == "all":
                continue  # without a shield there are no layers: once for each team size
            head = column(environment.team.size, environment.layers, name, layers, len(columns) > 1)
            with counted(console, head, episodes) as done:
                if name in BASELINES:
                    results.append(evaluate_baseline(name, environment, episodes, seed, done, compiled))
                    continue
                found = evaluate_policy(environment, acting, memory, episodes, seed, done, compiled, has_iqm=True)
                results.append(replace(found, policy=name))
    return results


def _regression(results: list[Evaluation], starts: Path | None, console: Console) -> int:
    """Return the exit status: 1 if robots touched from the starts of an incident."""
    touched = sum(result.episodes_with_contact for result in results if result.policy == TRAINED)
    if starts is None or not touched:
        return 0
    console.print(f"[red]failed:[/] {touched} episodes from {starts} with a contact", highlight=False)
    return 1


def _columns(tested: PolicyUnderTest, baselines: str, environment: Environment) -> dict[str, BatchPolicy | None]:
    """Return what is compared, by name; None is what has no network."""
    if baselines == "none":
        return {HAND_WRITTEN if tested.policy is None else TRAINED: tested.policy}
    beside = dict.fromkeys(chosen_baselines(baselines, environment))  # refuses an unknown name before any work
    untrained = tested.make_untrained()
    columns = {HAND_WRITTEN: None} if tested.policy is None else {TRAINED: tested.policy, HAND_WRITTEN: None}
    return columns | ({} if untrained is None else {UNTRAINED: untrained}) | beside


def _show(console: Console, results: list[Evaluation], title: str) -> None:
    several = len({result.policy for result in results}) > 1
    groups: dict[tuple[int, str] | None, list[Evaluation]] = {}
    for result in results:  # with baselines a table for each team size and set of layers: one for all is too wide
        if result.policy != ORCA:
            groups.setdefault((result.team_size, result.layers) if several else None, []).append(result)
    for group in groups.values():
        bare = [found for found in results if found.policy == ORCA and found.team_size == group[0].team_size]
        console.print(evaluation_table(group + bare, title))
        by_name = {found.policy: found for found in group}
        if {TRAINED, HAND_WRITTEN} <= set(by_name):
            console.print(_worth(by_name[TRAINED], by_name[HAND_WRITTEN]), highlight=False)
    if any(result.layers == "all" for result in results):
        console.print(_COUNTED, highlight=False)


def _worth(trained: Evaluation, by_hand: Evaluation) -> str:
    success = (trained.success, by_hand.success) if trained.has_success else None
    return worth_text(success, (trained.mean_return, by_hand.mean_return))
