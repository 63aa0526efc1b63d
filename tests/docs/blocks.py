"""The code blocks of everything that is written for people, and what a line of a console block must be."""

import fnmatch
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import typer
from ruamel.yaml import YAML

from dprepro.pipeline.params import load
from dprepro.stages.app import app
from dprepro.stages.init import stages
from tests.checkout import copy_code

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
CONSOLE = {"console", "bash", "sh"}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str  # from the root
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """What is to be typed, line by line, without comments."""
        whole = self.text.replace("\\\n", " ")
        return [line for line in whole.splitlines() if shlex.split(line, comments=True)]


def blocks(name: str | None = None) -> Iterator[Block]:
    """Every block of every page, or of that of a name from the root."""
    for page in PAGES if name is None else [ROOT / name]:
        for language, text in FENCE.findall(page.read_text(encoding="utf-8")):
            yield Block(page.relative_to(ROOT).as_posix(), language, text)


# what pages have one write of Python, by the path that stands before it
WRITTEN: dict[str, str] = {
    path: code
    for page in ("CONTRIBUTING.md", "docs/own-model.md")
    for path, code in re.findall(
        r"`(lab/\S+\.py)`:\n\n```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL
    )
}


def lay(folder: Path, files: Mapping[str, str]) -> None:
    """Write files, each by its path in the folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def edit(path: Path, before: str, after: str) -> None:
    """Replace what stands in a file."""
    text = path.read_text(encoding="utf-8")
    assert before in text, f"{path}: no {before!r}"
    path.write_text(text.replace(before, after), encoding="utf-8")


def begin(folder: Path, library: bool = False) -> None:
    """A folder where nothing is declared: with DVC's stages, and the ``library`` where that is added to."""
    if library:
        copy_code(folder)
    sections = ("raw", "own", "data", "starts", "relevances", "rows", "accounts")
    config = "[core]\n    analytics = false\n    no_scm = true\n"
    lay(folder, {".dvc/config": config, "params.yaml": "".join(f"{name}: {{}}\n" for name in sections)})
    (folder / "dvc.yaml").write_text(stages((ROOT / "dvc.yaml").read_text()))
    (folder / "reports/searches").mkdir(parents=True)


def declared() -> set[str]:
    """Keys that params.yaml has, and those that pages add to it."""
    settings = load(ROOT / "params.yaml")
    tables = (settings.lines, settings.data, settings.derived, settings.raw, settings.searches)
    names = {name for table in tables for name in table}
    for block in blocks():
        names |= set(re.findall(r"dprepro (?:new \w+|export \S+) (\S+)", block.text))
        if block.language == "yaml":
            names |= set(re.findall(r"^  ([a-z0-9-]+):", block.text, re.MULTILINE))
    return names


def problem(line: str, names: set[str]) -> str | None:
    """Why a line of a console block is no command that there is; None where it is one."""
    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"export|[A-Z_]+=.*", words[0]):
        words.pop(0)
    if not words:
        return None
    program, *rest = words
    if [program, *rest[:2]] == ["python", "-m", "dprepro.stages"]:
        program, *rest = "dprepro", *rest[2:]
    if program == "python":
        return None if rest[0] == "-m" and find_spec(rest[1]) else f"no module {rest[1]}"
    if program in ("cd", "git"):
        return None
    checks = {"dprepro": _dprepro, "dvc": _dvc, "make": _make, "pip": _pip}
    return checks[program](rest, names) if program in checks else f"{program!r} is neither run nor checked"


def _dprepro(words: list[str], names: set[str]) -> str | None:
    """Options exist, values are of their types, and what is named is declared."""
    command = typer.main.get_command(app)
    context = None
    while hasattr(command, "commands"):
        if not words or words[0] not in command.commands:
            return f"no command {' '.join(words[:1])!r}"
        context = command.make_context(command.name, [], parent=context, resilient_parsing=True)
        command, words = command.commands[words[0]], words[1:]
    if "--help" in words:
        return None
    try:
        subcontext = command.make_context(command.name, list(words), parent=context)
    except Exception as problem:  # of whichever click typer brings
        return f"{' '.join(words)}: {problem}"
    options = {each.name for each in command.params if type(each).__name__ == "TyperArgument"}
    for name in options & subcontext.params.keys():
        given = subcontext.params[name]
        for value in given if isinstance(given, list | tuple) else [given]:
            if isinstance(value, str) and value not in names and not value.isupper():
                return f"{value!r} is declared nowhere"
    return None


def _dvc(words: list[str], names: set[str]) -> str | None:
    from dvc.cli import parse_args

    try:
        parse_args(words)
    except Exception as problem:
        return f"dvc {' '.join(words)}: {problem}"
    stages = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
    for word in words[1:] if words[0] == "repro" else ():
        stage, _, key = word.partition("@")
        named = not key or (fnmatch.filter(names, key) if "--glob" in words else key in names)
        if not word.startswith("-") and (stage not in stages or not named):
            return f"no stage {word!r}"
    return None


def _make(words: list[str], names: set[str]) -> str | None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    unknown = [word for word in words if "=" not in word and word not in targets]
    return f"make: no target {unknown[0]!r}" if unknown else None


def _pip(words: list[str], names: set[str]) -> str | None:
    extras = re.findall(r"\[(\w+)\]", " ".join(words))
    text = (ROOT / "pyproject.toml").read_text()
    unknown = [extra for extra in extras if not re.search(rf"^{extra} = \[", text, re.MULTILINE)]
    return f"no extra {unknown[0]!r}" if unknown else None
