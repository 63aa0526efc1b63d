"""Settings of a model: its architecture and normalisation."""

import ast
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from dprepro.errors import UserError, shown
from dprepro.fields import Count, Positive, Strict, omitted
from dprepro.pipeline.extensions import cached, extensions


@cached
def architectures() -> dict[str, dict[str, ast.expr | None]]:
    """Available models, each with the names that its file defines. A file with a `build` function is a model.

    The files are parsed, not imported, so that params.yaml needs no torch. Constants come with their value,
    functions with None. `ORDERED` is a model's second order of normalisation and activation, a value of
    `Model.order`. `FEATURES` marks a model that can be built without its frozen part; its value is the number
    of inputs of the other part.
    """
    definitions = {name: _defined(part.path) for name, part in extensions("models").items()}
    return {name: names for name, names in definitions.items() if "build" in names}


def version(name: str) -> int:
    """Version of a model's numbers: the constant `VERSION` of its file; 1 without this constant.

    Raises:
        UserError: `VERSION` is no whole number above 0.
    """
    if (value := architectures()[name].get("VERSION")) is None:
        return 1
    declared = getattr(value, "value", None)
    if type(declared) is not int or declared < 1:
        path = extensions("models")[name].path
        raise UserError(f"{path}: VERSION: {ast.unparse(value)}; allowed: a whole number above 0")
    return declared


def _defined(path: Path) -> dict[str, ast.expr | None]:
    names: dict[str, ast.expr | None] = {}
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError) as problem:
        line = f"line {problem.lineno}: " if isinstance(problem, SyntaxError) and problem.lineno else ""
        raise UserError(f"{path}: {line}{getattr(problem, 'msg', problem)}; needed: Python") from None
    for node in body:
        if isinstance(node, ast.FunctionDef):
            names[node.name] = None
        elif isinstance(node, ast.Assign):
            names |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = node.value
    return names


def _inside(path: str) -> str:
    parts = PurePosixPath(path)
    if not parts.parts or parts.is_absolute() or ".." in parts.parts:
        raise ValueError(f"{shown(path)} leads outside this folder; allowed: a path below params.yaml")
    return path


Below = Annotated[str, AfterValidator(_inside)]  # a path below the folder of params.yaml
Digest = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]
Side = Annotated[int, Field(ge=1, le=4096, strict=True)]
Three = tuple[float, float, float]


class PublicWeights(Strict):
    """Network of torchvision with public weights."""

    architecture: str  # a classifier's name in torchvision.models
    weights: Below  # a safetensors file, or a state dict of `torch.save`
    digest: Digest
    source: str  # where the weights come from
    licence: str
    trained_on: str  # the data, taken as public
    size: Side = 224  # pixels that images are scaled to
    mean: Three = (0.485, 0.456, 0.406)  # of images, for normalisation; ImageNet's, as in torchvision
    std: Three = (0.229, 0.224, 0.225)

    @property
    def words(self) -> str:
        """Architecture and training data, for ledgers."""
        return f"{self.architecture}, trained on {self.trained_on}"


class Model(Strict):
    """Architecture, named by its file, and its normalisation."""

    name: str
    # All kinds of batch norm are the same layer; the name says where its statistics come from. A method's
    # settings list the kinds that it can train.
    normalization: Annotated[str, Field(pattern=r"^(none|layer|group|response|[a-z]+_bn)$")] = "none"
    groups: Count = 1  # of group normalisation
    epsilon: Positive = 1e-5  # added to variances
    # Number of the last trainable layers without normalisation. 0: all have one (the papers' 'BN-', 'LN-');
    # 1: all but the output layer, as usual in ResNet and VGG; 2: Davody et al.'s '-mod'.
    unnormalized: Annotated[int, Field(ge=0, strict=True)] = 0
    # 'linear': layers before the first linear one keep their public pretrained weights
    trainable: Literal["all", "linear"] = "all"
    # The default is each model's own order. 'relu_norm': CONV-ReLU-GN instead of CONV-GN-ReLU (Sander et al.
    # 2022, section 4.4). 'norm_activation': before the activation instead of after it (Nguyen et al. 2023)
    order: Literal["norm_relu", "relu_norm", "norm_activation"] = "norm_relu"
    hidden: tuple[Count, ...] = ()  # sizes of the hidden layers, of models with `HIDDEN_SIZES`; (): its own
    # for the model 'pretrained' only: public weights; rank of the adapters, None: trained as a whole
    network: PublicWeights | None = omitted(None)
    rank: Count | None = omitted(None)

    @model_validator(mode="after")
    def _check_known(self) -> "Model":
        models = architectures()
        if self.name not in models:
            raise ValueError(f"no model {self.name!r}; allowed: {', '.join(models)}")
        orders = {name: getattr(defined.get("ORDERED"), "value", None) for name, defined in models.items()}
        if self.order not in ("norm_relu", orders[self.name]):
            ordered = [name for name, order in orders.items() if order == self.order]
            raise ValueError(f"order: {self.order!r} is for {', '.join(ordered)}; allowed: 'norm_relu'")
        sized = [name for name, defined in models.items() if "HIDDEN_SIZES" in defined]
        if self.hidden and self.name not in sized:
            raise ValueError(f"hidden: is for {', '.join(sized)}; allowed: none for {self.name}")
        pretrained = self.name == "pretrained"
        if (self.network is not None) != pretrained:
            raise ValueError(f"network: model {self.name!r} {'needs one' if pretrained else 'takes none'}")
        if not pretrained and self.rank is not None:
            raise ValueError("rank: is for pretrained")
        if pretrained and self.normalization != "none":
            raise ValueError(f"normalization: {self.normalization!r}; allowed for pretrained: 'none'")
        return self

    @property
    def essence(self) -> dict[str, Any]:
        """Settings that differ from their defaults; public weights by their digest, without their path."""
        left_out: Any = None if self.network is None else {"network": {"weights"}}
        return self.model_dump(mode="json", exclude_defaults=True, exclude=left_out)

    @property
    def described(self) -> dict[str, Any]:
        """All settings; sizes of hidden layers as the network has them, and left out if it takes none."""
        settings = self.model_dump(mode="json")
        sizes = architectures()[self.name].get("HIDDEN_SIZES")
        if sizes is None:
            del settings["hidden"]
        elif not self.hidden:
            settings["hidden"] = [*ast.literal_eval(sizes)]
        return settings

    @property
    def ignored(self) -> str | None:
        """First setting of the normalisation that is not at its default and has no effect; None without one.

        Rows of params.yaml can't have such a setting.
        """
        without = {"groups": self.normalization != "group"}
        without["epsilon"] = self.normalization in ("none", "response")
        without |= dict.fromkeys(("unnormalized", "order"), self.normalization == "none")
        return next((name for name, ignored in without.items() if ignored and name in self.essence), None)

    @property
    def features_shape(self) -> tuple[int, ...]:
        """Shape (F,) of the features before the network's linear layers; imports the model, and torch."""
        return (extensions("models")[self.name].load().FEATURES,)

    def differing(self, other: "Model") -> str | None:
        """First setting that makes outputs of two models with the same weights differ; None without one.

        Kinds of batch norm are the same layer; they differ only in the source of its statistics.
        """
        for key in ("name", "normalization", "groups", "epsilon", "unnormalized", "order", "hidden"):
            value, other_value = getattr(self, key), getattr(other, key)
            batch_norms = key == "normalization" and value.endswith("_bn") and other_value.endswith("_bn")
            if value != other_value and not batch_norms:
                return key
        return None
