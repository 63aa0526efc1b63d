"""`dprepro publish`: MLflow's store, built anew from the records."""

from pathlib import Path

from dprepro.errors import counted


def publish() -> None:
    """Build MLflow's store anew from the records."""
    build()


def build() -> dict[str, str]:
    """Publish with a progress bar; return the ids of the experiments by paper."""
    from dprepro.pipeline import params
    from dprepro.pipeline.files import digest_json, write_text
    from dprepro.pipeline.reporting.table import read_sources
    from dprepro.pipeline.tracking.publishing import STORE
    from dprepro.pipeline.tracking.publishing import publish as write
    from dprepro.pipeline.tracking.runs import runs
    from dprepro.stages.progress import counting
    from dprepro.stages.report import report_left_out

    settings = params.load()
    report_left_out(settings)
    results = list(runs(read_sources(settings)))
    with counting("publish", len(results)) as show:
        experiments = write(results, show=show)
    # for DVC, whose stage must have an output that is the same for the same records
    content = [[run.name, run.tags, run.metrics, [seed.metrics for seed in run.seeds]] for run in results]
    write_text(Path("published.json"), digest_json(content) + "\n")
    seeds = sum(len(run.seeds) for run in results)
    print(f"{STORE}: {counted(len(results), 'result')} and {counted(seeds, 'seed')}")
    return experiments
