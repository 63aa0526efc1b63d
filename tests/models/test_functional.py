"""Networks as functions of their tensors, and as they were afterwards."""

import pytest
import torch
from torch import Tensor, nn

from dprepro.clipping.functional import functional_call


class Twice(nn.Module):
    """A network that uses a layer under two names, and whose layers share a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
        self.again, self.other.bias = self.first, self.first.bias
        self.register_buffer("shift", torch.zeros(3))

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.isnan().any():
            raise ValueError("not a number")
        outputs: Tensor = self.other(self.again(self.first(inputs))) + self.shift
        return outputs


@pytest.mark.parametrize("inputs", [torch.ones(2, 3), torch.full((2, 3), torch.nan)])
def test_tensors_are_replaced_under_all_names_and_put_back(inputs: Tensor) -> None:
    net, replacement = Twice(), Twice()
    shift = torch.ones(3)
    replacement.register_buffer("shift", shift)
    own = {name: (value, value.clone()) for name, value in (*net.named_parameters(), *net.named_buffers())}
    tensors = dict(replacement.named_parameters()) | dict(replacement.named_buffers())
    if inputs.isnan().any():
        with pytest.raises(ValueError, match="not a number"):
            functional_call(net, tensors, (inputs,))
    else:
        assert torch.equal(functional_call(net, tensors, (inputs,)), replacement(inputs))
        only = functional_call(net, {"shift": shift}, (inputs,))
        assert torch.equal(only, net(inputs) + 1)
    after = dict(net.named_parameters()) | dict(net.named_buffers())
    assert all(after[name] is value and torch.equal(value, copy) for name, (value, copy) in own.items())
    assert net.again is net.first
    assert net.other.bias is net.first.bias
    with pytest.raises(KeyError, match="no tensor 'third' in Twice"):
        functional_call(net, {"third": inputs}, (inputs,))
