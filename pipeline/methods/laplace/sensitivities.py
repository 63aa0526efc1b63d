"""The sensitivities that Phan et al. 2017 calibrate their noise to, as the paper states them."""


def relevance_sensitivity(features: int, examples: int) -> float:
    """Delta_R of d relevances averaged over |D| examples (Lemma 1): 2 d / |D|."""
    return 2 * features / examples


def layer_sensitivity(hidden: int, features: int) -> float:
    """Delta_h0 of the first affine layer with |h0| hidden neurons on d features (Lemma 3): 2 |h0| d."""
    return 2.0 * hidden * features


def loss_sensitivity(classes: int, units: int) -> float:
    """Delta_F of the loss's coefficients, M classes over |h_k| units (Lemma 5): M (|h_k| + |h_k|^2 / 4)."""
    return classes * (units + units**2 / 4)
