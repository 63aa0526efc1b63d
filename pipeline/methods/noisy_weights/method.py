"""Training with noise on the weights (Davody et al. 2020, section 2): a study of robustness, not of privacy.

Every weight is drawn from N(mu, sigma^2) anew in each forward pass, in training and at test time. Adam learns
mu by reparametrisation; sigma is fixed. Weights with noise are matrices and kernels. Biases, the gains and
shifts of normalisation, and the rows of an embedding table, which are a text's inputs, have no noise.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from dprepro.clipping.functional import Tensors
from dprepro.clipping.normalization import initial_statistics, measured, measuring
from dprepro.noise.streams import Streams
from dprepro.pipeline.methods.augment import crop_flip
from dprepro.pipeline.methods.base import Method, Predict, State, Task, as_input, float32, gradient
from dprepro.pipeline.methods.noisy_weights.settings import NoisyWeightsSettings
from dprepro.pipeline.methods.optimizers import Adam

AVERAGING = 0.1  # alpha of Eqs. 9 and 10: share of a batch's own statistics in the running averages
MEASURED = 1000  # number of training examples on which a draw's statistics are measured


class NoisyWeights(Method):
    """Adam on noisy weights."""

    settings: NoisyWeightsSettings

    def __init__(self, task: Task, settings: NoisyWeightsSettings, normalization: str):
        """Take the task, the training's settings and the normalisation of the task's network."""
        super().__init__(task, settings, normalization)
        self.test_draws = settings.draws
        self.optimizer = Adam()
        self.remeasured = normalization == "running_bn" and settings.statistics == "draw"
        self.noisy = noisy_names(task.net)
        # tensors that f(lambda theta) of section 2 multiplies: noisy matrices, and the biases of their layers
        self.scaled = [name for name in task.parameters if f"{name.rpartition('.')[0]}.weight" in self.noisy]
        # noise at test time is not for privacy, so it is seeded: equal in all evaluations on one kind of
        # device
        self.test_streams = Streams(task.streams.name, True, task.execution.device)

    def init(self) -> State:
        """Initial means mu, zero moments of Adam, and running averages with mean 0 and variance 1."""
        return {**self.optimizer.start(self.task.parameters), "running": initial_statistics(self.task.net)}

    def step(self, state: State, step: int) -> tuple[State, Tensors]:
        """Make one step of Adam on a batch, under fresh noise."""
        streams, batch = self.task.streams, self.settings.batch
        chosen = streams.shuffled(step, self.examples, batch)
        inputs, labels = self.task.inputs[chosen], self.task.labels[chosen]
        if self.settings.augment == "crop_flip":
            inputs = crop_flip(inputs, streams.uniform(step, 3 * batch, "augment"))
        weights = self._add_noise(state["parameters"], streams.normal(step, self._size))
        # d weights / d mu = 1: the gradient at the noisy weights is the gradient of mu
        gradients, (loss, batch_statistics) = gradient(
            self._loss, self.task.net, weights, as_input(inputs), labels
        )
        running = {
            name: value + AVERAGING * (batch_statistics[name] - value)
            for name, value in state["running"].items()
        }
        updated = self.optimizer.update(state, gradients, self.rate(step), step)
        return {**updated, "running": running}, {"train_loss": loss}

    def network(self, model: Tensors, draw: int) -> Tensors:
        """Tensors with noisy weights, by noise number ``draw``, and batch norm's statistics for them."""
        return self._draw_network(model, draw, scale=1.0)

    def variants(self, model: Tensors) -> dict[str, Predict]:
        """A predictor 'scale_L' for each L of `scales`: L times the first noisy weights and their biases."""
        return {
            f"scale_{scale:g}": self.predictor(self._draw_network(model, 0, scale))
            for scale in self.settings.scales
        }

    def _draw_network(self, model: Tensors, draw: int, scale: float) -> Tensors:
        """Tensors with noise number ``draw``; ``scale`` multiplies noisy weights and their layers' biases."""
        noise = self.test_streams.normal(draw, self._size, "test")
        noisy_weights = self._add_noise({name: model[name] for name in self.task.parameters}, noise)
        tensors = {**model, **noisy_weights, **{name: scale * noisy_weights[name] for name in self.scaled}}
        if not self.remeasured:
            return tensors
        return {**tensors, **measured(self.task.net, tensors, as_input(self.task.inputs[:MEASURED]))}

    @property
    def _size(self) -> int:
        return sum(self.task.parameters[name].numel() for name in self.noisy)

    def _add_noise(self, parameters: Tensors, noise: Tensor) -> Tensors:
        """``parameters`` plus sigma times ``noise`` (number of noisy weights,)."""
        noisy_weights = dict(parameters)
        sizes = [parameters[name].numel() for name in self.noisy]
        for name, part in zip(self.noisy, noise.split(sizes), strict=True):
            value = parameters[name]
            # in place, because the noise is not used again
            noisy_weights[name] = part.reshape(value.shape).mul_(float32(self.settings.sigma)).add_(value)
        return noisy_weights

    def _loss(
        self, tensors: Tensors, inputs: Tensor, labels: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensors]]:
        """Mean loss and statistics of a batch that is normalised by these statistics."""
        with measuring(self.task.net) as statistics:
            loss = F.cross_entropy(self.outputs(tensors, inputs), labels)
        return loss, (loss, statistics)


def noisy_names(net: nn.Module) -> list[str]:
    """Names of the weights with noise: matrices and kernels of layers other than embeddings.

    A weight that several layers share has its first name; an embedding table that is also an output matrix
    has noise.
    """
    names = {value: name for name, value in net.named_parameters()}
    noisy = [
        names[value]
        for layer in net.modules()
        if not isinstance(layer, nn.Embedding)
        for value in layer.parameters(recurse=False)
        if value.dim() > 1 and value.requires_grad
    ]
    return list(dict.fromkeys(noisy))
