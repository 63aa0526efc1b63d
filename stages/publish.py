"""`dprepro publish`: records into MLflow."""


def publish() -> None:
    """Bring MLflow up to date with the records; run twice, the second changes nothing."""
    from pipeline import params
    from pipeline.results import tracking

    done = tracking.publish(tracking.declared(params.load()))
    print(f"{done.address}: {len(done.written)} rows published, {len(done.unchanged)} already there")
