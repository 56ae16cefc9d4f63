"""What the coupled system costs: ratios of training steps, measured alternately.

    python benchmarks/step.py [--rounds N] [--batch N] [--threads N]

Three figures, each a ratio of medians over runs that alternate in one process, forward and
backward, after six steps that pay for page faults:

1. configuration 1 of resnet4, five steps, against the same steps written by hand in plain
   PyTorch with five independent weight sets, same precision and memory layout (at most 1.00),
   and against the same with the library's fusions (at most 1.05);
2. evolving all weights, forward and backward, as a share of that training step (at most 0.01);
3. float32 in PyTorch's default layout against what `--precision auto` and channels_last make
   of it (at least 2.5 on a CPU with AVX512-BF16).
"""

import argparse

import torch
from contenders import ByHand
from measure import alternate
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from anodev2 import CoupledODE
from anodev2.experiment.config import fast_precision
from anodev2.models import build_model


def training_step(model: nn.Module, images: Tensor, labels: Tensor, dtype: torch.dtype) -> None:
    """Forward and backward pass under autocast to `dtype`."""
    kind, cast = images.device.type, dtype != torch.float32
    with torch.autocast(kind, dtype=dtype if cast else None, enabled=cast):
        loss = cross_entropy(model(images).float(), labels)
    loss.backward()


def evolve(block: CoupledODE) -> None:
    """The evolution of all weights of a block, forward and backward."""
    torch.autograd.backward([theta.sum() for theta in block.weight_trajectory().values()])


def main() -> None:
    """Measure and print the three ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="counted steps of each job")
    parser.add_argument("--batch", type=int, default=256, help="images a step")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    images = torch.randn(options.batch, 3, 32, 32)
    labels = torch.randint(10, (options.batch,))
    auto = getattr(torch, fast_precision())
    print(f"batch {options.batch}, {options.threads} threads, --precision auto is {auto}")
    for dtype in dict.fromkeys((auto, torch.float32)):
        compare_with_hand(images, labels, dtype, options.rounds)
    compare_precisions(images, labels, auto, options.rounds)


def compare_with_hand(images: Tensor, labels: Tensor, dtype: torch.dtype, rounds: int) -> None:
    """Figures 1 and 2 in one precision, channels_last."""
    images = images.contiguous(memory_format=torch.channels_last)
    coupled = build_model("resnet4", method="anodev2-1").to(memory_format=torch.channels_last)
    block = coupled.get_submodule("3")
    assert isinstance(block, CoupledODE)
    by_hand, fused = (network_by_hand(block.coupling.z_steps, fused=f) for f in (False, True))
    times = alternate(
        {
            "coupled": lambda: training_step(coupled, images, labels, dtype),
            "by hand": lambda: training_step(by_hand, images, labels, dtype),
            "fused": lambda: training_step(fused, images, labels, dtype),
            "evolution": lambda: evolve(block),
        },
        rounds,
    )
    print(f"{dtype}: configuration 1 {1000 * times['coupled']:.1f} ms a training step")
    print(f"  against five steps by hand    {times['coupled'] / times['by hand']:.3f}")
    print(f"  with the library's fusions    {times['coupled'] / times['fused']:.3f}")
    print(f"  evolution, share of the step  {times['evolution'] / times['coupled']:.4f}")


def network_by_hand(steps: int, *, fused: bool) -> nn.Module:
    """ResNet-4 with its block written by hand."""
    network = build_model("resnet4", method="baseline")
    network.set_submodule("3", ByHand(steps, fused=fused))
    return network.to(memory_format=torch.channels_last)


def compare_precisions(images: Tensor, labels: Tensor, auto: torch.dtype, rounds: int) -> None:
    """Figure 3, on configuration 1."""
    fast = build_model("resnet4", method="anodev2-1").to(memory_format=torch.channels_last)
    plain = build_model("resnet4", method="anodev2-1")
    channels_last = images.contiguous(memory_format=torch.channels_last)
    times = alternate(
        {
            "auto": lambda: training_step(fast, channels_last, labels, auto),
            "float32": lambda: training_step(plain, images, labels, torch.float32),
        },
        rounds,
    )
    print(f"float32 in the default layout against auto  {times['float32'] / times['auto']:.2f}")


if __name__ == "__main__":
    main()
