"""What is left, and how long it takes."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from anodev2.experiment.config import RunConfig, run_config
from anodev2.experiment.environment import processor_name
from anodev2.experiment.folder import write_config
from anodev2.experiment.reproduction import timing
from anodev2.experiment.reproduction.plan import Plan, duration, epochs_left, steps_of
from anodev2.experiment.reproduction.step_times import read_seconds, times_of
from anodev2.experiment.reproduction.timing import lacks_times, timed_steps
from results import result, timed, write
from tiny import tiny_config, tiny_data


def config(method: str = "baseline", seed: int = 0) -> RunConfig:
    return run_config(**result(method=method, seed=seed, epochs=10).config)


def test_a_run_has_the_epochs_left_that_its_metrics_do_not_have(tmp_path: Path) -> None:
    assert epochs_left(tmp_path, config()) == 10
    folder = tmp_path / "runs" / config().name
    write_config(folder / "config.yaml", result(epochs=10).config)
    assert epochs_left(tmp_path, config()) == 10
    (folder / "metrics.csv").write_text("epoch\n1\n2\n3\n")
    assert epochs_left(tmp_path, config()) == 7
    write(tmp_path, result(epochs=10))
    assert epochs_left(tmp_path, config()) == 0


SECONDS = {"resnet4": timed({"baseline": [0.4, 0.5, 9.0]})}


def test_the_estimate_is_epochs_times_steps_times_seconds_shared_by_those_side_by_side() -> None:
    runs = {config(seed=0): 10, config(seed=1): 4, config("anode"): 0}
    plan = Plan(runs, SECONDS, {"resnet4": 196}, side_by_side=2)
    assert plan.time_left(plan.todo) == pytest.approx(14 * 196 * 0.5 * 1.1)
    assert "3 runs: 1 done, 1 unfinished, 1 to start, about 13 min with 2 at a time" in str(plan)


def test_an_estimate_for_a_cluster_does_not_say_how_many_share_it() -> None:
    plan = Plan({config(): 10}, SECONDS, {"resnet4": 196}, None)
    assert str(plan).endswith(
        "1 to start, about 18 min on machines like this one, shared among them"
    )


EPOCH = 196 * 0.5 * 1.1


@pytest.fixture
def three_runs(tmp_path: Path) -> Plan:
    """One is finished, one has three of its ten epochs."""
    write(tmp_path, result(seed=0, epochs=10))
    folders = [tmp_path / "runs" / config(seed=seed).name for seed in (0, 1)]
    for seed, folder in enumerate(folders):
        write_config(folder / "config.yaml", result(seed=seed, epochs=10).config)
    (folders[1] / "metrics.csv").write_text("epoch\n1\n2\n3\n")
    runs = {config(seed=seed): 10 for seed in (0, 1, 2)}
    return Plan(runs, {"resnet4": timed({"baseline": [0.5]})}, {"resnet4": 196}, side_by_side=2)


def test_progress_counts_the_epochs_of_runs_that_go_on(tmp_path: Path, three_runs: Plan) -> None:
    assert three_runs.progress(tmp_path, []) == pytest.approx((13 * EPOCH, 17 * EPOCH))


def test_a_run_that_fails_counts_for_the_epochs_it_has(tmp_path: Path, three_runs: Plan) -> None:
    failed = [config(seed=1)]
    assert three_runs.progress(tmp_path, failed) == pytest.approx((13 * EPOCH, 10 * EPOCH))


def test_a_run_that_another_took_the_place_of_does_not_end_the_progress(
    tmp_path: Path, three_runs: Plan
) -> None:
    folder = tmp_path / "runs" / config(seed=2).name
    write_config(folder / "config.yaml", result(seed=2, epochs=3).config)
    assert three_runs.progress(tmp_path, []) == pytest.approx((13 * EPOCH, 17 * EPOCH))


def test_runs_that_are_done_need_no_timing() -> None:
    assert "1 run: 1 done" in str(Plan({config(): 0}, {}, {"resnet4": 196}, 1))


def test_an_epoch_has_the_steps_of_its_batches() -> None:
    assert steps_of(tiny_config(), tiny_data()) == 1  # 96 images in batches of 256


@pytest.mark.parametrize(
    ("seconds", "spelled"),
    [(40, "40 s"), (720, "12 min"), (19_200, "5 h 20 min"), (184_000, "2 d 03 h")],
)
def test_durations_are_spelled_in_two_units_at_most(seconds, spelled) -> None:
    assert duration(seconds) == spelled


@pytest.fixture(autouse=True)
def _few_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "WARM_UP", 1)
    monkeypatch.setattr(timing, "ROUNDS", 1)


def test_steps_are_timed_once_with_those_that_the_claims_compare(tmp_path: Path) -> None:
    path = tmp_path / "timings.json"
    runs = [tiny_config(method="anode", seed=seed) for seed in (0, 1)]
    first = timed_steps(runs, tiny_data(), path, threads=1)
    assert {*first["resnet4"]} == {
        "baseline", "without-block", "anode",
        "anodev2-1", "anodev2-1 frozen", "anodev2-2", "anodev2-2 frozen",
    }  # fmt: skip
    assert timed_steps(runs, tiny_data(), path, threads=1) == first
    assert read_seconds(path) == [first["resnet4"]]


def test_a_kind_that_is_missing_has_those_the_file_has_timed_again(tmp_path: Path) -> None:
    path = tmp_path / "timings.json"
    for method in ("anode", "anode-5", "baseline"):
        found = timed_steps([tiny_config(method=method)], tiny_data(), path, threads=1)
    assert {"anode", "anode-5", "baseline"} <= found["resnet4"].keys()
    assert {len(rounds) for rounds in found["resnet4"].values()} == {1}
    assert read_seconds(path) == [found["resnet4"]]


def test_every_second_round_goes_the_other_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    monkeypatch.setattr(timing, "ROUNDS", 2)
    monkeypatch.setattr(timing, "_timed", lambda step: float(bool(seen.append(step))))
    timed_steps([tiny_config()], tiny_data(), tmp_path / "timings.json", threads=1)
    half = len(seen) // 2
    assert half > 1
    assert seen[half:] == seen[:half][::-1]


def test_times_that_are_asked_for_again_are_the_last_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "timings.json"
    runs = [tiny_config(method="baseline")]
    one = timed_steps(runs, tiny_data(), path, threads=1)["resnet4"]
    two = timed_steps(runs, tiny_data(), path, threads=2)["resnet4"]
    assert read_seconds(path) == [one, two]
    assert timed_steps(runs, tiny_data(), path, threads=1)["resnet4"] == one
    assert read_seconds(path) == [two, one]


def test_a_row_takes_the_times_of_its_kind_with_the_most_of_the_others_and_then_the_last() -> None:
    run, kinds = config(), ["baseline", "anode", "anode-5"]
    both = [timed({"baseline": [0.1], "anode": [t]}, threads=t) for t in (1, 2)]
    fewer = timed({"baseline": [0.1], "without-block": [0.1], "neural-ode": [0.1]}, threads=3)
    other = timed({kind: [9.0] for kind in kinds}, batch_size=64)
    assert times_of([both[0], other, both[1], fewer], run, 256, kinds) == both[1]
    assert times_of([both[1], other, both[0], fewer], run, 256, kinds) == both[0]
    assert times_of([*both, fewer], config("neural-ode"), 256, kinds) == fewer
    assert times_of([other], run, 256, kinds) is None
    assert times_of([both[0], other, both[1]], run, 64, kinds) == other


def test_a_report_lacks_times_where_a_kind_of_its_network_has_none(tmp_path: Path) -> None:
    path = tmp_path / "timings.json"
    runs = [tiny_config(method="baseline")]
    assert lacks_times([], runs)
    timed_steps(runs, tiny_data(), path, threads=1)
    assert not lacks_times(read_seconds(path), runs)
    assert lacks_times(read_seconds(path), [*runs, tiny_config(method="anode-5")])
    assert lacks_times(read_seconds(path), [tiny_config(recipe="default:batch_size=64")])


def test_who_times_waits_for_another_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = {"baseline": [0.5]}
    monkeypatch.setattr(timing, "_time", lambda *_: at_once)  # else timing itself would take longer
    path = tmp_path / "timings.json"
    runs = [tiny_config(method="baseline")]
    with ThreadPoolExecutor() as pool:
        with FileLock(tmp_path / ".timings.json.lock"):
            later = pool.submit(timed_steps, runs, tiny_data(), path, threads=1)
            with pytest.raises(TimeoutError):
                later.result(timeout=0.3)
        found = later.result(timeout=60)
    assert found["resnet4"].rounds == at_once
    assert read_seconds(path) == [found["resnet4"]]


TIMED = {
    "model": "resnet4",
    "order": "pre",
    "batch_size": 256,
    "precision": "float32",
    "threads": 1,
    "processor": "a processor",
    "seconds": {"baseline": [0.5]},
}
"""A record of the file."""


def test_times_with_other_threads_do_not_count_and_stay(tmp_path: Path) -> None:
    path = tmp_path / "timings.json"
    held = TIMED | {"threads": 7, "seconds": {"baseline": [9.0]}}
    path.write_text(json.dumps({"records": [held]}))
    found = timed_steps([tiny_config(method="baseline")], tiny_data(), path, threads=1)
    assert max(found["resnet4"]["baseline"]) < 9
    assert held in json.loads(path.read_text())["records"]


def test_times_are_read_with_their_conditions(tmp_path: Path) -> None:
    path = tmp_path / "timings.json"
    path.write_text(json.dumps({"records": [TIMED]}))
    held = timed({"baseline": [0.5]}, precision="float32")
    assert read_seconds(path) == [held]
    own = timed_steps([tiny_config(method="baseline")], tiny_data(), path, threads=2)["resnet4"]
    here = replace(held.conditions, threads=2, processor=processor_name())
    assert own.conditions == here
    assert read_seconds(path) == [held, own]


BAD_RECORDS = [
    {name: value for name, value in TIMED.items() if name != "seconds"},
    {name: value for name, value in TIMED.items() if name != "processor"},
    {name: value for name, value in TIMED.items() if name != "batch_size"},
    TIMED | {"model": None},
    TIMED | {"threads": "1"},
    TIMED | {"seconds": {"baseline": 0.5}},
    TIMED | {"seconds": {"baseline": ["soon"]}},
    TIMED | {"seconds": {"baseline": []}},
    TIMED | {"seconds": {"baseline": [1, 2], "anode": [1]}},
]
NO_TIMES = ("[1]", "{}", "\xff", *(json.dumps({"records": [bad]}) for bad in BAD_RECORDS))


@pytest.mark.parametrize("text", NO_TIMES)
def test_a_damaged_file_is_set_aside_by_who_times_and_left_out_by_who_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "timings.json"
    path.write_text(text, encoding="latin-1")
    assert read_seconds(path) == []
    assert "does not hold times of training steps; left out" in capsys.readouterr().err
    timed_steps([tiny_config(method="baseline")], tiny_data(), path, threads=1)
    assert (tmp_path / "timings.json.unreadable").read_text(encoding="latin-1") == text
    assert "baseline" in read_seconds(path)[-1]
