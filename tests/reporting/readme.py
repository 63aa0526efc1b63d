"""The README's findings, generated from the records; `python -m tests.reporting.readme` writes them anew.

The section's first and last paragraphs, and its figure, are the README's own.
"""

import textwrap
from pathlib import Path

from dprepro.pipeline.params import load
from dprepro.pipeline.reporting.facts import PaperResult
from dprepro.pipeline.reporting.gather import gather
from dprepro.pipeline.reporting.prose import counts, findings

README = Path(__file__).parents[2] / "README.md"
FINDINGS = 5  # at most
BEFORE, AFTER = "## What it found\n\n", "## Start\n"


def generated(results: list[PaperResult]) -> str:
    """The section as the records have it now."""
    first, *middle, last = written().strip().split("\n\n")
    figures = [part for part in middle if part.startswith("<details>")]
    listed = [
        f"- **{finding.result.name}.** {finding.text} "
        f"([table](reports/papers/{finding.result.key}.html#{finding.table}))"
        for finding in findings.first_findings(results)[:FINDINGS]
    ]
    head, *rest = counts.overview(results)
    lines = [head, ("---",) * len(head), *rest]
    counted = ("\n".join(f"| {' | '.join(cells)} |" for cells in lines), _wrapped(counts.privacy(results)))
    findings_text = "\n".join(_wrapped(line, "  ") for line in listed)
    return "\n\n".join([first, *counted, findings_text, *figures, last]) + "\n\n"


def written() -> str:
    """The section as it stands."""
    text = README.read_text(encoding="utf-8")
    return text[text.index(BEFORE) + len(BEFORE) : text.index(AFTER)]


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    here = gather(load(README.parent / "params.yaml"), README.parent)
    README.write_text(
        README.read_text(encoding="utf-8").replace(written(), generated(here)), encoding="utf-8"
    )
