"""The paper's AlexNet: two convolutions and three linear layers [qalexnet_arch]."""

from torch import nn

from anodev2.models.method import Method
from anodev2.models.residual import link


def alexnet(method: Method, *, order: str, num_classes: int, in_channels: int) -> nn.Module:
    """Convolutions of 64 channels with 5x5 kernels; the second, with its shortcut, is the block.

    Images of 32x32 are halved twice by max pooling and end in linear layers of 384, 192 and
    `num_classes` outputs.
    """
    return nn.Sequential(
        nn.Conv2d(in_channels, 64, 5, padding=2),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        method.block(nn.Sequential(*link(64, kernel=5, bias=True, order=order))),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4096, 384),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.ReLU(),
        nn.Linear(192, num_classes),
    )
