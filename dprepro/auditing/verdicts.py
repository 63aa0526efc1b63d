"""Verdict of an audit, and the texts that show it first."""

from html import escape
from typing import Literal

# wrong: the claim doesn't hold; suspicious: a right training shows this less than once in a thousand
Verdict = Literal["wrong", "suspicious", "nothing found"]


class Shown:
    """Result of an audit that `print`, the interpreter and notebooks show with its verdict first."""

    @property
    def verdict(self) -> Verdict:
        """The verdict. 'nothing found' proves no privacy."""
        raise NotImplementedError

    def _reasons(self) -> list[str]:
        """Reason of the verdict, or what could have been shown; then further findings, one a line."""
        raise NotImplementedError

    def __str__(self) -> str:
        """Verdict and its reason, then a line for each further finding."""
        first, *others = self._reasons()
        return "\n  ".join([f"{self.verdict}: {first}", *others])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        first, *others = map(escape, self._reasons())
        items = "".join(f"<li>{other}</li>" for other in others)
        return f"<p><strong>{self.verdict}</strong>: {first}</p>{items and f'<ul>{items}</ul>'}"


def beyond(shown: float, assuming: bool, upper: float, confidence: float) -> str:
    """Line about a lower bound ``shown`` that is above ``upper``; ``assuming``: for Gaussian mechanisms."""
    kind = "epsilon of a Gaussian mechanism" if assuming else "epsilon"
    return f"the attack shows {kind} >= {shown:.3g} (confidence {confidence:g}), claimed {upper:.3g}"


def could_have_shown(bound: float) -> str:
    """Line about the lower ``bound`` that a perfect attacker shows."""
    return f"a perfect attacker could have shown epsilon >= {bound:.2f}; this proves no privacy"
