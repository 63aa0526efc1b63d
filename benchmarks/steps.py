"""Cases and contenders of the benchmark: networks, methods on synthetic examples, and libraries."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision import models

from dprepro.clipping.normalization import BatchStatistics
from dprepro.noise.streams import Streams
from dprepro.pipeline.methods.base import Execution, Task, keep_freed
from dprepro.pipeline.methods.settings import method_settings
from dprepro.pipeline.models.adapters import add_adapters
from dprepro.pipeline.models.model import Model
from dprepro.pipeline.models.networks import build_net

Step = Callable[[], None]
CLASSES = 10
EXAMPLES, PUBLIC = 20_000, 128  # enough for realistic costs of drawing a sample and looking it up
MNIST, CIFAR, TEXTS = (1, 28, 28), (3, 32, 32), (64, 5000)  # `TEXTS`: tokens of a text, and words in all
PLAIN, BEST, OURS = "plain SGD", "plain SGD, channels last", "ours"
FLOATS = "ours, float32 noise"  # as in seeded runs, and in all runs before grid noise existed
HOOKS, GHOST = "Opacus, hooks", "Opacus, ghost clipping"
WAYS = (PLAIN, BEST, OURS, FLOATS, HOOKS, GHOST)


@dataclass(frozen=True)
class Case:
    """A network, its method's settings, and the batch sizes to measure."""

    model: dict[str, Any]
    stored: tuple[int, ...]  # shape of an example as stored
    method: str
    batches: tuple[int, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    build: Callable[[], nn.Module] | None = None  # builds a network that is none of the project's models

    @property
    def net(self) -> nn.Module:
        """Network with the same initial weights in each call."""
        torch.manual_seed(0)
        return self.build() if self.build else build_net(Model(**self.model), self.shape, CLASSES)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an input of the network, padded if the settings have a `side`."""
        side = self.settings.get("side")
        return self.stored if side is None else (self.stored[0], side, side)

    def stored_examples(self, count: int) -> tuple[Tensor, Tensor]:
        """Inputs (N, ...) as stored, and labels (N,)."""
        generator = torch.Generator().manual_seed(1)
        labels = torch.randint(CLASSES, (count,), generator=generator)
        if len(self.stored) == 3:
            return torch.randint(256, (count, *self.stored), dtype=torch.uint8, generator=generator), labels
        length, words = self.stored
        return torch.randint(1, words, (count, length), dtype=torch.int32, generator=generator), labels

    def batch(self, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Inputs (B, ...) as the network takes them, and labels (B,)."""
        inputs, labels = self.stored_examples(size)
        seen = torch.rand(size, *self.shape) if inputs.dtype == torch.uint8 else inputs.long()
        return seen.to(device), labels.to(device)


def mlp() -> nn.Module:
    """Perceptron with two wide hidden layers."""
    wide = [nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, CLASSES)]
    return nn.Sequential(nn.Flatten(), *wide)


def frozen_trunk() -> nn.Module:
    """Network of frozen convolutions and two trained layers."""
    trunk = [nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Flatten()]
    head = [nn.Linear(64 * 8 * 8, 256), nn.ReLU(), nn.Linear(256, CLASSES)]
    return nn.Sequential(nn.Sequential(*trunk).requires_grad_(False), *head)


def resnet18(rank: int | None) -> nn.Module:
    """ResNet-18 with frozen batch norm and adapters of ``rank``; None: only the last layer is trained."""
    net = add_adapters(models.resnet18(), rank, CLASSES)
    for layer in net.modules():
        if isinstance(layer, nn.ReLU):
            layer.inplace = False  # for Opacus' hooks
    if rank is None:
        net.requires_grad_(False).get_submodule("fc").requires_grad_(True)
    return net


_DPSGD = {"epochs": 1, "clip": 1.0, "epsilon": 3.0, "delta": 1e-6}
_BATCH_CLIPPING = {"epochs": 1, "clipping": "adaptive", "sigma": 0.1, "clip": 0.1}
_WRN = {"name": "wrn16_4", "normalization": "group", "groups": 16, "order": "relu_norm"}
CASES = {
    "lenet5": Case({"name": "lenet5"}, MNIST, "dpsgd", (128, 512, 1024), _DPSGD),
    "lenet5-layer": Case({"name": "lenet5", "normalization": "layer"}, MNIST, "dpsgd", (1024,), _DPSGD),
    "lenet-300-100": Case({"name": "lenet_300_100"}, MNIST, "dpsgd", (128, 512, 1024), _DPSGD),
    "mlp": Case({}, MNIST, "dpsgd", (256,), _DPSGD, mlp),
    "frozen-trunk": Case({}, CIFAR, "dpsgd", (256,), _DPSGD, frozen_trunk),
    "resnet18-head": Case({}, CIFAR, "dpsgd", (64,), _DPSGD, functools.partial(resnet18, None)),
    "resnet18-lora": Case({}, CIFAR, "dpsgd", (64,), _DPSGD, functools.partial(resnet18, 4)),
    "convnet": Case({"name": "convnet", "normalization": "none"}, CIFAR, "dpsgd", (128,), _DPSGD),
    "wrn16_4": Case(_WRN, CIFAR, "tan", (32,), {"steps": 1000, "sigma": 1.0, "clip": 1.0}),
    "bilstm": Case({"name": "bilstm"}, TEXTS, "dpsgd", (128,), _DPSGD),
    "lenet5_tanh-bc": Case(
        {"name": "lenet5_tanh", "normalization": "batch_bn", "unnormalized": 2},
        MNIST,
        "batch_clipping",
        (64,),
        {"side": 32, **_BATCH_CLIPPING},
    ),
    "convnet-bc": Case(
        {"name": "convnet", "normalization": "batch_bn", "unnormalized": 1},
        CIFAR,
        "batch_clipping",
        (64,),
        _BATCH_CLIPPING,
    ),
}


