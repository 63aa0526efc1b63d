"""Which attack a method's release gets: one between neighbours of the kind that it is accounted for."""

import pytest

from pipeline.audits import bounds, mechanism
from pipeline.methods.rooms import method_settings

SETTINGS = {"batch": 64, "epochs": 16, "learning_rate": 0.1, "clipping": "full", "sigma": 2.0}


@pytest.mark.parametrize(
    ("sampling", "mini_set", "attack"),
    [("poisson", 1, "canaries"), ("poisson", 8, "crowd"), ("poisson", None, "crowd"), ("fixed", 1, "crowd")],
)
def test_a_vector_of_an_examples_own_is_there_or_not(
    sampling: str, mini_set: int | None, attack: str
) -> None:
    config = method_settings()["batch_clipping"].model_validate(
        {**SETTINGS, "sampling": sampling, "mini_set": mini_set}
    )
    assert config.attack == attack


def test_right_code_is_not_called_broken() -> None:
    """Turning the example around, which moves a sum by 2 C, showed 5.5 here, where 4.38 is accounted."""
    config = method_settings()["batch_clipping"].model_validate(
        {**SETTINGS, "sampling": "poisson", "mini_set": 1}
    )
    scores = mechanism.audit_singles(config, 64, 16, "right", "grid")
    assert bounds.by_one_run_curve(scores.without, scores.within, 0.01, scores.delta) < 4.38
