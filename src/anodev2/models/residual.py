"""Residual blocks and the fields that turn into ODE blocks."""

from jaxtyping import Float
from torch import Tensor, nn

ORDERS = ("pre", "post")
"""norm, ReLU, convolution; or convolution, norm, ReLU, whose f is never negative."""


class Residual(nn.Module):
    """z + f(z): a residual block, one Euler step of length 1 [e:ode].

    Args:
        field: f, a module that keeps the shape of z.
    """

    def __init__(self, field: nn.Module) -> None:
        super().__init__()
        self.field = field

    def forward(self, z: Float[Tensor, "*state"]) -> Float[Tensor, "*state"]:
        return z + self.field(z)  # type: ignore[no-any-return]


class Transition(nn.Module):
    """The residual block where a layer halves the image and widens the channels.

    F(z) + P(z), with F two links of convolution, norm, ReLU in either order of the other
    blocks, and P a 1x1 convolution with a norm. It changes the shape, so it is no ODE.
    """

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.links = nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(inplace=True),
            *link(channels_out, order="post"),
        )
        self.shortcut = nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 1, stride=2, bias=False),
            nn.BatchNorm2d(channels_out),
        )

    def forward(
        self, z: Float[Tensor, "batch channels_in height width"]
    ) -> Float[Tensor, "batch channels_out height_out width_out"]:
        return self.links(z) + self.shortcut(z)  # type: ignore[no-any-return]


def link(channels: int, *, kernel: int = 3, bias: bool = False, order: str) -> list[nn.Module]:
    """Norm, ReLU and a convolution that keeps the shape, in the order given.

    The ReLU works in place on what the norm returns, which nothing else reads: batch norm
    differentiates from its input.
    """
    convolution = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, bias=bias)
    norm, relu = nn.BatchNorm2d(channels), nn.ReLU(inplace=True)
    return [norm, relu, convolution] if order == "pre" else [convolution, norm, relu]
