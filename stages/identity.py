"""`dprepro identity`: what decides every stage's results."""


def identity() -> None:
    """Write a digest of the settings and versions behind each stage; DVC runs those whose digest moved."""
    from pipeline import params
    from pipeline.identity import entries

    print(f"{entries.write(params.load())}: written")
