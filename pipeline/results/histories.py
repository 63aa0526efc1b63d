"""Training curves against measured accuracies."""

from math import isclose

from dprepro.pipeline.results.schema import EvaluationRecord, TrainingRecord

ACCURACY = "validation_accuracy"
# Largest difference between a curve's end and the measured accuracy of the same weights, by rounding on two
# machines, or if each test draws new noise
ROUNDING, REDRAWN = 1e-3, 0.1


def curve_difference(measured: EvaluationRecord, trained: TrainingRecord) -> str | None:
    """Message on a difference between a training's measured validation accuracy and its curve's last value.

    Both are for the same weights and examples. None: the two values agree, or there is no curve.
    """
    value, curve = measured.metrics.get(ACCURACY), trained.curves.get(ACCURACY)
    if not curve:
        return None
    if value is None:
        return f"{ACCURACY} is missing"
    *_, end = curve[-1]
    tolerance = REDRAWN if "test_accuracy_draws_std" in measured.metrics else ROUNDING
    return (
        None
        if isclose(value, end, abs_tol=tolerance)
        else (f"{ACCURACY} is {value:g}, and its training curve ends at {end:g}")
    )
