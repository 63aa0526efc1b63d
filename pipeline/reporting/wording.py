"""Texts of numbers, levels, attacks and statements on guarantees, the same in every table and on every page.

Records have only keys (`pipeline.methods.spending`), so better words in `words.yaml` reach old records.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from dprepro.errors import UserError, shown
from dprepro.fields import Strict
from dprepro.pipeline.ledgers.sentences import LARGE, downwards, number, upwards
from dprepro.pipeline.methods.spending import Statement
from dprepro.pipeline.params.papers import Printed
from dprepro.pipeline.reporting.verdict import Mean
from dprepro.pipeline.results.schema import FLOATING_POINT, Attack, Ledger

MINUS = "−"
_SYMBOLS = {"epsilon": "ε", "sigma": "σ", "noise_multiplier": "σ", "scale": "λ", "inf": "∞"}
_SYMBOLS |= {"clip": "C", "copies": "K", "order": "α"}


class Words(Strict):
    """Content of `words.yaml`, by the keys in code and records."""

    isolation: dict[str, str]
    attacks: dict[str, str]
    bounds: dict[str, str]
    statements: dict[str, str]  # with placeholders for the values of a statement


WORDS = Words.model_validate(
    YAML(typ="safe", pure=True).load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8"))
)


def words(statement: Statement) -> str:
    """Words of a statement: why a guarantee doesn't hold, what it leaves out, or whom it protects.

    Raises:
        UserError: a record has a statement that this version doesn't know.
    """
    try:
        return WORDS.statements[statement.key].format(**statement.values)
    except (KeyError, IndexError, ValueError) as problem:
        raise UserError(
            f"statement {shown(statement.key)} of a record: not one of this version, or without its values"
        ) from problem


def joined(statements: Iterable[Statement]) -> str | None:
    """Words of several statements in one sentence; None without any."""
    return "; ".join(map(words, statements)) or None


def fixed(value: float, decimals: int | None) -> str:
    """Text of a number with ``decimals``: ``98.20``. Without ``decimals``, or if it is large: `number`."""
    return number(value) if decimals is None or abs(value) >= LARGE else f"{value:.{decimals}f}"


def half(value: float, decimals: int | None) -> str:
    """Text of half an interval: ``.22`` for 0.22."""
    text = fixed(value, decimals)
    return text.removeprefix("0") if text.startswith("0.") else text


def signed(value: float, decimals: int | None) -> str:
    """Text of a number with its sign, + or −; + if it rounds to zero."""
    rounded = value if decimals is None else round(value, decimals)
    return (MINUS if rounded < 0 else "+") + fixed(abs(rounded), decimals)


def printed(value: Printed, decimals: int) -> str:
    """Text of a printed cell, as in the paper; ``decimals`` is the table's number of decimals."""
    if value.value is None:
        return value.words or ""
    shown = decimals if value.decimals is None else value.decimals
    error = "" if value.error is None else f" ± {value.error:.{shown}f}"
    return f"{value.value:.{shown}f}{error}"


def with_interval(value: Mean, decimals: int | None, sign: bool = False) -> str:
    """Text of a mean and half its 95 % interval: ``97.65 ± 0.40 (n = 3)``. A single seed has no interval.

    The text of a computed number is the number alone.
    """
    text = signed(value.value, decimals) if sign else fixed(value.value, decimals)
    if value.exact:
        return text
    if value.half_width is None:
        return f"{text} (n = {value.n}: no interval)"
    return f"{text} ± {fixed(value.half_width, decimals)} (n = {value.n})"


def level_words(level: str) -> str:
    """Name of a level in words: ``ε = 3`` for ``epsilon=3``."""
    name, _, value = level.partition("=")
    return f"{_SYMBOLS.get(name, spelled(name))} = {level_value(level)}" if value else level


def spelled(name: str) -> str:
    """Name of a setting or metric, with blanks for underscores."""
    return name.replace("_", " ")


def level_value(level: str) -> str:
    """Value of a level: ``∞`` for ``epsilon=inf``."""
    value = level.partition("=")[2] or level
    return _SYMBOLS.get(value, value)


def settings_words(settings: dict[str, Any]) -> str:
    """Settings in words: ``batch 1024, learning rate 0.5``."""
    return ", ".join(
        f"{spelled(name)} {f'({settings_words(value)})' if isinstance(value, dict) else _setting(value)}"
        for name, value in settings.items()
    )


def _setting(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def isolation(ledger: Ledger) -> str:
    """The evidence for independent gradients, in words."""
    return WORDS.isolation[ledger.isolation or "before_noted"]


def attack_words(attack: Attack) -> str:
    """Attack in words: ``ATTACK: ε ≥ 3.26 (from counted errors, at 95 % confidence); accounted ε 7``."""
    assured, by = [bound for bound in attack.bounds if not bound.assumes_gaussian], ""
    if assured:
        method = WORDS.bounds[max(assured, key=lambda bound: bound.epsilon).by]
        by = f" ({method}, at {100 * attack.confidence:g} % confidence)"
    accounted = "no accounted ε"
    if attack.epsilon_upper is not None:
        accounted = f"accounted ε {upwards(attack.epsilon_upper)}"
    of = f" ({attack.noise} noise)" if attack.attack == FLOATING_POINT else ""
    return f"{WORDS.attacks[attack.attack]}{of}: {shown_words(attack, by)}; {accounted}"


def shown_words(attack: Attack, by: str = "") -> str:
    """Bounds of an attack in words: ``ε ≥ 3.26``, ``ε ≥ 3.26, or 6.1 if the scores are Gaussian``."""
    text = f"ε ≥ {downwards(attack.epsilon)}{by}"
    if attack.largest > attack.epsilon:
        text += f", or {downwards(attack.largest)} if the scores are Gaussian"
    return text
