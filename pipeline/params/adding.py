"""Additions to params.yaml that leave its other lines and comments unchanged."""

import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from dprepro.errors import UserError, reading
from dprepro.fields import KEY
from dprepro.pipeline.files import write_text
from dprepro.pipeline.params.documents import parse_yaml
from dprepro.pipeline.params.reading import parse
from dprepro.pipeline.params.searched import read_choices
from dprepro.pipeline.params.settings import PARAMS, Settings, pick


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
        self._expected: dict[str, Any] = dict(content)

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
        self._expected[section] = {**there, name: content}
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
        lines[end:end] = [f"{margin}{name}:", *(f"{margin}  {line}" for line in text.rstrip().split("\n"))]
        self.text = "\n".join(lines) + "\n"

    def level(self, row: str, text: str) -> None:
        """Add a level, a line of YAML, after the last level of ``row``, unless the row has an equal level.

        Raises:
            UserError: there is no such row, or its levels come from another entry by a YAML merge key.
        """
        rows = dict(self._expected.get("rows") or {})
        levels, level = list(pick(rows, row, "row").get("levels", ())), parse_yaml(text, self.path)
        if level in levels:
            return
        self._expected["rows"] = {**rows, row: {**rows[row], "levels": [*levels, level]}}
        node = YAML().compose(self.text)
        for key in ("rows", row, "levels"):
            node = next((value for name, value in node.value if name.value == key), None)
            if node is None:
                raise UserError(
                    f"{self.path}: rows.{row}.levels: taken over from another entry; allowed: its own levels"
                )
        end = node.value[-1].end_mark.index
        # in the same line, or as an item below the last one
        inserted = f", {text}" if node.flow_style else f"\n{' ' * node.start_mark.column}- {text}"
        self.text = self.text[:end].rstrip() + inserted + self.text[len(self.text[:end].rstrip()) :]

    def _entries(self, section: str) -> dict[str, Any]:
        """Entries of a section."""
        entries = self._expected.get(section) or {}
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
        if content != self._expected:
            raise UserError(
                f"{self.path}: is laid out so that nothing can be added; allowed: sections as blocks"
            )
        return parse(content, self.path, read_choices(self.path.parent))
