"""The only reader of params.yaml.

YAML is read as version 1.2, as in DVC: ``1e-5`` is a number and ``no`` is a string.
"""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from dprepro.checking import problem_lines
from dprepro.errors import UserError, reading, shown
from dprepro.pipeline.extensions import use
from dprepro.pipeline.params.checks import check_all
from dprepro.pipeline.params.documents import read_yaml
from dprepro.pipeline.params.settings import PARAMS, Packages, Settings


class _Code(BaseModel):
    """The section `code` of params.yaml, a laboratory's packages, which is needed before other sections."""

    code: Packages = ()


def load(path: Path = PARAMS) -> Settings:
    """Read and check params.yaml.

    Raises:
        UserError: the file is invalid. The message has a line per problem: file, key, value, allowed values.
    """
    return parse(_read(path), path)


def use_code(path: Path = PARAMS) -> None:
    """Register a laboratory's own packages, even if other parts of params.yaml are invalid.

    Raises:
        UserError: the file can't be read, or a package is missing.
    """
    raw = _read(path)
    code = raw.get("code", ()) if isinstance(raw, dict) else ()
    parse({"code": code, "raw": {}, "data": {}, "rows": {}}, path)


def _read(path: Path) -> Any:
    with reading(path, "run this in the folder that holds params.yaml"):
        return read_yaml(path)


def parse(raw: Any, path: Path = PARAMS, complete: bool = True) -> Settings:
    """Check the content of params.yaml. ``complete``: whether to compare its entries with each other.

    Raises:
        UserError: the content is invalid. The message has a line per problem.
    """
    if not isinstance(raw, dict):
        has = "is empty" if raw is None else f"has {shown(raw)}"
        raise UserError(
            f"{path}: {has}; allowed: keys such as raw, data and rows (`dprepro init` writes some)"
        )
    try:
        use(_Code.model_validate(raw).code, path.parent)
        settings = Settings.model_validate(raw)
        if complete:
            check_all(settings)
    except ValidationError as problem:
        raise UserError(
            "\n".join(f"{path}: {line}" for line in problem_lines(problem, Settings))
        ) from problem
    except ValueError as problem:
        raise UserError(f"{path}: {problem}") from problem
    return settings
