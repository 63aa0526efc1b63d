"""The large networks with few channels: the same layers, strides and shortcuts, in less time."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from pipeline.models import resnet18, vgg, vgg16, wrn16_4

# numbers that the groups of rows' normalisation divide
STAGES = {
    resnet18: ((8, 1), (8, 2), (16, 2), (16, 2)),
    vgg: ((8, 8), (8, 8), (16,) * 4),
    vgg16: ((8,) * 2, (8,) * 2, (8,) * 3, (16,) * 3, (16,) * 3),
    wrn16_4: ((32, 1), (48, 2), (64, 2)),
}


@contextmanager
def narrow() -> Iterator[None]:
    """Networks that are built inside have few channels; what depends on their number is tested elsewhere."""
    with ExitStack() as patched:
        for module, stages in STAGES.items():
            patched.enter_context(patch.object(module, "STAGES", stages))
        yield
