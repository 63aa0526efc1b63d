"""`dprepro status`: valid results, missing results and the reasons."""


def status() -> None:
    """Summarise valid results, missing results with their reasons, and rows that wait for a GPU."""
    from dprepro.pipeline.identity import status as standing
    from dprepro.pipeline.identity.plan import gpu_here
    from dprepro.pipeline.ledgers.composition import data_budgets
    from dprepro.pipeline.params import load

    settings = load()
    summary = standing.status(settings, gpu_here())
    for line in standing.lines(summary):
        print(line)
    if budgets := data_budgets(settings):
        from dprepro.pipeline.ledgers.sentences import data_budget

        for budget in budgets:
            print(data_budget(budget))
    stand, declared = summary.accounts
    if summary.untrained or summary.changed or summary.unmeasured or summary.unaccounted or stand < declared:
        print("`dprepro plan [ROW]` says more of each row, `dprepro repro [ROW]` does it")
    else:
        print("nothing to do here")
