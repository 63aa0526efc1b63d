"""What is measured: networks with the method that trains them, on made-up examples."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.methods.base import Execution, Method, Task
from pipeline.methods.registry import build_method, build_net
from pipeline.methods.rooms import method_settings
from pipeline.models.model import Model
from pipeline.privacy.randomness import Streams

CLASSES = 10
EXAMPLES, PUBLIC = 20_000, 128  # as many as make drawing a sample and looking it up cost what they do
MNIST, CIFAR, TEXTS = (1, 28, 28), (3, 32, 32), (64, 5000)  # a text's tokens, and words there are


@dataclass(frozen=True)
class Case:
    """A network, its method's settings, and the batch sizes to measure."""

    name: str
    model: dict[str, Any]
    stored: tuple[int, ...]  # shape of an example as stored
    method: str
    batches: tuple[int, ...]
    short: tuple[int, ...]  # those of a short run
    settings: dict[str, Any] = field(default_factory=dict)
    replicas: tuple[int, ...] = (1,)  # of ours, each number of them a line of its own
    clips_whole_batch: bool = (
        False  # whether the gradient of a whole batch is clipped: then there is one way to take it
    )

    @property
    def copies(self) -> int:
        """K: augmented copies of an example, whose gradients are averaged before clipping."""
        return int(self.settings.get("copies", 1))

    @property
    def net(self) -> nn.Module:
        """Fresh weights, always the same."""
        torch.manual_seed(0)
        return build_net(Model.model_validate(self.model), self.shape, CLASSES)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one of the network's inputs, padded where the settings say so."""
        side = self.settings.get("side")
        return self.stored if side is None else (self.stored[0], side, side)

    def examples(self, count: int) -> tuple[Tensor, Tensor]:
        """Inputs as the network sees them, and labels."""
        stored, labels = self.data(count)
        if stored.dtype == torch.uint8:
            return torch.rand(count, *self.shape), labels
        return stored, labels

    def data(self, count: int) -> tuple[Tensor, Tensor]:
        """Inputs as stored, and labels."""
        generator = torch.Generator().manual_seed(1)
        labels = torch.randint(CLASSES, (count,), generator=generator)
        if len(self.stored) == 3:
            return torch.randint(256, (count, *self.stored), dtype=torch.uint8, generator=generator), labels
        length, words = self.stored
        return torch.randint(1, words, (count, length), dtype=torch.int32, generator=generator), labels

    def trainer(self, batch: int, replicas: int, execution: Execution) -> Method:
        """The method that trains so many replicas of the network."""
        values = {"batch": batch, "learning_rate": 0.01, **_LENGTH[self.method], **self.settings}
        settings = method_settings()[self.method].model_validate(values)
        device = execution.device
        net = self.net.to(device)
        inputs, labels = (part.to(device) for part in self.data(EXAMPLES))
        task = Task(
            net=net,
            parameters={
                name: value.detach().expand(replicas, *value.shape).clone()
                for name, value in net.named_parameters()
            },
            inputs=inputs,
            labels=labels,
            public=inputs[:PUBLIC],
            public_labels=labels[:PUBLIC],
            streams=Streams([f"replica {number}" for number in range(replicas)], False, device),
            execution=execution,
        )
        return build_method(self.method, task, [settings] * replicas, self.model.get("normalization", "none"))


_LENGTH: dict[str, dict[str, Any]] = {
    "dpsgd": {"epochs": 1, "clip": 1.0, "epsilon": 3.0, "delta": 1e-6},
    "tan": {"steps": 1000, "sigma": 1.0, "clip": 1.0},
    "batch_clipping": {"epochs": 1, "clipping": "adaptive", "sigma": 0.1, "clip": 0.1},
    "noisy_weights": {"epochs": 1, "sigma": 0.1},
    "ilm": {"epochs": 1, "epsilon": 1.0, "variant": "sound"},
}
_SMALL = (32, 128, 512, 1024)
_WRN = {"name": "wrn16_4", "normalization": "group", "groups": 16, "order": "relu_norm"}
CASES = {
    case.name: case
    for case in (
        Case("lenet5", {"name": "lenet5"}, MNIST, "dpsgd", _SMALL, (128, 512, 1024)),
        Case(
            "lenet5-replicas", {"name": "lenet5"}, MNIST, "dpsgd", (128,), (128,), replicas=(1, 2, 5, 10, 50)
        ),
        Case("lenet5-layer", {"name": "lenet5", "normalization": "layer"}, MNIST, "dpsgd", _SMALL, (1024,)),
        Case(
            "lenet5-public_bn",
            {"name": "lenet5", "normalization": "public_bn"},
            MNIST,
            "dpsgd",
            _SMALL,
            (1024,),
        ),
        Case("lenet-300-100", {"name": "lenet_300_100"}, MNIST, "dpsgd", _SMALL, (128,)),
        Case("lenet-300-100-noisy", {"name": "lenet_300_100"}, MNIST, "noisy_weights", (128,), (128,)),
        Case(
            "lenet5_tanh-bc",
            {"name": "lenet5_tanh", "normalization": "batch_bn", "unnormalized": 2},
            MNIST,
            "batch_clipping",
            (64, 512),
            (64,),
            {"side": 32},
            clips_whole_batch=True,
        ),
        Case("convnet", {"name": "convnet", "normalization": "none"}, CIFAR, "dpsgd", (32, 128, 512), (128,)),
        Case(
            "convnet-bc",
            {"name": "convnet", "normalization": "batch_bn", "unnormalized": 1},
            CIFAR,
            "batch_clipping",
            (64, 512),
            (64,),
            clips_whole_batch=True,
        ),
        Case(
            "resnet18-bc",
            {"name": "resnet18", "normalization": "batch_bn", "unnormalized": 1},
            CIFAR,
            "batch_clipping",
            (32, 64),
            (),
            clips_whole_batch=True,
        ),
        Case(
            "resnet18-ic",
            {"name": "resnet18", "normalization": "group", "groups": 32, "unnormalized": 1},
            CIFAR,
            "batch_clipping",
            (32,),
            (),
            {"mini_set": 1},
        ),
        Case("wrn16_4", _WRN, CIFAR, "tan", (32, 64), (32,)),
        Case("wrn16_4-k4", _WRN, CIFAR, "tan", (32,), (), {"copies": 4, "augment": "crop_flip"}),
        Case("bilstm", {"name": "bilstm"}, TEXTS, "dpsgd", (32, 128), (128,)),
        Case("adlm_cnn", {"name": "adlm_cnn"}, MNIST, "ilm", (128, 512), (128,), clips_whole_batch=True),
    )
}
