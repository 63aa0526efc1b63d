"""Group norm of a network's inputs, which works on each example alone and so costs no privacy."""

from torch import nn

from dprepro.pipeline.models.model import Model


def input_norm(model: Model, channels: int) -> nn.Module:
    """Group norm of `model.groups` groups without gain and bias; the identity if normalization is 'none'."""
    if model.normalization == "none":
        return nn.Identity()
    if model.normalization != "group":
        raise ValueError(f"normalization {model.normalization!r}; allowed: none, group")
    return nn.GroupNorm(model.groups, channels, affine=False)
