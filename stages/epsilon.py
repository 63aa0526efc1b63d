"""`dprepro epsilon`: what settings spend, by every accountant, and how much noise an epsilon takes."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from pipeline.results.schema import Ledger

DIGITS = 5  # of the noise that is found, rounded up so that it keeps the epsilon
SELECTION = "an upper bound for the best alone of a drawn number of such trainings"


def epsilon(
    examples: Annotated[int, typer.Option(help="N: private examples to train on.")],
    batch: Annotated[int, typer.Option(help="Of one step; of Poisson samples, expected.")],
    sigma: Annotated[
        float | None,
        typer.Option(
            help="Noise multiplier: the noise's deviation over the clipping bound C; or --for-epsilon. "
            "Replacing an example, which 'fixed' and 'shuffled' are accounted for, moves a sum by 2 C."
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
    best_of: Annotated[
        float | None,
        typer.Option(
            help="Also of a search that releases the best alone of so many such trainings on average: their "
            "number is drawn by a geometric law, and each one's candidate too; judged on other data than the "
            "training examples."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The whole ledger, for scripts.")] = False,
) -> None:
    """Epsilon of DP-SGD with these settings, by every accountant; or the noise that an epsilon takes."""
    from rich.console import Console

    from pipeline.errors import UserError
    from pipeline.ledgers.accounts import dpsgd_settings, spending_of
    from pipeline.ledgers.ledger import make_ledger
    from pipeline.ledgers.precision import up
    from pipeline.privacy.accounting import noise_for, tightest
    from pipeline.privacy.selection import selection_epsilon
    from pipeline.reporting.wording import delta_remark
    from pipeline.results.schema import AccountantEpsilon
    from pipeline.rounding import rounded_up

    if (sigma is None) == (for_epsilon is None):
        raise UserError("--sigma or --for-epsilon; needed: one of them")
    if for_epsilon is not None and sampling != "poisson":
        raise UserError(f"--for-epsilon: of Poisson samples only, not of --sampling {sampling}")
    if for_epsilon is not None and not for_epsilon > 0:
        raise UserError(f"--for-epsilon {for_epsilon:g}: not allowed; it must be above 0")
    options: dict[str, Any] = {
        "examples": examples,
        "batch": batch,
        "epochs": epochs,
        "steps": steps,
        "delta": delta,
    }
    options |= {"sampling": sampling}
    with Console(stderr=True).status("accounting"):
        try:
            settings = dpsgd_settings(1.0 if sigma is None else sigma, **options)
        except UserError as problem:
            raise UserError(str(problem).replace("noise_multiplier", "sigma")) from problem
        if for_epsilon is not None:
            steps = settings.total_steps
            noise = noise_for(
                for_epsilon, delta, batch / examples, steps, tightest(for_epsilon, delta, steps)
            )
            sigma = float(rounded_up(noise, DIGITS))  # so that what is printed is what is accounted for
            settings = dpsgd_settings(sigma, **options)
        assert sigma is not None, "one of the two is there"
        ledger = make_ledger(spending_of(settings), settings.total_steps, delta, None)
        if best_of is not None:
            spending = spending_of(settings)
            best = up(selection_epsilon(spending, settings.total_steps, delta, best_of, "geometric"))
            selection = AccountantEpsilon(
                accountant=f"rdp, best of {best_of:g} (geometric)", epsilon=best, note=SELECTION
            )
            ledger = ledger.model_copy(update={"accountants": (*ledger.accountants, selection)})
    if as_json:
        print(ledger.model_dump_json(indent=2))
    else:
        _print(sigma, batch / examples, ledger)
    if delta >= 1 / examples:
        typer.echo(f"delta {delta:g} is not below 1/N: so large a delta may publish an example", err=True)
    elif remark := delta_remark(delta, examples):
        typer.echo(remark, err=True)


def _print(sigma: float, rate: float, ledger: "Ledger") -> None:
    from rich import box
    from rich.table import Table

    from pipeline.privacy.sampled_gaussian import RELATION_WORDS
    from pipeline.reporting.wording import downwards, number, upwards
    from stages.answers import answering, buys

    console = answering()
    share = f"{100 * rate:.3g} % of the examples"
    console.print(
        f"noise multiplier {sigma:.15g}, {ledger.steps:,} steps, {ledger.sampling} batches of {share}, "
        f"delta {number(ledger.delta or 0)}, neighbours {RELATION_WORDS[ledger.neighbouring]}"
    )
    console.print(f"[b]{buys(ledger)}[/b]\n")
    table = Table("accountant", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("epsilon", justify="right")
    table.add_column("what it is")
    if ledger.epsilon_lower is not None:
        table.add_row(
            "worst pair of data sets",
            downwards(ledger.epsilon_lower),
            "a lower bound: so much is spent on it",
        )
    for result in ledger.accountants:
        upper = "none" if result.epsilon is None else upwards(result.epsilon)
        table.add_row(result.accountant, upper, result.note or "an upper bound")
    console.print(table)
