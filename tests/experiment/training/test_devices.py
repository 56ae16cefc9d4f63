"""One run on several devices: two processes under gloo, through the command line."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from lightning.pytorch import seed_everything
from torch import nn
from torch.nn.functional import cross_entropy

from anodev2.experiment.config import RunConfig, run_config
from anodev2.experiment.data.batches import Augmentation, Batches
from anodev2.experiment.data.images import ImageData
from anodev2.experiment.data.loading import load_data
from anodev2.experiment.recipe import recipe_for
from anodev2.experiment.training.checkpoints import model_weights
from anodev2.experiment.training.run import network
from terminal import heed_interrupts

EPOCHS = 3
CONFIG = run_config(
    model="resnet4",
    method="anodev2-1",
    order="pre",
    data="digits",
    epochs=EPOCHS,
    seed=0,
    precision="float32",
    devices=2,
)
RUN = Path("runs") / CONFIG.name
TRAIN = ["train", "--epochs", str(EPOCHS), "--precision", "float32", "--devices", "2"]


def start(
    out: Path, *more: str, program: tuple[str, ...] = ("-m", "anodev2.cli")
) -> subprocess.Popen[str]:
    """A run in a group of processes of its own, which heeds Ctrl-C as a terminal's job does."""
    return subprocess.Popen(
        [sys.executable, *program, *TRAIN, "--out", str(out), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its status, standard output and standard error, when nobody holds these open any more."""
    output, error = process.communicate(timeout=300)
    return process.returncode, output, error


def running(out: Path) -> list[str]:
    """The command lines of processes that work on `out`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it has ended meanwhile
            continue
    return [line for line in found if str(out) in line]


def checkpoint_of(out: Path) -> Path:
    return out / RUN / "checkpoints/last.ckpt"


def stop_after_an_epoch(process: subprocess.Popen[str], out: Path, how: signal.Signals) -> None:
    """Signal a run once it has written a checkpoint; Ctrl-C goes to all its processes."""
    last, deadline = checkpoint_of(out), time.monotonic() + 300
    before = last.stat().st_mtime_ns if last.exists() else 0
    while not last.exists() or last.stat().st_mtime_ns == before:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert len(running(out)) == 2
    if how is signal.SIGINT:
        os.killpg(process.pid, how)
    else:
        process.send_signal(how)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of two processes that nobody stopped, with what it said."""
    out = tmp_path_factory.mktemp("whole")
    status, output, error = end(start(out))
    assert status == 0, error
    (out / "output").write_text(output)
    (out / "error").write_text(error)
    return out


def rows(out: Path) -> list[dict[str, float]]:
    return json.loads((out / RUN / "result.json").read_text())["epochs"]


def epoch_batches(data: ImageData, *, epoch: int, rank: int) -> Batches:
    """The half of an epoch's batches that one of two processes gets."""
    return Batches(
        data.train,
        mean=data.mean,
        std=data.std,
        batch_size=128,
        seed=0,
        augment=Augmentation(padding=4, flip=False),
        shuffle=True,
        epoch=lambda: epoch,
        rank=rank,
        world_size=2,
    )


def accumulated_losses(config: RunConfig) -> list[float]:
    """The training loss of each epoch in one process that adds up the halves of each batch."""
    torch.set_num_threads(1)
    data, recipe = load_data(config.data), recipe_for(config.model, config.epochs)
    seed_everything(config.seed, verbose=False)
    model = network(config, data).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    moved = [x for name, x in model.named_parameters() if ".evolution." in name]
    rest = [x for name, x in model.named_parameters() if ".evolution." not in name]
    assert len(moved) == 6  # d, v and rho of either kernel
    optimizer = torch.optim.SGD(
        [{"params": rest}, {"params": moved, "lr": 0.1 * recipe.p_rate}],
        lr=0.1,
        momentum=0.9,
        weight_decay=5e-4,
    )
    steps = len(epoch_batches(data, epoch=0, rank=0))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: recipe.rate_factor(step, steps)
    )
    losses = []
    for epoch in range(config.epochs):
        total = 0.0
        halves = [epoch_batches(data, epoch=epoch, rank=rank) for rank in (0, 1)]
        for pair in zip(*halves, strict=True):
            optimizer.zero_grad()
            for images, labels in pair:
                loss = cross_entropy(model(images), labels)
                (loss / 2).backward()
                total += loss.item() * len(labels)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        losses.append(total / (2 * (len(data.train) // 2)))
    return losses


@pytest.mark.slow
def test_two_processes_have_the_loss_curve_of_one_that_accumulates_their_halves(
    whole: Path,
) -> None:
    found = [row["train_loss"] for row in rows(whole)]
    # Sums of float32 in another order, through 18 steps.
    assert found == pytest.approx(accumulated_losses(CONFIG), rel=1e-5)


@pytest.mark.slow
def test_two_processes_leave_one_set_of_files_and_speak_once(whole: Path) -> None:
    names = sorted(path.name for path in (whole / RUN).rglob("*") if path.is_file())
    events = [name for name in names if name.startswith("events.")]
    assert len(events) == 1
    assert set(names) - {*events, ".lock", "hparams.yaml"} == {
        "best.ckpt",
        "config.yaml",
        "last.ckpt",
        "metrics.csv",
        "result.json",
    }
    assert [path.name for path in (whole / "runs").iterdir()] == [CONFIG.name]
    assert (whole / "output").read_text().count("test accuracy") == 1
    assert len((whole / "error").read_text().splitlines()) == EPOCHS


@pytest.mark.slow
def test_the_result_says_how_many_devices_shared_the_batches(whole: Path) -> None:
    config = json.loads((whole / RUN / "result.json").read_text())["config"]
    assert (config["devices"], config["num_nodes"]) == (2, 1)


@pytest.mark.slow
def test_the_saved_network_is_the_one_whose_test_loss_was_measured(whole: Path) -> None:
    data = load_data("digits")
    model = network(CONFIG, data).eval()
    model.load_state_dict(model_weights(checkpoint_of(whole)))
    batches = Batches(
        data.test,
        mean=data.mean,
        std=data.std,
        batch_size=len(data.test),
        seed=0,
        augment=None,
        shuffle=False,
        epoch=lambda: 0,
    )
    ((images, labels),) = batches
    with torch.no_grad():
        logits = model(images)
    last = rows(whole)[-1]
    assert last["test_loss"] == pytest.approx(cross_entropy(logits, labels).item(), rel=1e-5)
    correct = (logits.argmax(1) == labels).double().mean().item()
    assert last["test_accuracy"] == pytest.approx(correct, abs=1e-6)


@dataclass(frozen=True)
class Stopped:
    """A run that was killed after its first epoch, interrupted after its second, and ended."""

    out: Path
    left_by_the_kill: list[str]
    said_after_the_kill: str
    interrupted: tuple[int, str, str]
    left_by_the_interruption: list[str]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    out = tmp_path_factory.mktemp("stopped")
    first = start(out)
    stop_after_an_epoch(first, out, signal.SIGKILL)
    status, _, said = end(first)
    assert status == -signal.SIGKILL
    left = running(out)
    second = start(out, "--resume")
    stop_after_an_epoch(second, out, signal.SIGINT)
    interrupted = end(second)
    left_then = running(out)
    status, _, error = end(start(out, "--resume"))
    assert status == 0, error
    return Stopped(out, left, said, interrupted, left_then)


@pytest.mark.slow
def test_a_run_killed_interrupted_and_resumed_ends_with_the_same_weights(
    whole: Path, stopped: Stopped
) -> None:
    a, b = (model_weights(checkpoint_of(out)) for out in (whole, stopped.out))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert [row["epoch"] for row in rows(stopped.out)] == [1, 2, 3]


@pytest.mark.slow
def test_when_the_first_process_is_killed_the_other_ends_without_a_word(stopped: Stopped) -> None:
    assert stopped.left_by_the_kill == []
    assert all(" epoch " in line for line in stopped.said_after_the_kill.splitlines())


@pytest.mark.slow
def test_ctrl_c_ends_both_processes_with_one_line(stopped: Stopped) -> None:
    status, output, error = stopped.interrupted
    assert (status, output) == (130, "")
    said = [line for line in error.splitlines() if " epoch 2/3: " not in line]
    assert said == ["anodev2: interrupted; --resume goes on after the last finished epoch"]
    assert stopped.left_by_the_interruption == []


POISONED = """
import os, sys
from anodev2.cli import main
from anodev2.experiment.training.task import Classification

plain = Classification.training_step

def poisoned(self, batch, index):
    images, labels = batch
    bad = os.environ.get("LOCAL_RANK") == "1" and index == 1
    return plain(self, (images * float("nan") if bad else images, labels), index)

Classification.training_step = poisoned
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_loss_that_is_not_finite_in_one_process_ends_both_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "poisoned.py").write_text(POISONED)
    out = tmp_path / "out"
    status, output, error = end(start(out, program=(str(tmp_path / "poisoned.py"),)))
    assert (status, output) == (1, "")
    assert error == "anodev2: the loss is nan in epoch 1, step 2\n"
    assert running(out) == []
    assert not (out / RUN / "result.json").exists()
