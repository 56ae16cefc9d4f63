"""The paper's three networks with its five methods: a network is a file and a line here."""

from collections.abc import Callable

from torch import nn

from anodev2.models.alexnet import alexnet
from anodev2.models.method import METHODS, Method, Moving, find_method, spell_method
from anodev2.models.residual import ORDERS
from anodev2.models.resnet import resnet4, resnet10
from anodev2.usage import check_choice

__all__ = [
    "IMAGE_SIZE",
    "METHODS",
    "MODELS",
    "ORDERS",
    "Method",
    "Moving",
    "build_model",
    "find_method",
    "spell_method",
]

MODELS: dict[str, Callable[..., nn.Module]] = {
    "alexnet": alexnet,
    "resnet4": resnet4,
    "resnet10": resnet10,
}
IMAGE_SIZE = 32
"""Height and width, in pixels, of the images that every network here takes."""


def build_model(
    name: str,
    *,
    method: str = "anodev2-1",
    moving: Moving = Moving(),
    order: str = "pre",
    num_classes: int = 10,
    in_channels: int = 3,
) -> nn.Module:
    """One of the paper's networks, for images of 32x32.

    Args:
        name: "alexnet", "resnet4" or "resnet10".
        method: "baseline" (residual block), "neural-ode" (torchdiffeq's adjoint, two steps),
            "anode" (frozen weights, exact gradient, two steps), "anodev2-1" or "anodev2-2"
            (the two configurations), with steps and a solver as `find_method` reads them.
        moving: evolution, memory, regularization and compression of the weights that move.
        order: "pre" (norm, ReLU, convolution) or "post" (convolution, norm, ReLU).
        num_classes: outputs of the last layer.
        in_channels: colour channels of the images.

    Returns:
        A module (batch, in_channels, 32, 32) -> (batch, num_classes), in logits.

    Raises:
        ValueError: an unknown name, method or order, with the nearest one.

    Source: appendix "Model Configuration", tables [qalexnet_arch] and [resnet].
    """
    check_choice("model", name, MODELS)
    check_choice("order", order, ORDERS)
    return MODELS[name](
        find_method(method, moving), order=order, num_classes=num_classes, in_channels=in_channels
    )
