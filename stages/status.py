"""`dprepro status`: what stands, what waits, what is to be done and why."""


def status() -> None:
    """Say what stands, what waits for a GPU, what there is to do and why, in a few lines."""
    from pipeline.identity import status as standing
    from pipeline.identity.plan import gpu_here
    from pipeline.ledgers.data_budget import data_budgets
    from pipeline.params import load

    settings = load()
    told = standing.status(settings, gpu_here())
    for line in standing.lines(told):
        print(line)
    if budgets := data_budgets(settings):
        from pipeline.reporting.wording import data_budget  # with its statistics

        for budget in budgets:
            print(data_budget(budget))
    if told.untrained or told.changed or told.unmeasured or told.unaccounted:
        print("`dprepro plan [ROW]` says more of each row, `dprepro repro [ROW]` does it")
    else:
        print("nothing to do here")
