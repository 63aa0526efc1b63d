"""`dprepro tan plan`: batch size and noise of a private training."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from dprepro.pipeline.planning.budget import SuggestedBudget

tan = typer.Typer(
    no_args_is_help=True, help="Plan a private training by its total amount of noise (Sander et al. 2022)."
)

EPSILONS = ("eps\nTAN", "eps\nRDP", "eps\nPLD")


@tan.command()
def plan(
    examples: Annotated[int, typer.Option(help="N: number of private training examples.")],
    delta: Annotated[float, typer.Option(help="Delta of the guarantee, below 1/N.")],
    epsilon: Annotated[float, typer.Option(help="Epsilon of the guarantee.")],
    steps: Annotated[int | None, typer.Option(help="S: number of steps. Or give --compute.")] = None,
    compute: Annotated[
        float | None,
        typer.Option(help="Total number of per-example gradients, including copies. Or give --steps."),
    ] = None,
    copies: Annotated[int, typer.Option(help="K: number of augmented copies per example.")] = 1,
    simulate: Annotated[int, typer.Option(help="Batch size of a cheaper training for tuning.")] = 256,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """List batch sizes with their noise for an epsilon, and recommend a batch size.

    The mark 'wall' is for batch sizes behind the paper's privacy wall. Either sigma is below 2, where epsilon
    grows steeply, or the total noise (TAN) is more than 1.2 times the least. The cheaper training for tuning
    has the same noise in each mean gradient as the recommended one. It is not private.
    """
    from rich.console import Console

    from dprepro.pipeline.planning.budget import suggest_budget
    from dprepro.stages.answers import answering

    with Console(stderr=True).status("accounting"):
        planned = suggest_budget(
            examples,
            delta,
            epsilon,
            steps=steps,
            compute=compute,
            copies=copies,
            simulate=simulate,
        )
    if as_json:
        print(planned.model_dump_json(indent=2))
        return
    console = answering()
    console.print(_table(planned))
    for line in _advice(planned, simulate):
        console.print(line, soft_wrap=console.is_terminal)


def _table(planned: "SuggestedBudget") -> "Table":
    from rich import box
    from rich.table import Table

    from dprepro.pipeline.ledgers.sentences import number

    best = planned.recommended
    table = Table(
        title=f"N {planned.examples:,}, epsilon {planned.epsilon:g} by RDP at delta {planned.delta:g}",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        caption="eta: signal-to-noise ratio. noise: TAN / least TAN. examples: B x S x K. "
        "cost: examples / those of the recommended B.",
    )
    for name in ("B", "sigma", "S", "q", "eta", *EPSILONS, "noise", "examples", "cost"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for choice in planned.choices:
        table.add_row(
            *(str(choice.batch), f"{choice.sigma:.4g}", str(choice.steps)),
            *(f"{choice.rate:.3g}", f"{choice.eta:.3g}"),
            number(choice.epsilon_tan),  # an approximation, and no bound
            *(_bound(choice.epsilon_rdp), _bound(choice.epsilon_pld)),
            *(f"{choice.noise:.2f}", f"{choice.processed:.3g}", f"{choice.processed / best.processed:.3g}"),
            " ".join(["<- take"] * (choice == best) + ["wall"] * choice.behind_wall),
            style="bold" if choice == best else None,
        )
    return table


def _advice(planned: "SuggestedBudget", simulate: int) -> list[str]:
    from dprepro.accountants.rdp import WALL
    from dprepro.pipeline.planning.budget import OVERCHARGED

    best, small = planned.recommended, planned.simulation
    if best.behind_wall:
        why = "all batch sizes are behind the wall, the largest one least."
    else:
        why = "the smallest batch size in front of the wall; larger ones gain little."
    lines = [
        f"wall: sigma is below {WALL:g}, or noise is above {OVERCHARGED:g}.",
        f"Take B {best.batch}, sigma {best.sigma:g}, S {best.steps}: {why}",
    ]
    if small is None:
        return [*lines, f"B {simulate} for tuning would not be cheaper: tune with the recommended B."]
    spent = f"{_bound(small.epsilon_rdp)} (RDP)"
    if small.epsilon_pld is not None:
        spent = f"{_bound(small.epsilon_pld)} (PLD; {_bound(small.epsilon_rdp)} by RDP)"
    return [
        *lines,
        f"Tune with B {small.batch}, sigma {small.sigma:.6g} and the same S, at "
        f"1/{best.processed / small.processed:.3g} of the cost. Then train once as recommended.",
        f"On the private data, each training for tuning spends epsilon {spent}. "
        "Tune on similar public data, or add this epsilon.",
    ]


def _bound(epsilon: float | None) -> str:
    from dprepro.pipeline.ledgers.sentences import upwards

    return "-" if epsilon is None else upwards(epsilon)
