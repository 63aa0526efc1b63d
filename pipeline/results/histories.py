"""Training curves against measured accuracies."""

from math import isclose

from dprepro.pipeline.results.schema import EvaluationRecord, TrainingRecord

ACCURACY = "validation_accuracy"
# Largest difference between a curve's end and the measured accuracy of the same weights, by rounding on two
# machines, or if each test draws new noise
ROUNDING, REDRAWN = 1e-3, 0.1


def curve_difference(measured: EvaluationRecord, trained: TrainingRecord) -> str | None:
    """Message on a difference between a replica's measured validation accuracy and its curve's last value.

    Both are for the same weights and examples. None: the two values agree, or one is missing.
    """
    value, curve = measured.metrics.get(ACCURACY), trained.curves.get(ACCURACY)
    if value is None or not curve:
        return None
    *_, end = curve[-1]
    tolerance = REDRAWN if "test_accuracy_draws_std" in measured.metrics else ROUNDING
    return (
        None
        if isclose(value, end, abs_tol=tolerance)
        else (f"{ACCURACY} is {value:g}, and its training curve ends at {end:g}")
    )
