"""Names in params.yaml to code: a model is the file of its name, a method an entry here."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from torch import nn

from pipeline.errors import UserError
from pipeline.method_settings import MethodSettings
from pipeline.methods.base import Method, Task
from pipeline.methods.batch_clipping.method import BatchClipping
from pipeline.methods.dpsgd.method import Dpsgd
from pipeline.methods.laplace.adlm import Adlm
from pipeline.methods.laplace.ilm import Ilm
from pipeline.methods.noisy_weights.method import NoisyWeights
from pipeline.methods.tan.method import Tan
from pipeline.settings import Model

# each takes a task, the settings of its method for each replica, and the normalisation's name
METHODS: dict[str, Callable[[Task, Sequence[Any], str], Method]] = {
    "adlm": Adlm,
    "batch_clipping": BatchClipping,
    "dpsgd": Dpsgd,
    "ilm": Ilm,
    "noisy_weights": NoisyWeights,
    "tan": Tan,
}


def build_method(name: str, task: Task, settings: Sequence[MethodSettings], normalization: str) -> Method:
    """The method called ``name`` over the task's replicas."""
    return METHODS[name](task, settings, normalization)


def build_net(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network of `pipeline/models/NAME.py` with fresh weights, for inputs of `Prepared.input_shape`.

    Raises:
        UserError: it can't be built for that shape or with those settings.
    """
    try:
        return import_module(f"pipeline.models.{model.name}").build(model, shape, classes)
    except (ValueError, TypeError, RuntimeError) as problem:
        raise UserError(
            f"model {model.name!r} can't be built for inputs of shape {shape}: {problem}"
        ) from problem
