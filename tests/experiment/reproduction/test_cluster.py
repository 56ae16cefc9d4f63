"""A Ray cluster of two nodes on this machine: what it makes, and what it does without one."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from PIL import Image

import anodev2
from anodev2.experiment.failure import RunFailure
from anodev2.experiment.folder import claimed
from anodev2.experiment.reproduction import cluster
from anodev2.experiment.reproduction.cluster import Cluster
from anodev2.experiment.reproduction.engine import Outcome
from anodev2.experiment.reproduction.engines import find_engine
from anodev2.experiment.reproduction.local import Local
from anodev2.experiment.reproduction.work import reproduce
from anodev2.usage import UsageError
from digits import (
    digits_run,
    epochs_done,
    meanwhile,
    same_weights,
    table,
    wait_until,
    what_came_out,
)
from stub import work

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster of one node with one CPU; its processes import what this one does."""
    cluster._ray()  # first, as in a command: how much Ray says is settled when it is imported
    from ray.cluster_utils import Cluster as Nodes

    with pytest.MonkeyPatch.context() as environment:
        source = Path(anodev2.__file__).parents[1]
        environment.setenv("PYTHONPATH", str(source))
        environment.setenv("ANODEV2_CACHE", str(tmp_path_factory.mktemp("cache")))
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        environment.setenv("RAY_worker_niceness", "0")  # else other tests leave them no time
        found = Nodes(initialize_head=True, head_node_args=NODE)
        yield found
        found.shutdown()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the local engine has carried out the runs that a node dies under."""
    out = tmp_path_factory.mktemp("local")
    outcomes = list(Local(1, 1).run(table(epochs=4), out))
    assert all(outcome.state == "done" for outcome in outcomes)
    return out


@contextmanager
def dying_node(nodes: Any, out: Path) -> Iterator[dict[str, list[str]]]:
    """A second node that dies when both runs have an epoch; the epochs that each then has."""
    second = nodes.add_node(**NODE)
    configs, before = table(epochs=4), dict[str, list[str]]()

    def stop_node() -> None:
        wait_until(lambda: all(epochs_done(out, config) for config in configs))
        nodes.remove_node(second, allow_graceful=False)
        before.update({c.name: epochs_done(out, c) for c in configs})

    with meanwhile(stop_node):
        yield before


@pytest.mark.slow
def test_runs_whose_node_dies_go_on_elsewhere_to_the_local_engines_result(
    nodes: Any, local: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    configs = table(epochs=4)
    with dying_node(nodes, tmp_path) as before:
        outcomes = list(Cluster(nodes.address, 1).run(configs, tmp_path))
    printed, said = capfd.readouterr()
    told = said.splitlines()
    assert printed == ""
    assert {outcome.config for outcome in outcomes if outcome.state == "done"} == set(configs)
    moved = [line for line in told if line.endswith("it goes on from its last checkpoint")]
    assert len(moved) == 1
    assert [line for line in told if " epoch " not in line] == moved
    for config in configs:
        first = before[config.name][0]  # with the seconds it took: it was done once
        assert epochs_done(tmp_path, config)[0] == first
        assert sum(f"{config.name} epoch 1/4" in line for line in told) == 1
        assert what_came_out(tmp_path, config) == what_came_out(local, config)
        assert same_weights(config, tmp_path, local)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_pictures", "quick_times")
def test_a_table_made_on_a_cluster_whose_node_dies_has_its_report_and_the_local_engines_results(
    nodes: Any, local: Path, tmp_path: Path
) -> None:
    made = replace(work(tmp_path, table="accuracy-2"), methods=["baseline", "anodev2-2"], epochs=4)
    engine = find_engine("ray", processes=1, threads=1, address=nodes.address, gpus=0.0)
    with dying_node(nodes, tmp_path):
        assert reproduce(made, engine) == 0
    assert made.configs() == table(epochs=4)
    for config in made.configs():
        assert what_came_out(tmp_path, config) == what_came_out(local, config)
        assert same_weights(config, tmp_path, local)
    report = (tmp_path / "report.md").read_text()
    assert "2 runs on digits" in report
    assert (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_a_relative_folder_of_data_is_found_from_where_the_command_was_given(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(16):
        path = tmp_path / "pictures" / ("train", "test")[number // 8] / "ab"[number % 2]
        path.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32), (number, 100 * (number % 2), 0)).save(path / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    config = digits_run("baseline", 1, data="pictures")
    outcomes = list(Cluster(nodes.address, 1).run([config], Path("out")))
    assert outcomes == [Outcome(config, "done")]
    assert what_came_out(tmp_path / "out", config)["config"]["data"] == "pictures"  # type: ignore[index]


@pytest.mark.slow
def test_a_run_that_another_command_has_is_busy(nodes: Any, tmp_path: Path) -> None:
    config = digits_run("baseline", 1)
    folder = tmp_path / "runs" / config.name
    with claimed(folder):
        outcomes = list(Cluster(nodes.address, 1).run([config], tmp_path))
    reason = f"'{folder}' is being trained by another process"
    assert outcomes == [Outcome(config, "busy", reason)]


@pytest.mark.slow
def test_a_node_that_does_not_share_the_folder_is_named(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(cluster._Board):
        def show(self) -> None:
            pass

    @contextmanager
    def unseen(out: Path) -> Iterator[cluster._Board]:
        yield Elsewhere(out / "on another machine")

    monkeypatch.setattr(cluster, "_board", unseen)
    node = nodes.head_node.node_ip_address
    with pytest.raises(UsageError) as refused:
        list(Cluster(nodes.address, 1).run([digits_run("baseline", 1)], tmp_path))
    assert str(refused.value) == (
        f"the node {node} does not see '{tmp_path}': expected --out to be a folder that all "
        "nodes of the cluster share"
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_runs_too_large_for_every_node_are_refused(nodes: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        list(Cluster(nodes.address, 2, 0.5).run([digits_run("baseline", 1)], tmp_path))
    assert str(refused.value).startswith(
        "no node of the cluster has 2 CPUs and 0.5 GPUs for a run: its nodes have 1 and 0"
    )


def test_runs_that_no_node_is_left_for_are_given_up_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = {"Alive": False, "Resources": {"CPU": 8.0}}
    small = {"Alive": True, "Resources": {"CPU": 1.0}}
    ray = MagicMock(**{"wait.return_value": ([], []), "nodes.return_value": [gone, small]})
    monkeypatch.setattr(cluster, "DESERTED", 0.0)
    outcomes = Cluster(None, 2)._outcomes(ray, table(1), tmp_path, cluster._Board(tmp_path))
    with pytest.raises(RunFailure, match=r"no node with 2 CPUs .*: start nodes, and the same"):
        next(outcomes)
    ray.cancel.assert_called()


def test_a_request_to_end_does_what_it_did_before_ray_too() -> None:
    ray = MagicMock(
        **{"init.side_effect": lambda *_, **__: signal.signal(signal.SIGTERM, sys.exit)}
    )
    before = signal.getsignal(signal.SIGTERM)
    with cluster._connected(ray, None):
        assert signal.getsignal(signal.SIGTERM) == before
    ray.init.assert_called()


def test_without_ray_one_line_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"^[^\n]*pip install 'anodev2\[cluster\]'[^\n]*$"):
        list(Cluster(None, 1).run([digits_run("baseline", 1)], tmp_path))


def test_an_address_where_nothing_listens_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        list(Cluster("127.0.0.1:1", 1).run([digits_run("baseline", 1)], tmp_path))
    assert str(refused.value).startswith("no Ray cluster at '127.0.0.1:1'")
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_run_has_at_most_one_gpu() -> None:
    with pytest.raises(UsageError, match="gpus must be from 0 to 1, got 2"):
        Cluster(None, 1, 2)
