"""`dprepro audit ROW`: attacks on a row's own code."""

from typing import Annotated

import typer


def audit(row: Annotated[str, typer.Argument(help="A key of `rows` in params.yaml.")]) -> None:
    """Attack a row's code: lower bounds on its epsilon. Needs neither weights nor data."""
    from pipeline import params
    from pipeline.audits.rows import audit_row
    from pipeline.reporting.wording import downwards, upwards
    from pipeline.results import records

    path = audit_row(row, params.load())
    audited = records.read_audit(row)
    assert audited is not None
    for attack in audited.attacks:
        epsilon_upper = (
            "no bound" if attack.epsilon_upper is None else f"{upwards(attack.epsilon_upper)} accounted"
        )
        shown = f"epsilon >= {downwards(attack.largest)} shown"
        on = f"{attack.attack} on {attack.noise} noise"
        print(f"{row}, {attack.level}, {on}: {shown}, {epsilon_upper}")
    print(f"{row}: audited, {path}")
