"""Wide ResNet 16-4 (Zagoruyko and Komodakis 2016), as in De et al. 2022 and Sander et al. 2022.

Convolutions have biases. Before each convolution but the first come ReLU and normalisation, in this order
(``order: relu_norm``, CONV-ReLU-GN of Sander et al. section 4.4) or reversed (``norm_relu``).
"""

from torch import Tensor, nn

from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.normalization import normalization

VERSION = 1  # raise it if the same settings would give other numbers
ORDERED = "relu_norm"  # its second `order`
STEM = 16
STAGES = ((64, 1), (128, 2), (256, 2))  # channels, and the stride of the first of two blocks


def build(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """WRN-16-4 for images of ``shape`` (C, H, W).

    With group norm it has 2,751,562 parameters in 66 tensors on CIFAR-10. Normalisation is applied to the
    inputs of layers, never to the logits. So ``unnormalized`` 0 and 1 are the same network, and 2 leaves out
    the normalisation of the output layer's inputs.
    """
    blocks: list[nn.Module] = []
    inputs, from_end = STEM, 12
    for channels, first in STAGES:
        for stride in (first, 1):
            blocks.append(PreactivationBlock(model, inputs, channels, stride, from_end))
            inputs, from_end = channels, from_end - 2
    net = nn.Sequential(
        *(nn.Conv2d(shape[0], STEM, 3, padding=1), *blocks),
        *(_activation(model, inputs, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)),
    )
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            # truncated at -2 and 2 as in the authors' code: ten standard deviations or more, so almost never
            nn.init.trunc_normal_(layer.weight, std=layer.weight[0].numel() ** -0.5)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
    return net


class PreactivationBlock(nn.Module):
    """Residual block of two 3x3 convolutions; the shortcut is a 1x1 convolution if channels differ."""

    def __init__(self, model: Model, inputs: int, outputs: int, stride: int, from_end: int):
        """``from_end``: number of trainable layers after the first convolution, without shortcuts."""
        super().__init__()
        self.residual = nn.Sequential(
            *(_activation(model, inputs, from_end + 1), nn.Conv2d(inputs, outputs, 3, stride, 1)),
            *(_activation(model, outputs, from_end), nn.Conv2d(outputs, outputs, 3, 1, 1)),
        )
        self.shortcut = nn.Sequential()
        if inputs != outputs:
            self.shortcut = nn.Sequential(
                _activation(model, inputs, from_end + 1), nn.Conv2d(inputs, outputs, 1, stride)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, C, H, W) to (B, C', H / stride, W / stride)."""
        out: Tensor = self.shortcut(inputs) + self.residual(inputs)
        return out


def _activation(model: Model, channels: int, from_end: int) -> nn.Sequential:
    """ReLU and normalisation in the model's order; ``from_end`` trainable layers follow."""
    norm = normalization(model, channels, from_end)
    return nn.Sequential(norm, nn.ReLU()) if model.order == "norm_relu" else nn.Sequential(nn.ReLU(), norm)
