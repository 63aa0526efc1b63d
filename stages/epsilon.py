"""`dprepro epsilon`: epsilon of DP-SGD's settings by several accountants, or the noise for an epsilon."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from dprepro.pipeline.results.schema import Ledger

SELECTION = "an upper bound for the best alone of a drawn number of such trainings"


def epsilon(
    examples: Annotated[int, typer.Option(help="N: number of private training examples.")],
    batch: Annotated[
        int,
        typer.Option(
            help="Batch size; for Poisson samples, the expected batch size. For 'allocation', N times the "
            "participations over the number of batches of an epoch, rounded up."
        ),
    ],
    sigma: Annotated[
        float | None,
        typer.Option(
            help="Noise multiplier: the noise's standard deviation divided by the clipping bound C. Or give "
            "--for-epsilon. With 'fixed' and 'shuffled', neighbours replace one example, which moves a sum "
            "by 2 C."
        ),
    ] = None,
    for_epsilon: Annotated[
        float | None, typer.Option(help="Compute the noise multiplier for this epsilon. Or give --sigma.")
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(
            help="Passes over the examples. An epoch of 'allocation' has as many passes as --participations. "
            "Or give --steps."
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Number of steps. Or give --epochs.")] = None,
    delta: Annotated[float, typer.Option(help="Delta of the guarantee. It should be below 1/N.")] = 1e-5,
    sampling: Annotated[
        Literal["poisson", "fixed", "shuffled", "allocation"],
        typer.Option(
            help="poisson: each example is in a batch with the same probability. fixed: a batch is a fixed "
            "number of random examples. shuffled: each epoch has a new order. allocation: each example is in "
            "one random batch of an epoch, independently of the others (balls and bins)."
        ),
    ] = "poisson",
    participations: Annotated[
        int, typer.Option(help="'allocation' only: number of batches of an epoch that contain each example.")
    ] = 1,
    best_of: Annotated[
        float | None,
        typer.Option(
            help="Also compute epsilon of a search that releases only its best run. The value is the mean "
            "number of runs. The number must have a geometric distribution. Each run must have random "
            "settings. The best run must be chosen without the training examples."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole ledger as JSON.")] = False,
) -> None:
    """Compute epsilon of DP-SGD by several accountants, or the noise for an epsilon."""
    from rich.console import Console

    from dprepro.accountants.bounds import selection_epsilon
    from dprepro.accountants.records import AccountantEpsilon, up
    from dprepro.accounting import dpsgd_settings, noise_multiplier
    from dprepro.errors import UserError
    from dprepro.pipeline.ledgers.ledger import fast_accountants, make_ledger
    from dprepro.pipeline.ledgers.sentences import delta_remark

    if (sigma is None) == (for_epsilon is None):
        raise UserError("--sigma or --for-epsilon; needed: one of them")
    if for_epsilon is not None and not for_epsilon > 0:
        raise UserError(f"--for-epsilon {for_epsilon:g}: not allowed; it must be above 0")
    options: dict[str, Any] = {
        "examples": examples,
        "batch": batch,
        "epochs": epochs,
        "steps": steps,
        "delta": delta,
    }
    options |= {"sampling": sampling, "participations": participations}
    with Console(stderr=True).status("accounting"):
        try:
            settings = dpsgd_settings(1.0 if sigma is None else sigma, **options)
        except UserError as problem:
            raise UserError(str(problem).replace("noise_multiplier", "sigma")) from problem
        if for_epsilon is not None:
            sigma = noise_multiplier(for_epsilon, **options)
            settings = dpsgd_settings(sigma, **options)
        assert sigma is not None, "one of the two is there"
        spending = settings.spending
        ledger = make_ledger(spending, settings.total_steps, delta, None, others=fast_accountants())
        if best_of is not None:
            best = up(selection_epsilon(spending, settings.total_steps, delta, best_of, "geometric"))
            selection = AccountantEpsilon(
                accountant=f"rdp, best of {best_of:g} (geometric)", epsilon=best, note=SELECTION
            )
            ledger = ledger.model_copy(update={"accountants": (*ledger.accountants, selection)})
    if as_json:
        print(ledger.model_dump_json(indent=2))
    else:
        _print(sigma, spending.rate, ledger)
    if delta >= 1 / examples:
        typer.echo(f"delta {delta:g} is not below 1/N: the mechanism may publish an example", err=True)
    elif remark := delta_remark(delta, examples):
        typer.echo(remark, err=True)


def _print(sigma: float, rate: float, ledger: "Ledger") -> None:
    from rich import box
    from rich.table import Table

    from dprepro.pipeline.ledgers.sentences import attack_risk, downwards, gaussian_dp, number, upwards
    from dprepro.stages.answers import answering, privacy_summary

    console = answering()
    share = f"{100 * rate:.3g} % of the examples"
    console.print(
        f"noise multiplier {sigma:.15g}, {ledger.steps:,} steps, {ledger.sampling} batches of {share}, "
        f"delta {number(ledger.delta or 0)}, neighbours {ledger.neighbouring}"
    )
    console.print(f"[b]{privacy_summary(ledger)}[/b]\n")
    if ledger.risk:
        console.print(attack_risk(ledger.risk))
        if gaussian := gaussian_dp(ledger.risk):
            console.print(f"Gaussian DP: {gaussian}\n")
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
