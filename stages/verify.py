"""`dprepro verify`: whether what is written down can be trusted."""

import typer


def verify() -> None:
    """Compare all that lies here with all that vouches for it; status 1 where something is wrong."""
    from pipeline import params
    from pipeline.errors import printable
    from pipeline.verification import verify as run

    wrong = count = 0
    for found in run(params.load()):
        count += 1
        wrong += found.wrong is not None
        # one line each, however many a problem has
        told = "ok" if found.wrong is None else "WRONG: " + printable("; ".join(found.wrong.split("\n")))
        print(f"{found.subject}: {told}", flush=True)
    print(f"{count} compared, {wrong} wrong")
    if wrong:
        raise typer.Exit(1)
