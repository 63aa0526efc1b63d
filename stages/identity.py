"""`dprepro identity`: a digest of settings and versions per stage."""


def identity() -> None:
    """Write a digest of settings and versions for each stage. DVC runs the stages whose digest changed."""
    from dprepro.pipeline import params
    from dprepro.pipeline.identity import entries

    print(f"{entries.write(params.load())}: written")
