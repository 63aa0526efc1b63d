"""Changes of params.yaml that leave its other lines and comments unchanged.

A round trip through ruamel.yaml would lay out most lines anew. So text is changed at the places of its nodes.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from dprepro.errors import UserError, reading
from dprepro.fields import KEY
from dprepro.pipeline.files import write_text
from dprepro.pipeline.params.documents import flow, parse_yaml
from dprepro.pipeline.params.reading import parse
from dprepro.pipeline.params.schema import Choices
from dprepro.pipeline.params.settings import PARAMS, Settings, pick

WIDTH = 110  # of a line of levels


class Adding:
    """Text of params.yaml with added entries, before it is written."""

    def __init__(self, path: Path = PARAMS):
        """Read params.yaml at ``path``.

        Raises:
            UserError: the file can't be read, or isn't a mapping of sections.
        """
        with reading(path, "run this in the folder that holds params.yaml"):
            self._read = path.read_bytes()
        try:
            text = self._read.decode()
        except UnicodeDecodeError as problem:
            raise UserError(f"{path}: not UTF-8: {problem.reason} at byte {problem.start}") from None
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self.text = text.replace("\r\n", "\n")
        self.path = path
        content = parse_yaml(self.text, path) or {}
        if not isinstance(content, dict):
            raise UserError(f"{path}: {type(content).__name__}; allowed: a mapping of sections")
        self.content: dict[str, Any] = dict(content)

    def refuse(self, name: str, *sections: str) -> None:
        """Make sure that ``name`` is a valid key, and that none of ``sections`` has it.

        Raises:
            UserError: ``name`` is invalid or taken.
        """
        if not re.fullmatch(KEY, name):
            raise UserError(f"{name!r}: no key; allowed: small letters and digits, with hyphens between them")
        for section in sections:
            if name in self._entries(section):
                raise UserError(f"{self.path}: {section}.{name}: is there already; allowed: another name")

    def entry(self, section: str, name: str, text: str) -> None:
        """Add an entry at the end of a section, unless the section has an equal entry.

        Args:
            section: a key at the top of the file.
            name: the entry's key.
            text: the entry's content, as lines of YAML that begin in the first column.

        Raises:
            UserError: the text is not YAML, or another entry has the name.
        """
        there = self._entries(section)
        content = parse_yaml(text, self.path)
        if name in there:
            if there[name] != content:
                raise UserError(
                    f"{self.path}: {section}.{name}: is there already, with other content; "
                    "allowed: another name"
                )
            return
        self.content[section] = {**there, name: content}
        lines = self.text.removesuffix("\n").split("\n")
        start = next((at for at, line in enumerate(lines) if re.match(rf"{section}:(\s|$)", line)), None)
        if start is None:
            lines += ["", f"{section}:"]
            start = len(lines) - 1
        if lines[start].split("#")[0].split() == [f"{section}:", "{}"]:
            lines[start] = lines[start].replace(" {}", "", 1)
        end = next((at for at in range(start + 1, len(lines)) if re.match(r"[^\s#]", lines[at])), len(lines))
        while end > start + 1 and not lines[end - 1].startswith(" "):
            end -= 1  # blank lines and comments before the next section belong to that section
        inner = next((line for line in lines[start + 1 : end] if re.match(r" +[^\s#]", line)), "  x")
        margin = inner[: len(inner) - len(inner.lstrip())]
        key = name if parse_yaml(name, self.path) == name else flow(name)  # 123 and 2023-05-09 are texts
        lines[end:end] = [f"{margin}{key}:", *(f"{margin}  {line}" for line in text.rstrip().split("\n"))]
        self.text = "\n".join(lines) + "\n"

    def differs(self, section: str, name: str, text: str) -> bool:
        """Return whether the section has an entry ``name`` with other content than ``text``."""
        there = self._entries(section)
        return name in there and there[name] != parse_yaml(text, self.path)

    def remove(self, section: str, name: str) -> None:
        """Remove the lines of an entry, unless the section lacks it; comments before the next entry stay."""
        if name not in (there := self._entries(section)):
            return
        node = dict(_pairs(YAML().compose(self.text)))[section]
        self.content[section] = {key: value for key, value in there.items() if key != name}
        lines = self.text.split("\n")
        starts = [key.start_mark for key, _ in node.value]
        at = next(number for number, (key, _) in enumerate(node.value) if key.value == name)
        start, end = starts[at].line, (*starts, node.end_mark)[at + 1].line
        # blank lines, and comments that are not indented below the key
        margin = starts[at].column
        while end > start + 1 and re.match(rf"\s*$|\s{{0,{margin}}}#", lines[end - 1]):
            end -= 1
        del lines[start:end]
        if not self.content[section]:
            lines = [re.sub(rf"^{section}:(?=\s|$)", f"{section}: {{}}", line) for line in lines]
        self.text = "\n".join(lines)

    def level(self, row: str, level: dict[str, Any]) -> None:
        """Add a level after the last level of ``row``, unless the row has an equal level.

        Raises:
            UserError: there is no such row, or the file's layout allows no change.
        """
        levels = list(pick(dict(self.content.get("rows") or {}), row, "row").get("levels", ()))
        if (added := parse_yaml(flow(level), self.path)) not in levels:
            self.levels({row: [*levels, added]})

    def levels(self, rows: Mapping[str, list[dict[str, Any]]]) -> None:
        """Change the text so that each row has the levels that ``rows`` has for it.

        Raises:
            UserError: a row shares its levels with another entry, or they have comments.
        """
        for key, levels in rows.items():
            if self.content["rows"][key]["levels"] == levels:
                continue
            entries = dict(_pairs(dict(_pairs(YAML().compose(self.text)))["rows"]))
            own, written = dict(_pairs(entries[key])).get("levels"), [*map(flow, levels)]
            text = _text_of(own, entries[key], self.text)
            if own is None or text is None or re.search("[#&]", text):
                raise UserError(
                    f"{self.path}: rows.{key}.levels: shared with another entry, or with comments; "
                    f"write them yourself: levels: [{', '.join(written)}]"
                )
            # a block's items may be below their key, in its column; a list in brackets may not
            column = own.start_mark.column + 2 * (own.start_mark.column == entries[key].start_mark.column)
            short = column + sum(map(len, written)) + 2 * len(written) < WIDTH
            listed = (", " if short else f",\n{' ' * (column + 1)}").join(written)
            start = own.start_mark.index
            indent = " " * (column - own.start_mark.column)
            self.text = f"{self.text[:start]}{indent}[{listed}]{self.text[start + len(text) :]}"
            self.content = parse_yaml(self.text, self.path)

    def _entries(self, section: str) -> dict[str, Any]:
        """Entries of a section."""
        entries = self.content.get(section) or {}
        if not isinstance(entries, dict):
            raise UserError(f"{self.path}: {section}: {type(entries).__name__}; allowed: a mapping")
        return dict(entries)

    def write(self) -> None:
        """Write the file with the added entries.

        Raises:
            UserError: the file has changed since it was read.
        """
        with reading(self.path):
            if self.path.read_bytes() != self._read:
                raise UserError(f"{self.path}: was changed meanwhile; run this again")
        write_text(self.path, self.text.replace("\n", self._newline))

    def checked(self) -> Settings:
        """Checked settings with the added entries.

        Raises:
            UserError: the settings don't fit each other, or the file's layout allows no additions.
        """
        try:
            content = parse_yaml(self.text, self.path)
        except UserError:
            content = None
        if content != self.content:
            raise UserError(
                f"{self.path}: is laid out so that no entry can be added or removed; "
                "allowed: sections as blocks"
            )
        return parse(content, self.path)


def write_chosen(choices: Choices, path: Path = PARAMS) -> list[str]:
    """Write the values that searches chose at each level into the levels of the rows that name the searches.

    Returns:
        The changed rows.

    Raises:
        UserError: a row can't have the values, or `Adding.levels` can't write them.
    """
    adding = Adding(path)
    rows = parse(adding.content, path, complete=False).rows
    levels = {key: row.with_chosen(choices) for key, row in rows.items()}
    if changed := [key for key, row in rows.items() if levels[key] != row.levels]:
        adding.levels(levels)
        adding.checked()
        adding.write()
    return changed


def _pairs(node: Node) -> Iterator[tuple[str, Node]]:
    """Own keys of a mapping with their nodes; merged keys are left out."""
    for name, value in node.value if isinstance(node, MappingNode) else ():
        yield name.value, value


def _text_of(inner: Node | None, outer: Node, text: str) -> str | None:
    """Text of the list ``inner``, a part of ``outer``; None if it is elsewhere, as that of an alias is."""
    if not isinstance(inner, SequenceNode) or inner.start_mark.index < outer.start_mark.index:
        return None
    # a block ends where the next entry begins; lines of comments before that are not its own
    return re.sub(r"(\n[ \t]*(#.*)?)+\Z", "", text[inner.start_mark.index : inner.end_mark.index])
