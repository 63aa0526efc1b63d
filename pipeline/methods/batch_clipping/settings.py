"""Settings of batch clipping."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from dprepro.accountants.records import SampledGaussian, relation_of, sensitivity
from dprepro.fields import Count, Delta, NotNegative, Positive, Sampling
from dprepro.pipeline.methods.settings import Attack, Circumstances, EpochSettings
from dprepro.pipeline.methods.spending import Sizes, Statement, statement

RUNNING = statement("running_averages")


class BatchClippingSettings(EpochSettings):
    """General Batch Clipping (Nguyen et al. 2023): clipped gradients of mini-sets, layer by layer."""

    method: ClassVar[str] = "batch_clipping"
    trained_by: ClassVar[str] = "method.BatchClipping"
    version: ClassVar[int] = 1
    scales_inputs: ClassVar[bool] = True
    # `batch_bn` uses a mini-set's own statistics in training; at test time, see the setting `statistics`
    normalizations: ClassVar[tuple[str, ...]] = ("none", "layer", "group", "batch_bn")
    axis: ClassVar[str] = "sigma"
    title: ClassVar[str] = "batch or individual clipping (Nguyen et al.)"
    retired: ClassVar[dict[str, Any]] = {
        **{"layers": "tensor", "groups": None, "layer_noise": "equal", "norms": "example"},
        **{"public_examples": None, "momentum": 0.0, "local_steps": 1, "sparsify": None},
        "averaging": 0.1,
    }
    suggested_defaults: ClassVar[dict[str, Any]] = {
        **{"epochs": 8, "learning_rate": 0.1},
        **{"clipping": "full", "clip": 0.2},
    }

    rate_decay: Annotated[float, Field(gt=0, le=1)] = 1.0  # factor of the learning rate per epoch
    # What is clipped, and to which bound (sections 3.2 and 3.3). 'full': the whole gradient to C. 'adaptive':
    # each trained tensor h, called a layer, to C e_h / max e; e_h is the norm of its gradient, averaged over
    # the examples of D_pub. 'zhang': each layer to e_h; C has no effect. 'none': plain SGD.
    clipping: Literal["none", "full", "adaptive", "zhang"]
    clip: Positive = 0.095  # C, the master clipping constant
    clip_decay: Annotated[float, Field(gt=0, le=1)] = 1.0  # factor of C per epoch
    sigma: NotNegative = 0.0  # noise has std 2 C_h sigma
    # s: number of examples of a mini-set. None: the whole batch (BC); 1: each example is a set (IC)
    mini_set: Count | None = None
    sampling: Sampling = "fixed"  # 'poisson' and 'allocation' for single examples (IC) only
    participations: Count = 1  # 'allocation' only: batches of an epoch with a given example
    note_norms: bool = False  # whether the history gets e_h of every layer
    augment: Literal["none", "crop_flip"] = "none"  # of training images
    side: Count | None = None  # side of training crops and of test images; None: as stored
    # Statistics of batch_bn at test time. 'public': those of D_pub. 'running': running averages over
    # mini-sets, as in the paper; no noise protects them.
    statistics: Literal["public", "running"] = "public"
    delta: Delta = 1e-5

    @property
    def attack(self) -> Attack:
        """Attack 'canaries' on single examples of a Poisson or allocated batch; otherwise 'crowd'.

        In such batches neighbours add or remove one example. This moves a sum half as far as the attack
        'crowd', which reverses one clipped vector.
        """
        return "canaries" if self.add_or_remove else "crowd"

    def shortened(self, batch: int, steps: int) -> Self:
        """Settings for an audit on small batches; samplings 'shuffled' and 'replacement' become 'fixed'."""
        changes: dict[str, Any] = {} if self.add_or_remove else {"sampling": "fixed"}
        if self.mini_set is not None:
            changes["mini_set"] = min(self.mini_set, batch)
        return super().shortened(batch, steps).changed(changes)

    def for_audit(self, images: bool) -> Self:
        """Settings without augmentation or noted norms; for canaries also no crops or running averages."""
        plain: dict[str, Any] = {"augment": "none", "note_norms": False}
        return self.changed({**plain, **({} if images else {"side": None, "statistics": "public"})})

    @property
    def layerwise(self) -> bool:
        """Return whether each layer is clipped and noised separately."""
        return self.clipping in ("adaptive", "zhang")

    @property
    def uses_network(self) -> bool:
        """Return whether the spending depends on the number of layers."""
        return self.private and self.layerwise

    @property
    def distance(self) -> float:
        """Largest distance between the sums of neighbouring data sets, in units of the clipping bound."""
        return sensitivity(relation_of(self.drawn), shared=self.set_size > 1)

    def parts(self, sizes: Sizes) -> int:
        """Number L of separately clipped parts: 1, or the number of layers if clipping is layerwise."""
        if not self.layerwise:
            return 1
        assert sizes.network is not None, "measured where the settings use it"
        return sizes.network.tensors

    def spending(self, sizes: Sizes) -> SampledGaussian:
        """Spending of a step with L `parts` (section 3.2).

        Part h is clipped to C_h, and its noise has standard deviation 2 C_h sigma.
        """
        return SampledGaussian(
            sampling=self.sampling,
            noise_multiplier=2 * self.sigma / (self.distance * self.parts(sizes) ** 0.5),
            examples=sizes.examples,
            batch=self.batch,
            sets=self.sets,
            participations=self.participations,
        )

    @property
    def claim(self) -> tuple[float, str]:
        """Delta and accountant of the claimed epsilon: the paper's central limit theorem (section B.1)."""
        return self.delta, "clt"

    def broken(self, normalization: str) -> tuple[Statement, ...]:
        """Statement that the model has running averages of statistics without noise; empty if it hasn't."""
        return (RUNNING,) if normalization == "batch_bn" and self.statistics == "running" else ()

    @property
    def private(self) -> bool:
        """Return whether gradients are clipped and noised."""
        return self.clipping != "none" and self.sigma > 0

    @property
    def set_size(self) -> int:
        """Number s of examples of a mini-set."""
        return self.mini_set or self.batch

    @property
    def sets(self) -> int:
        """Number k of mini-sets of a batch."""
        return self.batch // self.set_size

    def rate_at(self, step: int, steps: int) -> float:
        """Learning rate of step ``step`` (from 0) of ``steps`` steps."""
        return super().rate_at(step, steps) * self.rate_decay ** self.epoch_at(step, steps)

    def clip_at(self, step: int, steps: int) -> float:
        """Clipping constant C of step ``step`` (from 0) of ``steps`` steps."""
        return self.clip * self.clip_decay ** self.epoch_at(step, steps)

    def input_shape(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the network's inputs for examples of shape ``stored``."""
        return stored if self.side is None else (stored[0], self.side, self.side)

    def needs_public(self, normalization: str) -> bool:
        """Return True: public examples set the scale of the inputs."""
        return True

    def problem(self, circumstances: Circumstances) -> str | None:
        """Reason why the settings don't fit the row, as 'key of the row: reason'; None if they fit."""
        if self.batch % self.set_size:
            return (
                f"settings.mini_set: {self.mini_set} does not divide the batch; allowed: divisors of "
                f"{self.batch}"
            )
        if self.add_or_remove and (self.set_size > 1 or circumstances.normalization == "batch_bn"):
            return (
                f"settings.sampling: {self.sampling!r} makes batches of random size, which don't divide into "
                "mini-sets; allowed: 'fixed', 'replacement', 'shuffled', or 'mini_set: 1' without batch norm"
            )
        if self.clipping == "none" and self.sigma > 0:
            return (
                f"settings.sigma: {self.sigma} without clipping protects nothing; allowed: 0 with 'clipping: "
                "none'"
            )
        if self.clipping in ("none", "zhang") and self.clip_decay < 1:
            return (
                f"settings.clip_decay: {self.clip_decay} has no effect with 'clipping: {self.clipping}'; "
                "allowed: 1"
            )
        if not circumstances.one_set:  # labels of public and private examples must mean the same
            return (
                f"data: {circumstances.data!r} has a public split of {circumstances.public_raw!r}; "
                f"{self.method!r} needs one of {circumstances.raw!r} itself"
            )
        if circumstances.no_images and self.side is not None:
            return (
                f"settings.side: is for images, and {circumstances.data!r} has {circumstances.no_images}; "
                "allowed: null"
            )
        return super().problem(circumstances)
