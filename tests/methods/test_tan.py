"""The steps of `tan` against hand-written loops: copies, clipping, noise, average, vote; and neighbours."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from dprepro.pipeline.data.prepared import Prepared
from dprepro.pipeline.methods.augment import crop_flip
from dprepro.pipeline.methods.base import as_input
from dprepro.pipeline.methods.samples import BatchSum, padded
from dprepro.pipeline.methods.spending import NOISELESS
from dprepro.pipeline.methods.tan.method import NORM_EDGES, Tan
from dprepro.pipeline.methods.tan.settings import TanSettings
from dprepro.pipeline.models.model import Model
from tests.methods.conftest import CPU, build, flat, tan

COPIES = 3
AUGMENTED = {"copies": COPIES, "augment": "crop_flip"}


def make(data: Prepared, settings: TanSettings) -> Tan:
    method: Tan = build(data, Model(name="lenet5", normalization="group", groups=2), settings)
    return method


def run(method: Tan, steps: int) -> tuple[dict[str, dict[str, Tensor]], Mapping[str, Tensor]]:
    state = method.init()
    metrics: Mapping[str, Tensor] = {}
    for step in range(steps):
        state, metrics = method.step(state, step)
    return state, metrics


def scaled(method: Tan, images: Tensor) -> Tensor:
    """To mean 0 and deviation 1 of the public images."""
    public = as_input(method.task.public)
    return (images - public.mean()) / public.std()


def clipped(method: Tan, drawn: np.ndarray, step: int) -> BatchSum:
    """The clipped sums of a sample by the initial weights."""
    sample = padded(drawn, CPU.device)
    return method.clipped_sums(method.init()["parameters"], sample, method.clip_limits, step)


def sample_at(method: Tan, step: int) -> np.ndarray:
    return method.task.streams.poisson(step, 200, 0.1)


def test_without_noise_nothing_is_claimed(tiny: Prepared) -> None:
    guarantee = make(tiny, tan(sigma=0)).guarantee()
    assert (guarantee.spending, guarantee.broken) == (None, (NOISELESS,))


def test_what_is_tested(tiny: Prepared) -> None:
    method = make(tiny, tan(learning_rate=2.0, sigma=0.01, **AUGMENTED))
    state, _ = run(method, 5)
    model, inputs = method.model(state), method.task.inputs[:25]
    ways = method.variants(model)
    assert list(ways) == ["last", "vote"]
    seen = scaled(method, as_input(inputs))

    def classes(weights: dict[str, Tensor], images: Tensor) -> Tensor:
        return functional_call(method.task.net, weights, (images,)).argmax(-1)

    plain, last = method.logits(method.network(model, 0), inputs).argmax(-1), ways["last"](inputs, 0)
    draws = method.test_streams.uniform(0, 25 * COPIES * 3, "test")
    draws = draws.reshape(25, COPIES, 3)
    # the same votes, however the images are cut
    voted = torch.cat([ways["vote"](inputs[:9], 0), ways["vote"](inputs[9:], 9)])
    assert torch.equal(plain, classes(state["average"], seen))
    assert torch.equal(last, classes(state["parameters"], seen))
    for place, image in enumerate(as_input(inputs)):
        copies = crop_flip(image.expand(COPIES, -1, -1, -1), draws[place], padding="reflect")
        ballots = classes(state["average"], scaled(method, copies))
        assert voted[place] == torch.bincount(ballots, minlength=10).argmax()
    other = make(tiny, tan(copies=1, augment="crop_flip"))
    assert list(other.variants(other.model(other.init()))) == ["last"]


def test_the_histogram_counts_every_example_of_the_sample_once(tiny: Prepared) -> None:
    method = make(tiny, tan(note_norms=True, **AUGMENTED))
    sample = sample_at(method, 0)
    batch = clipped(method, sample, 0)
    _, metrics = method.step(method.init(), 0)
    counts, _ = np.histogram(batch.norms[:, 0].numpy(), [*NORM_EDGES, np.inf])
    actual = [metrics[f"gradient_norms/{edge:g}"].item() for edge in NORM_EDGES]
    np.testing.assert_allclose(actual, counts / len(sample), atol=1e-6)
    assert "gradient_norms/0" not in make(tiny, tan()).step(make(tiny, tan()).init(), 0)[1]


def test_padding_leaves_no_trace_in_the_metrics() -> None:
    batch = BatchSum(
        sums={},
        norms=torch.tensor([[1.0], [torch.inf]]),
        losses=torch.tensor([0.5, torch.nan]),
        mask=torch.tensor([1.0, 0.0]),
        limits=torch.tensor([0.4]),
    )
    actual = {name: value.item() for name, value in batch.metrics().items()}
    assert actual == {"train_loss": 0.5, "gradient_norm": 1.0, "clipped_share": 1.0}


def test_an_empty_sample_is_a_step_of_noise(tiny: Prepared) -> None:
    method = make(tiny, tan(batch=1, note_norms=True, **AUGMENTED))
    empty = np.array([], dtype=np.int64)
    sums = clipped(method, empty, 0).sums
    assert flat(sums).abs().max() == 0
    step = next(s for s in range(99) if len(method.task.streams.poisson(s, 200, 1 / 200)) == 0)
    state, metrics = method.step(method.init(), step)
    assert metrics["train_loss"].item() == 0
    assert not torch.equal(flat(state["parameters"]), flat(method.init()["parameters"]))
