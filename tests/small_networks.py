"""The large networks with few channels: the same layers, strides and shortcuts, in less time."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from dprepro.pipeline.models import adlm_cnn, resnet18, vgg, vgg16, wrn16_4

# numbers that the groups of rows' normalisation divide
NARROW = (
    (adlm_cnn, {"GREY": (((8, 5), (16, 5)), 25), "COLOUR": (((8, 3), (8, 5), (16, 5)), 30)}),
    (resnet18, {"STAGES": ((8, 1), (8, 2), (16, 2), (16, 2))}),
    (vgg, {"STAGES": ((8, 8), (8, 8), (16,) * 4)}),
    (vgg16, {"STAGES": ((8,) * 2, (8,) * 2, (8,) * 3, (16,) * 3, (16,) * 3)}),
    (wrn16_4, {"STAGES": ((32, 1), (48, 2), (64, 2))}),
)


@contextmanager
def small_networks() -> Iterator[None]:
    """Networks that are built inside have few channels; what depends on their number is tested elsewhere."""
    with ExitStack() as patched:
        for module, stages in NARROW:
            patched.enter_context(patch.multiple(module, **stages))
        yield
