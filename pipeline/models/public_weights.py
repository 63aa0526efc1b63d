"""Declaration of a torchvision network with public weights in a file."""

from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field

from dprepro.errors import shown
from dprepro.fields import Strict


def _inside(path: str) -> str:
    parts = PurePosixPath(path)
    if not parts.parts or parts.is_absolute() or ".." in parts.parts:
        raise ValueError(f"{shown(path)} leads outside this folder; allowed: a path below params.yaml")
    return path


Below = Annotated[str, AfterValidator(_inside)]  # a path below the folder of params.yaml
Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
Side = Annotated[int, Field(ge=1, le=4096, strict=True)]
Three = tuple[float, float, float]


class PublicWeights(Strict):
    """Network of torchvision with public weights."""

    architecture: str  # a classifier's name in torchvision.models
    weights: Below  # a safetensors file, or a state dict of `torch.save`
    digest: Digest
    source: str  # where the weights come from
    licence: str
    trained_on: str  # the data, taken as public
    size: Side = 224  # pixels that images are scaled to
    mean: Three = (0.485, 0.456, 0.406)  # of images, for normalisation; ImageNet's, as in torchvision
    std: Three = (0.229, 0.224, 0.225)

    @property
    def words(self) -> str:
        """Architecture and training data, for ledgers."""
        return f"{self.architecture}, trained on {self.trained_on}"
