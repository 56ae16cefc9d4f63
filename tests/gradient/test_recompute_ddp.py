"""Two processes that train one model, with the default flags of DistributedDataParallel.

Each process takes its own images, and batch norm sees those alone. The mean of two gradients
is their halves' sum, so that one process with both gradients gets the same parameters to the
bit. The processes run all scenarios once; the tests read what they left.
"""

import time
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel
from twins import convolution, coupled, differing, images, resnet_field

from anodev2 import configuration_1
from anodev2.evolution import Frozen
from anodev2.gradient import Binomial, Checkpoint, Direct, GradientStrategy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo"),
]

RANKS = 2
TRAINING_STEPS = 5
TIMEOUT = 120.0
"""Seconds until the processes are given up."""


class Scenario(NamedTuple):
    name: str
    settings: dict[str, object]
    gradient: GradientStrategy


STRATEGIES = [Direct(), Checkpoint(1), Checkpoint(2), Checkpoint(100), Binomial(2)]
BLOCKS: dict[str, dict[str, object]] = {
    "moving weights": {},
    "shared norms": {"per_step": ()},
    "frozen weights": {"evolution": Frozen},
    "p that nothing reads": {"coupling": configuration_1(steps=1)},
}
SCENARIOS = [Scenario(name, s, gradient) for name, s in BLOCKS.items() for gradient in STRATEGIES]


def network(scenario: Scenario) -> nn.Module:
    torch.manual_seed(0)
    block = coupled(
        resnet_field(channels=4, dropout=0.0), gradient=scenario.gradient, **scenario.settings
    )
    return nn.Sequential(convolution(), block, nn.Flatten(), nn.Linear(256, 3))


def batch(rank: int, step: int) -> Tensor:
    return images(4, batch=4, seed=100 * rank + step)


def momentum_sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train_with_others(scenario: Scenario, rank: int) -> dict[str, Tensor]:
    model = network(scenario)
    parallel = DistributedDataParallel(model)
    optimizer = momentum_sgd(model)
    for step in range(TRAINING_STEPS):
        optimizer.zero_grad()
        parallel(batch(rank, step)).square().mean().backward()
        optimizer.step()
    return model.state_dict()


def train_alone(scenario: Scenario) -> dict[str, Tensor]:
    """One process that takes the batches of both in turn; statistics are those of rank 0."""
    model = network(scenario)
    optimizer = momentum_sgd(model)
    for step in range(TRAINING_STEPS):
        of_ranks = []
        for rank in reversed(range(RANKS)):
            buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
            loss = model(batch(rank, step)).square().mean()
            of_ranks.append(torch.autograd.grad(loss, list(model.parameters())))
            if rank > 0:
                model.load_state_dict(buffers, strict=False)
        for parameter, theirs, ours in zip(model.parameters(), *of_ranks, strict=True):
            parameter.grad = ours / RANKS + theirs / RANKS
        optimizer.step()
    return model.state_dict()


def work(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    meeting = (folder / "meeting").as_uri()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS)
    left = {i: train_with_others(scenario, rank) for i, scenario in enumerate(SCENARIOS)}
    dist.destroy_process_group()
    torch.save(left, folder / f"rank{rank}.pt")
    if rank == 0:
        alone = {i: train_alone(scenario) for i, scenario in enumerate(SCENARIOS)}
        torch.save(alone, folder / "alone.pt")


Left = dict[str, dict[int, dict[str, Tensor]]]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """State dictionaries by process and scenario."""
    folder = tmp_path_factory.mktemp("ddp")
    processes = spawn(work, args=(folder,), nprocs=RANKS, join=False)
    end = time.monotonic() + TIMEOUT
    try:
        while not processes.join(timeout=1.0):
            if time.monotonic() > end:
                pytest.fail(f"two processes did not finish in {TIMEOUT:g} s")
    finally:
        for process in processes.processes:
            process.kill()
    return {path.stem: torch.load(path) for path in folder.glob("*.pt")}


every_scenario = pytest.mark.parametrize(
    "index", range(len(SCENARIOS)), ids=[f"{s.name}-{s.gradient}" for s in SCENARIOS]
)


@every_scenario
def test_both_processes_end_with_equal_parameters_to_the_bit(left: Left, index: int) -> None:
    parameters = {name for name, _ in network(SCENARIOS[index]).named_parameters()}
    first, second = (
        {name: tensor for name, tensor in left[rank][index].items() if name in parameters}
        for rank in ("rank0", "rank1")
    )
    assert not differing(first, second)


@every_scenario
def test_two_processes_train_with_the_mean_of_their_gradients_to_the_bit(
    left: Left, index: int
) -> None:
    assert not differing(left["rank0"][index], left["alone"][index])


@every_scenario
def test_every_strategy_trains_in_two_processes_as_direct_does_to_the_bit(
    left: Left, index: int
) -> None:
    direct = SCENARIOS.index(SCENARIOS[index]._replace(gradient=Direct()))
    assert not differing(left["rank0"][index], left["rank0"][direct])


@every_scenario
def test_training_in_two_processes_moves_all_that_the_output_depends_on(
    left: Left, index: int
) -> None:
    """Otherwise equal parameters would not tell anything."""
    model = network(SCENARIOS[index])
    unread = "evolution." if SCENARIOS[index].name == "p that nothing reads" else "nothing"
    trained = left["rank0"][index]
    still = {n for n, p in model.named_parameters() if torch.equal(p, trained[n])}
    assert still == {n for n, _ in model.named_parameters() if unread in n}
