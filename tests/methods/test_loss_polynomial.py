"""The loss of Phan et al. 2017, its polynomial, and how far Lemma 7's bound is from the truth."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.methods.laplace.perturbed import SECOND, first_coefficients, polynomial

LEMMA_7 = (math.e**2 + 2 * math.e - 1) / (math.e * (1 + math.e) ** 2)  # of one output


def logistic(outputs: Tensor, targets: Tensor) -> Tensor:
    """(B,) cross-entropies of M logistic outputs; ``outputs`` and one-hot ``targets`` (B, M).

    Eq. 24 has the sign of both terms wrong; this is the one that Eq. 25 approximates.
    """
    return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").sum(-1)


def test_the_polynomial_has_the_losss_value_slope_and_curvature_at_zero() -> None:
    zero = torch.zeros(1, 3, dtype=torch.double)
    targets = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.double)
    for function in (
        lambda outputs: logistic(outputs, targets)[0],
        lambda outputs: polynomial(outputs, first_coefficients(targets))[0],
    ):
        assert function(zero).item() == pytest.approx(3 * math.log(2))
        slope = torch.autograd.functional.jacobian(function, zero)
        assert slope[0].tolist() == pytest.approx([0.5, -0.5, 0.5])
        curvature = torch.autograd.functional.hessian(function, zero).reshape(3, 3)
        torch.testing.assert_close(curvature, 2 * SECOND * torch.eye(3, dtype=torch.double))


def test_the_polynomial_is_the_one_that_the_authors_code_writes_with_absolute_values() -> None:
    outputs = torch.randn(20, 10) * 3
    targets = F.one_hot(torch.randint(10, (20,)), 10).float()
    size = -outputs.abs()
    theirs = outputs.clamp_min(0) - outputs * targets + math.log(2) + 0.5 * size + size**2 / 8
    torch.testing.assert_close(polynomial(outputs, first_coefficients(targets)), theirs.sum(-1))


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_the_true_error_is_far_below_lemma_7_where_outputs_stay_within_one(label: float) -> None:
    outputs = torch.linspace(-1, 1, 2001, dtype=torch.double)[:, None]
    targets = torch.full_like(outputs, label)
    error = (polynomial(outputs, first_coefficients(targets)) - logistic(outputs, targets)).abs()
    # the third derivative vanishes at 0, so that the error is of fourth order: z^4 / 192
    assert error.max().item() == pytest.approx(1 / 192, rel=0.2)
    assert error.max().item() < LEMMA_7 / 50


def test_lemma_7_does_not_hold_for_the_outputs_that_minimise_the_polynomial() -> None:
    best = torch.tensor([[2.0]], dtype=torch.double)  # phi^(1) + 2 phi^(2) z = 0 where y = 1
    yes = torch.ones_like(best)
    assert polynomial(best, first_coefficients(yes)) < polynomial(best - 0.01, first_coefficients(yes))
    assert polynomial(best, first_coefficients(yes)) < polynomial(best + 0.01, first_coefficients(yes))
    # beyond |z| = 1, which the lemma assumes and nothing ensures, the error passes any bound
    far = torch.tensor([[6.0]], dtype=torch.double)
    error = (polynomial(far, first_coefficients(yes)) - logistic(far, yes)).abs().item()
    assert error > 2 * LEMMA_7


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_lemma_7_takes_the_wrong_third_derivatives(label: float) -> None:
    # the lemma's is 2 y e^z / (1 + e^z)^3 for the first term
    z = torch.tensor([[0.7]], dtype=torch.double, requires_grad=True)
    value = logistic(z, torch.full_like(z, label)).sum()
    for _ in range(3):
        (value,) = torch.autograd.grad(value.sum(), z, create_graph=True)
    power = math.exp(0.7)
    assert value.item() == pytest.approx(power * (1 - power) / (1 + power) ** 3)
