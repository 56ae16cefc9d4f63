"""The paper's ResNet-4 and ResNet-10 [resnet]."""

from torch import nn

from anodev2.models.method import Method
from anodev2.models.residual import Residual, Transition, link


def resnet4(method: Method, *, order: str, num_classes: int, in_channels: int) -> nn.Module:
    """One layer of 16 channels whose one residual block is the block."""
    return nn.Sequential(
        *_stem(in_channels), method.block(_field(16, order)), *_head(256, num_classes)
    )


def resnet10(method: Method, *, order: str, num_classes: int, in_channels: int) -> nn.Module:
    """Two layers, of 16 and 32 channels, of two residual blocks; the second of each is a block.

    The first block of each layer stays a residual block, as the paper's counts say.
    """
    return nn.Sequential(
        *_stem(in_channels),
        Residual(_field(16, order)),
        method.block(_field(16, order)),
        Transition(16, 32),
        method.block(_field(32, order)),
        *_head(128, num_classes),
    )


def _stem(in_channels: int) -> list[nn.Module]:
    convolution = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(16), nn.ReLU(inplace=True)]


def _field(channels: int, order: str) -> nn.Sequential:
    return nn.Sequential(*link(channels, order=order), *link(channels, order=order))


def _head(features: int, num_classes: int) -> list[nn.Module]:
    return [nn.MaxPool2d(8), nn.Flatten(), nn.Linear(features, num_classes)]
