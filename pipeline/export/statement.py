"""Fields of a privacy statement; `pipeline.export.privacy_statement` fills and renders it."""

from pipeline.fields import NotNegative, Strict
from pipeline.results.schema import Probability, Versions


class PrivacyStatement(Strict):
    """Privacy statement of one training run; epsilons are upper bounds unless a field says otherwise."""

    verdict: str
    why: str | None  # where the verdict is none or bad
    unit: str
    neighbouring: str
    epsilon: NotNegative | None  # proven, at most; None: nothing is proven
    delta: Probability | None
    accountant: str | None  # that computed `epsilon`, with its version
    claimed: NotNegative | None
    claimed_by: str | None
    at_least: NotNegative | None  # a lower bound: spent on the pair of data sets that `at_least_on` names
    at_least_on: str | None
    audited: NotNegative | None  # a lower bound: what attacks on the whole mechanism show that assume nothing
    audits: tuple[str, ...]  # every attack in words
    mechanism: str | None  # as run, in the words of dp-accounting
    noise_multiplier: NotNegative | None
    sampling_rate: Probability | None
    steps: int
    protects: str | None  # what of whom, and from whom, where the unit alone does not tell
    covered: str
    not_covered: tuple[str, ...]  # uses of private data outside epsilon, of this folder
    not_covered_of_records: tuple[str, ...] = ()  # further ones, if the laboratory's records are published
    declared_public: tuple[str, ...] = ()  # data that params.yaml declares public
    composition: str | None  # what this row's trainings and search spend in all
    data_budget: str | None = None  # epsilon of everything trained on the private data set; None: public data
    attack_risk: str | None = None  # of the best membership attack, in words
    gaussian_dp: str | None = None  # mu with its regret and cut-off
    delta_remark: str | None = None  # where delta is above 1 / (10 N)
    assumptions: tuple[str, ...]
    versions: Versions  # that accounted for it
