"""Names in params.yaml to code, imported by name so that nothing here reaches one method or model."""

from collections.abc import Sequence
from importlib import import_module

from torch import nn
from torch.nn.parameter import is_lazy

from pipeline.errors import UserError
from pipeline.extensions import extensions
from pipeline.methods.base import Method, Task
from pipeline.methods.rooms import implementation
from pipeline.methods.settings import MethodSettings
from pipeline.models.model import Model


def build_method(name: str, task: Task, settings: Sequence[MethodSettings], normalization: str) -> Method:
    """The method called ``name`` over the task's replicas."""
    module, method = implementation(name)
    built: Method = getattr(import_module(module), method)(task, settings, normalization)
    return built


def build_net(model: Model, shape: tuple[int, ...], classes: int) -> nn.Module:
    """The network of the model's file with fresh weights, for inputs of `Prepared.input_shape`.

    Raises:
        UserError: it can't be built for that shape or with those settings.
    """
    try:
        built: nn.Module = extensions("models")[model.name].load().build(model, shape, classes)
    except (ValueError, TypeError, RuntimeError) as problem:
        raise UserError(
            f"model {model.name!r} can't be built for inputs of shape {shape}: {problem}"
        ) from problem
    # noise and clipping need to know every weight
    if lazy := next((name for name, value in built.named_parameters() if is_lazy(value)), None):
        raise UserError(
            f"model {model.name!r}: {lazy}: has no size before data pass through it; allowed: layers with "
            "sizes, from the shape that `build` is told"
        )
    return built
