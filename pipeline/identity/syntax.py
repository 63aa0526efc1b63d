"""What a definition of this package reaches by name, and one digest of it: the code behind a number.

The unit is a definition at a module's top level. From the ones asked for, names are followed into whatever
they mean: a definition beside them, one that was imported, or something of another package. Everything
reached is digested as a syntax tree, without what can't move a number: comments, docstrings, layout, the text
of error messages, and checks, which only refuse. Where a definition stands and by which names others import
it doesn't count, so that moving one moves no digest.

A module that is imported by a name made at run time is not followed; whoever asks names it. What reads
params.yaml isn't either.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline import models
from pipeline.files import digest_json

PACKAGE = Path(__file__).parents[1]
SCOPES = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
)
# Decorators of functions that only refuse: what passes them is the same with and without
CHECKS = {"check", "field_validator", "model_validator"}
# The room that reads params.yaml is not followed, as other packages are not: its values have digests of their
# own
DIGESTED = "params"


@dataclass(frozen=True)
class Definition:
    """A name that a module of this package defines: ``('pipeline.methods.base', 'Task')``."""

    module: str
    name: str


@dataclass
class Module:
    """A module's top level."""

    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)  # name -> module, name there
    effects: list[ast.stmt] = field(default_factory=list)  # statements that are run and define nothing


class Sources:
    """The modules of one copy of the package, each read once."""

    def __init__(self, package: Path = PACKAGE):
        """``package``: the folder ``pipeline`` of a checkout."""
        self.package = package
        self._modules: dict[str, Module | None] = {}
        self._reached: dict[Definition, tuple[str, frozenset[Definition]]] = {}

    def digest(self, roots: Iterable[Definition]) -> str:
        """One digest of everything that ``roots`` reach.

        Raises:
            KeyError: a root isn't there.
        """
        found: dict[Definition, str] = {}
        wanted = list(roots)
        for root in wanted:
            if self._resolve(root.module, root.name) is None:
                raise KeyError(f"{root.module}.{root.name}")
        while wanted:
            one = wanted.pop()
            if one in found:
                continue
            found[one], used = self._one(one)
            wanted += used - found.keys()
        return digest_json(sorted(set(found.values())))

    def _one(self, definition: Definition) -> tuple[str, frozenset[Definition]]:
        """The digest of a definition by itself, and what it names."""
        if definition not in self._reached:
            self._reached[definition] = self._read(definition)
        return self._reached[definition]

    def _read(self, definition: Definition) -> tuple[str, frozenset[Definition]]:
        here = self._resolve(definition.module, definition.name)
        if here is None or here.module.startswith(f"{self.package.name}.{DIGESTED}"):
            return f"{definition.module}:{definition.name}", frozenset()
        module = self._module(here.module)
        assert module is not None
        # without a name it is what a module runs when it is imported
        statements = [module.definitions[here.name]] if here.name else module.effects
        reader = _Reader(self, here.module, module)
        read = [reader.visit(_copy(statement)) for statement in statements]
        texts = [ast.dump(one) for one in read if one is not None]
        used = set(reader.used)
        if module.effects:
            used.add(Definition(here.module, ""))
        return digest_json(texts), frozenset(used - {definition})

    def _resolve(self, module: str, name: str) -> Definition | None:
        """Where a name of a module is defined, through whatever hands it on; None: not in this package."""
        for _ in range(10):
            found = self._module(module)
            if found is None:
                return None
            if name == "" or name in found.definitions:
                return Definition(module, name)
            if name not in found.imports:
                return None
            target, there = found.imports[name]
            if there is None:
                return None
            module, name = target, there
        raise RecursionError(f"{module}.{name}: imported in a circle")

    def _module(self, name: str) -> Module | None:
        if name not in self._modules:
            self._modules[name] = self._parse(name)
        return self._modules[name]

    def _parse(self, name: str) -> Module | None:
        first, *rest = name.split(".")
        if first != self.package.name:
            return None
        path = self._path(rest)
        if path is None:
            return None
        module = Module()
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            _sort(statement, module)
        return module

    def _path(self, parts: list[str]) -> Path | None:
        """The file of the module with these names; models may be another package's."""
        place = self.package.joinpath(*parts)
        path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if path.exists():
            return path
        if len(parts) != 2 or parts[0] != "models":
            return None
        added = (Path(folder) / f"{parts[1]}.py" for folder in models.__path__)
        return next((path for path in added if path.exists()), None)

    def is_module(self, name: str) -> bool:
        """Whether the package has a module of that name."""
        return self._module(name) is not None

    def names(self, module: str) -> Iterator[str]:
        """Everything that a module defines."""
        found = self._module(module)
        yield from found.definitions if found else ()


