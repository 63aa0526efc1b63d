"""What pydantic finds wrong, in lines for the person who wrote the file."""

from pydantic import ValidationError

from pipeline.errors import printable, shown


class Inside(ValueError):
    """Problems with keys below the one being checked, one line each."""

    def __init__(self, lines: list[str]):
        """``lines``: 'KEY: why' each."""
        super().__init__("; ".join(lines))
        self.lines = lines


def problem_lines(problem: ValidationError) -> list[str]:
    """Every error as 'key: value is wrong because'; long values are cut."""
    lines = []
    for error in problem.errors():
        where = ".".join(printable(str(part), 100) for part in error["loc"] if part != "[key]")
        inner = error.get("ctx", {}).get("error")
        if isinstance(inner, Inside):
            lines += [f"{where}.{line}" for line in inner.lines]
        elif error["type"] == "extra_forbidden":
            lines.append(f"{where}: unknown key")
        elif error["type"] == "missing":
            lines.append(f"{where}: missing")
        elif error["type"] == "is_instance_of":  # what isn't may be data, which no line shows
            lines.append(f"{where}: {type(error['input']).__name__} is not allowed: {error['msg']}")
        elif error["type"] == "value_error":
            lines.append(f"{where}: {inner}" if where else str(inner))
        else:
            lines.append(f"{where}: {shown(error['input'])} is not allowed: {error['msg']}")
    return lines
