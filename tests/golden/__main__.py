"""Golden values: `python -m tests.golden METHOD...` writes them anew, `... check METHOD...` compares.

`all` stands for every method. Checking takes the instructions and the threads that the environment allows, as
`ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=4` does.
"""

import sys

from dprepro.pipeline.methods.settings import method_settings
from tests.golden.steps import kinds
from tests.golden.values import path_of, problem, record, write
from tests.paper_rows import paper_rows


def main(asked: list[str]) -> None:
    """Write or check the files of the methods that are ``asked`` for."""
    checking = asked[:1] == ["check"]
    asked = asked[checking:]
    methods = list(method_settings()) if asked == ["all"] else asked
    if not methods or (unknown := set(methods) - method_settings().keys()):
        wrong = f"{', '.join(sorted(unknown))}: no method; " if methods else ""
        sys.exit(f"python -m tests.golden: {wrong}allowed: all, {', '.join(method_settings())}")
    settings = paper_rows()
    problems: list[str] = []
    for method in methods:
        named = kinds(settings).get(method, {})
        if checking:
            problems += [line for kind in named.values() if (line := problem(kind, settings))]
        else:
            write(method, {name: record(kind, settings) for name, kind in sorted(named.items())})
        print(f"{path_of(method)}: {len(named)} kinds of trainings", flush=True)
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main(sys.argv[1:])
