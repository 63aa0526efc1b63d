"""`dprepro audit ROW`: attacks on a row's code, or on its final models."""

from typing import Annotated

import typer

from dprepro.stages.train import Device, ready


def audit(
    row: Annotated[str, typer.Argument(help="A key of `rows` in params.yaml.")],
    model: Annotated[
        bool,
        typer.Option(
            "--model",
            help="Train the row's network on the row's data with a thousand mislabelled canaries, once per "
            "level, and attack the final models. Needs the data, and as much time as one seed of each level.",
        ),
    ] = False,
    level: Annotated[
        list[str] | None,
        typer.Option(
            "--level", help="With --model: a level to attack, such as epsilon=3; repeatable. Default: all."
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    """Attack a row's code, or its final models, and compute lower bounds on its epsilon."""
    from dprepro.errors import UserError
    from dprepro.pipeline import params
    from dprepro.pipeline.audits.rows import audit_row, noises
    from dprepro.pipeline.ledgers.sentences import downwards
    from dprepro.pipeline.reporting.wording import attack_words
    from dprepro.pipeline.results import records
    from dprepro.pipeline.results.schema import FLOATING_POINT

    if level and not model:
        raise UserError(
            f"--level {', '.join(level)}: allowed with --model; without it all levels are attacked"
        )
    settings = params.load()
    if model:
        from dprepro.pipeline.audits.final_model import audit_model

        data, how = ready(row, settings, device)
        path = audit_model(row, settings, data, how, lambda line: print(line, flush=True), levels=level or ())
    else:
        path = audit_row(row, settings)
    audited = records.read_audit(row, final_models=model)
    assert audited is not None
    run, present = records.read_run(row), noises(settings.row(row))[-1]
    ran = {training.noise for training in run.trainings} if run else {present}
    for attack in audited.attacks:
        if attack.attack != FLOATING_POINT or attack.noise in ran:  # the arithmetic of other noise is another
            most = max((bound.epsilon for bound in attack.could_show), default=None)
            could = "" if most is None else f"; a perfect attacker's median {downwards(most)}"
            print(f"{row}, {attack.level}: {attack_words(attack)}{could}")
    print(f"{row}: audited, {path}")
