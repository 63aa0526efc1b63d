"""Group norm of a network's inputs: each example's own, so that it costs no privacy."""

from torch import nn

from pipeline.models.model import Model


def input_norm(model: Model, channels: int) -> nn.Module:
    """`model.groups` groups without gain and bias, where the normalisation is 'group'; else nothing."""
    if model.normalization == "none":
        return nn.Identity()
    if model.normalization != "group":
        raise ValueError(f"normalization {model.normalization!r}; allowed: none, group")
    return nn.GroupNorm(model.groups, channels, affine=False)
