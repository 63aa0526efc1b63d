"""All rows of the four papers: those of params.yaml, and those of waiting.yaml, which nobody has trained."""

from pathlib import Path

from dprepro.pipeline import params
from dprepro.pipeline.params import Settings
from dprepro.pipeline.params.documents import read_yaml

ROOT = Path(__file__).parents[1]


def paper_rows() -> Settings:
    """Settings with the rows of both files."""
    own, waiting = (read_yaml(ROOT / name) for name in ("params.yaml", "waiting.yaml"))
    joined = {
        section: {**own[section], **waiting[section]}
        for section in ("data", "relevances", "rows", "searches")
    }
    return params.parse({**own, **joined})
