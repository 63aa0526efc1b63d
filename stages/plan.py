"""`dprepro plan`: what `dvc repro` would train."""


def plan() -> None:
    """Say which rows `dvc repro` would train here, and how long they took when last trained."""
    from datetime import timedelta

    from pipeline.identity.plan import plan as rows
    from pipeline.params import load

    planned = rows(load())
    for each in planned:
        before = "never trained"
        if each.seconds is not None:
            before = f"{timedelta(seconds=round(each.seconds))} last time, on {each.device}"
        print(f"{each.row}: {each.replicas} replicas, {before}")
    known = [each.seconds for each in planned if each.seconds is not None]
    unknown = f", and {new} rows nobody can tell of" if (new := len(planned) - len(known)) else ""
    print(f"to train: {len(planned)} rows, {timedelta(seconds=round(sum(known)))} by the records{unknown}")
