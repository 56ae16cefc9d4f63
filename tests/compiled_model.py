"""Trains ResNet-4 by configuration 1 for ten steps, plain and compiled, and prints what came out.

A script of its own: the type checks that the tests install cannot be traced.
"""

import json
from copy import deepcopy

import torch
from torch import nn

from anodev2.models import build_model


def train(model: nn.Module, call: nn.Module) -> list[float]:
    """Ten steps of SGD on one batch, under autocast."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(8, 3, 32, 32, generator=generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            logits = call(images)
        loss = nn.functional.cross_entropy(logits.float(), torch.arange(8))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    eager = build_model("resnet4", method="anodev2-1")
    compiled = deepcopy(eager)
    losses = [train(eager, eager), train(compiled, torch.compile(compiled, backend="aot_eager"))]
    counters = torch._dynamo.utils.counters
    breaks, graphs = sum(counters["graph_break"].values()), counters["stats"]["unique_graphs"]
    print(json.dumps({"losses": losses, "graph breaks": breaks, "graphs": graphs}))
