"""`dprepro epsilon`: what settings spend, by every accountant, and how much noise an epsilon takes."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from pipeline.results.records import Ledger


def epsilon(
    examples: Annotated[int, typer.Option(help="N: private examples to train on.")],
    batch: Annotated[int, typer.Option(help="Of one step; of Poisson samples, expected.")],
    sigma: Annotated[
        float | None,
        typer.Option(
            help="Noise multiplier: the noise's deviation over the clipping bound; or --for-epsilon."
        ),
    ] = None,
    for_epsilon: Annotated[
        float | None,
        typer.Option(help="Find the noise that keeps this epsilon, of Poisson samples; or --sigma."),
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the examples; or --steps.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the training; or --epochs.")] = None,
    delta: Annotated[float, typer.Option(help="Of the guarantee; below 1/N.")] = 1e-5,
    sampling: Annotated[
        Literal["poisson", "fixed", "shuffled"],
        typer.Option(
            help="How a batch is drawn: each example by a coin, so many different ones, or in order."
        ),
    ] = "poisson",
    as_json: Annotated[bool, typer.Option("--json", help="The whole ledger, for scripts.")] = False,
) -> None:
    """Epsilon of DP-SGD with these settings, by every accountant; or the noise that an epsilon takes."""
    from pydantic import ValidationError
    from rich.console import Console

    from pipeline.errors import UserError
    from pipeline.ledgers.accounts import spending_of
    from pipeline.ledgers.ledger import make_ledger
    from pipeline.params.problems import problem_lines
    from pipeline.privacy.account_settings import AccountSettings
    from pipeline.privacy.accounting import noise_for

    if (sigma is None) == (for_epsilon is None):
        raise UserError("--sigma or --for-epsilon; needed: one of them")
    if for_epsilon is not None and sampling != "poisson":
        raise UserError(f"--for-epsilon: of Poisson samples only, not of --sampling {sampling}")
    if for_epsilon is not None and not for_epsilon > 0:
        raise UserError(f"--for-epsilon {for_epsilon:g}: not allowed; it must be above 0")
    said: dict[str, Any] = {
        "examples": examples,
        "batch": batch,
        "epochs": epochs,
        "steps": steps,
        "delta": delta,
    }
    said |= {"sampling": sampling, "claimed_by": "rdp"}
    try:
        own = AccountSettings(noise_multiplier=1.0 if sigma is None else sigma, **said)
    except ValidationError as problem:
        lines = (line.replace("noise_multiplier", "sigma") for line in problem_lines(problem))
        raise UserError("\n".join(lines)) from problem
    with Console(stderr=True).status("accounting"):
        if for_epsilon is not None:
            found = noise_for(for_epsilon, delta, batch / examples, own.total_steps, "pld")
            own = own.model_copy(update={"noise_multiplier": found})
        ledger = make_ledger(spending_of(own), own.total_steps, delta, None)
    if as_json:
        print(ledger.model_dump_json(indent=2))
    else:
        _print(own.noise_multiplier, batch / examples, ledger)
    if delta >= 1 / examples:
        typer.echo(f"delta {delta:g} is not below 1/N: so large a delta may publish an example", err=True)


def _print(sigma: float, rate: float, ledger: "Ledger") -> None:
    from rich import box
    from rich.table import Table

    from pipeline.reporting.wording import downwards, number, upwards
    from stages.answers import answering, buys

    console = answering()
    share = f"{100 * rate:.3g} % of the examples"
    console.print(
        f"noise multiplier {number(sigma)}, {ledger.steps:,} steps, {ledger.sampling} batches of {share}, "
        f"delta {number(ledger.delta or 0)}, neighbours {ledger.neighbouring}"
    )
    console.print(f"[b]{buys(ledger)}[/b]\n")
    table = Table("accountant", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("epsilon", justify="right")
    table.add_column("what it is")
    if ledger.shown is not None:
        table.add_row(
            "worst pair of data sets", downwards(ledger.shown), "a lower bound: so much is spent on it"
        )
    for one in ledger.opinions:
        told = "none" if one.epsilon is None else upwards(one.epsilon)
        table.add_row(one.accountant, told, one.note or "an upper bound")
    console.print(table)
