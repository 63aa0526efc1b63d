"""Fields of a privacy statement; `pipeline.export.privacy_statement` fills and renders it."""

from dprepro.fields import NotNegative, Probability, Strict
from dprepro.pipeline.results.schema import Versions


class PrivacyStatement(Strict):
    """Privacy statement of one training run; epsilons are upper bounds unless a field says otherwise."""

    data: str  # name of the data set and numbers of examples
    weights: str  # digest of the exported weights
    verdict: str
    why: str | None  # reason, if the verdict is 'none' or 'bad'
    unit: str
    neighbouring: str
    epsilon: NotNegative | None  # proven upper bound; None: nothing is proven
    delta: Probability | None
    accountant: str | None  # accountant of `epsilon`, with its version
    claimed: NotNegative | None
    claimed_by: str | None
    at_least: NotNegative | None  # lower bound: epsilon on the pair of data sets that `at_least_on` names
    at_least_on: str | None
    audited: NotNegative | None  # lower bound by attacks on the whole mechanism that assume nothing
    audits: tuple[str, ...]  # every attack in words
    mechanism: str | None  # mechanism as run, in the words of dp-accounting
    noise_multiplier: NotNegative | None
    sampling_rate: Probability | None
    steps: int
    protects: str | None  # scope of the protection, if the unit alone doesn't give it
    covered: str
    limits: tuple[str, ...]  # those of `not_covered` that may reveal something about an example
    not_covered: tuple[str, ...]  # uses of private data in this folder that epsilon doesn't cover
    not_covered_of_records: tuple[str, ...] = ()  # further such uses, visible in the laboratory's records
    declared_public: tuple[str, ...] = ()  # data that params.yaml declares public
    composition: str | None  # total spending of this row's trainings and search
    data_budget: str | None = None  # epsilon of everything trained on the private data set; None: public data
    examples_stated: bool = True  # False: a declared number is in place of the number of training examples
    attack_risk: str | None = None  # success of the best membership attack, in words
    gaussian_dp: str | None = None  # mu with its regret and cut-off
    delta_remark: str | None = None  # remark if delta is above 1 / (10 N)
    assumptions: tuple[str, ...]
    versions: Versions  # versions of the accountants
