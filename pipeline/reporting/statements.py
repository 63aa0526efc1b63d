"""The words of what is said of a guarantee: why it doesn't hold, what it leaves out, whom it protects.

Files keep keys (`pipeline.privacy.statements`), so that a better word reaches every number there ever was.
"""

from collections.abc import Iterable

from pipeline.privacy.statements import Statement

WORDS = {
    # why nothing is spent, or why its epsilon does not hold for what ran
    "noisy_weights": "a study of noisy weights: gradients are neither clipped nor noised, so no privacy",
    "no_clipping_no_noise": "trained without clipping and noise: no privacy",
    "no_noise": "trained without noise: no privacy",
    "seeded": "the noise and the samples were seeded by a public constant, so they protect nobody",
    "joint_statistics": (
        "batch statistics couple the examples: adding one record changes every other record's clipped "
        "gradient, so the sum moves by up to about twice the batch size times C, not by C (Davody et al.,"
        " Algorithm 1)"
    ),
    "noisy_averages": (
        "batch statistics couple the examples: adding one record changes every other record's clipped "
        "gradient and, behind the first layer, their summed inputs; S_mu and S_sigma^2 count its own "
        "alone, and in a sample smaller than the expected batch it weighs more than they say"
    ),
    "running_averages": (
        "batch norm's running averages are part of the model, and are computed from the private mini-sets"
        " without clipping or noise; the epsilon covers the gradients alone"
    ),
    "shared_noise": (
        "the noise on the inputs is one tensor for all examples of a batch: a common shift, under which "
        "they differ as they did, so that nothing bounds what the weights tell of any of them"
    ),
    "exact": "the {quantity} were left without noise",
    "exact_relevances": (
        "the relevances have no noise, and come from a network that was trained on private images"
    ),
    # uses of private data that no epsilon counts
    "search": (
        "hyper-parameter search ({search}): its runs, on the same training data and judged on validation data"
    ),
    "other_choices": "any other choice of model and hyper-parameters, where it looked at these data",
    "curves": (
        "the history's training losses, gradient norms and clipped shares, computed on private data "
        "without noise"
    ),
    "vocabulary": "the vocabulary: its words and their order are counted on the private training texts",
    "own_public": (
        "the public split: {count} examples of the same data set, taken as public: nothing protects them"
    ),
    "public_start": (
        "the weights it starts from, of '{row}' on '{data}': trained without privacy, taken as public"
    ),
    "public_relevance": (
        "the network behind the relevances, of '{row}' on '{data}': trained without privacy, taken as public"
    ),
    "informed_relevance": (
        "the network behind the relevances, of '{row}' on '{data}': trained without privacy on these "
        "private images, so that one of them may move every mean relevance by its whole range"
    ),
    "test_relevance": (
        "{test_examples_seen} test examples, which the network behind the relevances was trained on"
    ),
    "examples_public": "the number of training examples, taken as public: noise and rates are set by it",
    "validation": (
        "the exact validation accuracies of the history and the records, where validation examples are "
        "private too"
    ),
    "all_replicas": (
        "all other seeds and levels of the row: its ε is one training's, and whoever sees the whole row sees "
        "the same examples in each"
    ),
    "passed_over": (
        "which candidates for the public split were passed over, as a private example has the same content"
    ),
    "spans": (
        "the exact span of mean relevances, which only the laboratory sees, and the metrics divided by it"
    ),
    "timing": (
        "how long training took, which grows with the sizes of batches and with how far they are padded"
    ),
    "floating_point": "arithmetic: floating-point noise is taken for real numbers",
    "floating_point_shown": (
        "arithmetic: floating-point noise is taken for real numbers, and which floats it can make told an "
        "attack on one release who is in it"
    ),
    "nothing_to_attack": "nothing is clipped or noised for privacy, so that there is no mechanism to attack",
    # the pair of neighbouring data sets that a lower bound is computed on
    "always_at_full_length": (
        "one record more or less, whose clipped gradient always points the same way at full length"
    ),
    "turns_around": (
        "one record against all others: in each batch it is in, it turns the clipped vector around"
    ),
    "turns_one_batch_of_an_epoch": (
        "one record that turns the clipped vector of one batch of each epoch around; by the largest of what "
        "an epoch releases"
    ),
    "opposites": "a black image of one class against a white one of another",
    # what of whom is protected, and from whom. Not 'from whoever sees the noisy data': those are
    # floating-point numbers, some of which no other image could have become
    "local_at_accounted": (
        "Every image and every label by itself, from whoever sees the model (local differential privacy),"
        " but at the accounted epsilon: 1/|L| of the noise on an example buys |L| times the epsilon."
    ),
    "curated_at_accounted": (
        "Every image and every label by itself, from whoever sees the model (local differential privacy "
        "but for the relevances, which somebody averages who sees every image), but at the accounted "
        "epsilon: 1/|L| of the noise on an example buys |L| times the epsilon."
    ),
    "local_at_claimed": (
        "Every image and every label by itself, from whoever sees the model (local differential privacy),"
        " at the claimed epsilon."
    ),
    "curated_at_claimed": (
        "Every image and every label by itself, from whoever sees the model (local differential privacy "
        "but for the relevances, which somebody averages who sees every image), at the claimed epsilon."
    ),
    "nobody": (
        "Nobody from whoever sees the model: the examples of a batch share one noise, and the weights "
        "learn from them as they are."
    ),
    "nobodys": "Nobody's {quantity} from whoever sees the model: they were left without noise.",
}


def words(statement: Statement) -> str:
    """A statement in words."""
    return WORDS[statement.key].format(**statement.values)


def joined(statements: Iterable[Statement]) -> str | None:
    """Several in one sentence; None of none."""
    return "; ".join(map(words, statements)) or None
