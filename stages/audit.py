"""`dprepro audit ROW`: attacks on a row's own code."""

from typing import Annotated

import typer


def audit(row: Annotated[str, typer.Argument(help="A key of `rows` in params.yaml.")]) -> None:
    """Attack the code of a row: the epsilon that it spends at least. Needs neither weights nor data."""
    from pipeline import params
    from pipeline.audits.rows import audit_row
    from pipeline.reporting.wording import downwards, upwards
    from pipeline.results import records

    path = audit_row(row, params.load())
    found = records.read_audit(row)
    assert found is not None
    for one in found.attacks:
        epsilon_upper = "no bound" if one.epsilon_upper is None else f"{upwards(one.epsilon_upper)} accounted"
        print(f"{row}, {one.level}, {one.attack}: epsilon >= {downwards(one.largest)} shown, {epsilon_upper}")
    print(f"{row}: audited, {path}")
