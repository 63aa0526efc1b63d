"""Scores of predictions besides accuracy, by scikit-learn: of class probabilities, or of numbers."""

import numpy as np

from dprepro.pipeline.results.schema import Errors, Scores

BINS = 15  # bins of the calibration error, as in Guo et al. 2017
CONFUSED = 100  # largest number of classes of a confusion matrix


def scores(probabilities: np.ndarray, labels: np.ndarray) -> Scores:
    """Scores of (N, K) probabilities for the true classes (N,).

    A score is None if the probabilities aren't finite, or if it is undefined because a class has no examples.
    Means over classes leave out classes without a score.
    """
    from sklearn import metrics

    # in float32, an example's probabilities sum to one only up to rounding
    probabilities = probabilities.astype(np.float64) / probabilities.sum(1, keepdims=True, dtype=np.float64)
    classes = range(probabilities.shape[1])
    predicted = probabilities.argmax(1)
    matrix = metrics.confusion_matrix(labels, predicted, labels=classes)
    counts, right = matrix.sum(1), matrix.diagonal()
    f1 = metrics.f1_score(labels, predicted, labels=classes, average="macro", zero_division=np.nan)
    finite = bool(np.isfinite(probabilities).all())
    apart = [number for number in classes if 0 < counts[number] < len(labels)]
    areas = [metrics.roc_auc_score(labels == number, probabilities[:, number]) for number in apart if finite]
    return Scores(
        auc=float(np.mean(areas)) if areas else None,
        f1=float(f1),
        log_loss=float(metrics.log_loss(labels, probabilities, labels=classes)) if finite else None,
        calibration_error=calibration_error(probabilities, labels) if finite else None,
        recall=tuple(float(hit / count) if count else None for hit, count in zip(right, counts, strict=True)),
        confusion=tuple(map(tuple, matrix.tolist())) if len(classes) <= CONFUSED else None,
    )


def errors(predicted: np.ndarray, targets: np.ndarray) -> Errors:
    """Errors of (N,) predicted numbers; R2 is None if all ``targets`` are equal."""
    from sklearn import metrics

    return Errors(
        rmse=float(metrics.root_mean_squared_error(targets, predicted)),
        mae=float(metrics.mean_absolute_error(targets, predicted)),
        r2=float(metrics.r2_score(targets, predicted)) if len(set(targets.tolist())) > 1 else None,
    )


def calibration_error(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Expected calibration error of the predicted classes (Guo et al. 2017), over bins of equal width."""
    confidence = probabilities.max(1)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, weights=confidence - (probabilities.argmax(1) == labels), minlength=BINS)
    return float(np.abs(gaps).sum() / len(labels))