def _sort(statement: ast.stmt, module: Module) -> None:
    """Put a statement of a module's top level where it belongs."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        module.imports |= _imports(statement)
    elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        module.definitions[statement.name] = statement
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
        module.definitions |= dict.fromkeys(names, statement)
        if not all(isinstance(target, ast.Name | ast.Tuple) for target in targets):
            module.effects.append(statement)
    elif isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test):
        for inner in statement.body:
            _sort(inner, module)
    elif not _is_text(statement):
        module.effects.append(statement)


def _imports(statement: ast.Import | ast.ImportFrom) -> dict[str, tuple[str, str | None]]:
    """Local name -> the module, and the name there; None: the module itself."""
    if isinstance(statement, ast.ImportFrom):
        assert statement.module is not None, "imports here are absolute"
        return {one.asname or one.name: (statement.module, one.name) for one in statement.names}
    return {one.asname or one.name.split(".")[0]: (one.name, None) for one in statement.names}


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _copy(statement: ast.stmt) -> ast.stmt:
    copied = ast.parse(ast.unparse(statement)).body[0]
    assert isinstance(copied, ast.stmt)
    return copied


def _bound(node: ast.AST) -> set[str]:
    """Names that a function, or a comprehension, binds anywhere inside; what it imports is no such name."""
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return names | {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}


class _Reader(ast.NodeTransformer):
    """Rewrites a definition to what counts, and notes which others it names."""

    def __init__(self, sources: Sources, name: str, module: Module):
        self.sources, self.name, self.module = sources, name, module
        self.imports = dict(module.imports)
        self.used: set[Definition] = set()
        self.scopes: list[set[str]] = []  # names that the functions around bind themselves

    def visit(self, node: ast.AST) -> Any:
        if not isinstance(node, SCOPES):
            return super().visit(node)
        self.scopes.append(_bound(node))
        try:
            return super().visit(node)
        finally:
            self.scopes.pop()

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Store) or any(node.id in scope for scope in self.scopes):
            return node
        if node.id in self.module.definitions:
            self.used.add(Definition(self.name, node.id))
        elif node.id in self.imports:
            target, there = self.imports[node.id]
            whole = target if there is None else f"{target}.{there}"
            if self.sources.is_module(whole):  # a module handed on as a whole
                self.used |= {Definition(whole, name) for name in self.sources.names(whole)}
                return ast.Name("MODULE", node.ctx)
            self.used.add(Definition(target, there or ""))
            if there is not None:
                return ast.Name(there, node.ctx)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        value = node.value
        local = isinstance(value, ast.Name) and any(value.id in scope for scope in self.scopes)
        if isinstance(value, ast.Name) and value.id in self.imports and not local:
            target, there = self.imports[value.id]
            whole = target if there is None else f"{target}.{there}"
            if self.sources.is_module(whole):
                self.used.add(Definition(whole, node.attr))
                return ast.Name(node.attr, node.ctx)
        return self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self.imports |= _imports(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.imports |= _imports(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        # which error counts, as somebody may catch it; what it says doesn't
        kind = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return ast.Raise(None if kind is None else self.visit(kind), None)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return ast.Assert(self.visit(node.test), None)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if _is_text(node) else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        names = {
            part.id for one in node.decorator_list for part in ast.walk(one) if isinstance(part, ast.Name)
        }
        return None if names & CHECKS else self.generic_visit(node)