@dataclass(frozen=True)
class Contender:
    """A way to train a case."""

    case: str
    way: str
    batch: int
    device: str = "cpu"

    @property
    def possible(self) -> bool:
        """Return whether the way can train the case; only plain SGD and ours can do batch clipping."""
        return self.way in (PLAIN, BEST, OURS, FLOATS) or CASES[self.case].method != "batch_clipping"

    def step(self) -> Step:
        """Function that makes one training step per call."""
        case, device = CASES[self.case], torch.device(self.device)
        if self.way in (PLAIN, BEST):
            return _plain(case, self.batch, device, channels_last=self.way == BEST)
        if self.way in (OURS, FLOATS):
            return _ours(case, self.batch, device, floats=self.way == FLOATS)
        return _opacus(case, self.batch, device, ghost=self.way == GHOST)


def _plain(case: Case, batch: int, device: torch.device, channels_last: bool) -> Step:
    """SGD on a given batch, with torch's own layers."""
    net = with_torch_batch_norm(case.net).to(device)
    optimizer = torch.optim.SGD(trained(net), lr=0.01)
    inputs, labels = case.batch(batch, device)
    if channels_last:
        keep_freed()
        net = net.to(memory_format=torch.channels_last)
        if inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.step()

    return step


def trained(net: nn.Module) -> list[nn.Parameter]:
    """Parameters that are not frozen."""
    return [parameter for parameter in net.parameters() if parameter.requires_grad]


def with_torch_batch_norm(net: nn.Module) -> nn.Module:
    """Replace the project's batch norm, which keeps no averages, by that of `torch.nn`."""
    for module in list(net.modules()):
        for name, layer in list(module.named_children()):
            if isinstance(layer, BatchStatistics):
                # for vectors and images, for which torch has two classes
                setattr(module, name, AnyBatchNorm(len(layer.mean), eps=layer.epsilon))
    return net


class AnyBatchNorm(nn.BatchNorm1d):
    """Batch norm of inputs of any shape (B, C, ...)."""

    def _check_input_dim(self, inputs: Tensor) -> None:
        pass


def _ours(case: Case, batch: int, device: torch.device, floats: bool) -> Step:
    """Whole step of the method: sample, look up, clip, add noise, descend."""
    keep_freed()
    on_cpu = device.type == "cpu"  # as in `stages.train.execution`
    execution = Execution(device, 256 if on_cpu else 4096)
    settings = method_settings()[case.method].model_validate(
        {"batch": batch, "learning_rate": 0.01, **case.settings}
    )
    net = case.net.to(device)
    inputs, labels = (part.to(device) for part in case.stored_examples(EXAMPLES))
    task = Task(
        net=net,
        parameters={
            name: value.detach().clone() for name, value in net.named_parameters() if value.requires_grad
        },
        inputs=inputs,
        labels=labels,
        public=inputs[:PUBLIC],
        public_labels=labels[:PUBLIC],
        streams=Streams("benchmark", False, device),
        execution=execution,
    )
    method = settings.build_method(task, case.model.get("normalization", "none"))
    if floats:
        method.task.streams.noise = "float32"
    state, number = method.init(), 0

    def step() -> None:
        nonlocal state, number
        with torch.no_grad():
            state, _ = method.step(state, number)
        number += 1

    return step


def _opacus(case: Case, batch: int, device: torch.device, ghost: bool) -> Step:
    net, loss = case.net.to(device), nn.CrossEntropyLoss()
    settings: Any = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": batch}
    optimizer: DPOptimizer
    inputs, labels = case.batch(batch, device)
    if ghost:
        net = GradSampleModuleFastGradientClipping(net, max_grad_norm=1.0, use_ghost_clipping=True)
        optimizer = DPOptimizerFastGradientClipping(torch.optim.SGD(trained(net), lr=0.01), **settings)
        loss = DPLossFastGradientClipping(net, optimizer, loss)
    else:
        net = GradSampleModule(net)
        optimizer = DPOptimizer(torch.optim.SGD(trained(net), lr=0.01), **settings)

    def step() -> None:
        optimizer.zero_grad()
        loss(net(inputs), labels).backward()
        optimizer.step()

    return step
