"""Write golden values anew: `python -m tests.golden METHOD...`; `all` for every method."""

import sys
from pathlib import Path

import torch

from pipeline import params
from pipeline.methods.rooms import method_settings
from tests.golden.steps import kinds
from tests.golden.values import path_of, record, write


def main(asked: list[str]) -> None:
    """Write the files of the methods that are ``asked`` for."""
    methods = list(method_settings()) if asked == ["all"] else asked
    if not methods or (unknown := set(methods) - method_settings().keys()):
        wrong = f"{', '.join(sorted(unknown))}: no method; " if methods else ""
        sys.exit(f"python -m tests.golden: {wrong}allowed: all, {', '.join(method_settings())}")
    torch.set_num_threads(1)
    settings = params.load(Path(__file__).parents[2] / "params.yaml")
    for method in methods:
        named = kinds(settings).get(method, {})
        write(method, {name: record(kind, settings) for name, kind in sorted(named.items())})
        print(f"{path_of(method)}: {len(named)} kinds of replicas")


if __name__ == "__main__":
    main(sys.argv[1:])
