"""`dprepro equivalence [ROW...]`."""

from typing import Annotated

import typer


def equivalence(
    rows: Annotated[
        list[str] | None, typer.Argument(help="Keys of `rows` in params.yaml; none: all.")
    ] = None,
) -> None:
    """Prove that the code here makes what the code behind a row's numbers made, or say that it doesn't.

    Takes the first steps of the row by both, and writes what it found to pipeline/identity/equivalences.json.
    """
    from pipeline import params
    from pipeline.identity import equivalences
    from pipeline.identity.equivalence import Asked, compare, unproven

    loaded = params.load()
    found = list(unproven(loaded, rows or list(loaded.rows)))
    for line in found:
        if isinstance(line, str):
            print(line)
    findings = compare(loaded, [one for one in found if isinstance(one, Asked)])
    equivalences.add(tuple(findings))
    for one in findings:
        print(f"{one.row} ({one.kind}, {one.revision[:8]}): {one.found}{f': {one.why}' if one.why else ''}")
    if any(one.found == equivalences.DIFFERENT for one in findings) or any(isinstance(x, str) for x in found):
        raise typer.Exit(1)
