"""What a benchmark found: as JSON, as a Markdown table and as a figure."""

import os
import platform
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measuring import Measured
from benchmarks.ways import BEST, GHOST, HOOKS, OURS, PLAIN, WAYS, Contender
from pipeline.files import write_json, write_text
from pipeline.identity import provenance

FOLDER = Path("reports/benchmarks")


class Line(NamedTuple):
    """A contender, the threads that it had, and what it took: one line of the table."""

    contender: Contender
    threads: int
    measured: Measured


def write(name: str, lines: list[Line], root: Path) -> Path:
    """``NAME.json``, ``NAME.md`` and ``NAME.svg`` in the folder of benchmarks, which is returned."""
    folder = root / FOLDER
    machine = describe()
    rows = [
        {
            "case": line.contender.case.name,
            "way": line.contender.way,
            "batch": line.contender.batch,
            "replicas": line.contender.replicas,
            "device": line.contender.device,
            "threads": line.threads,
            **line.measured._asdict(),
            "ratio": ratio(line, lines),
            "processor_ratio": ratio(line, lines, "processor"),
            "of_one_replica": of_one_replica(line, lines),
        }
        for line in lines
    ]
    write_json(folder / f"{name}.json", {"machine": machine, "steps": rows})
    write_text(folder / f"{name}.md", table(lines, machine))
    write_text(folder / f"{name}.svg", figure(name, lines))
    return folder


def describe() -> dict[str, str]:
    """What was measured on: hardware, system, and versions of the libraries and of this project."""
    import torch

    machine = {"processor": _processor(), "cores": str(os.cpu_count()), "system": platform.platform()}
    if torch.cuda.is_available():
        machine["gpu"] = torch.cuda.get_device_name()
    commit, dirty = provenance.revision()
    machine |= {package: metadata.version(package) for package in ("torch", "numpy", "opacus")}
    return {**machine, "commit": f"{commit}{' with changes' if dirty else ''}"}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [
        line.partition(":")[2].strip()
        for line in (info.read_text().splitlines() if info.exists() else [])
        if line.startswith("model name")
    ]
    return names[0] if names else platform.processor() or platform.machine()


def ratio(line: Line, lines: list[Line], field: str = "seconds") -> float | None:
    """Of the median to that of plain SGD, one replica, in the same run; ``field``: a field of `Measured`."""
    base = next(
        (other for other in lines if _setting(other) == _setting(line) and other.contender.way == PLAIN), None
    )
    if base is None or line.measured.problem is not None:
        return None
    relative: float = getattr(line.measured, field) / getattr(base.measured, field)
    return relative


def of_one_replica(line: Line, lines: list[Line]) -> float | None:
    """Of several replicas' median to that of one by one thread, in the same run."""
    if line.contender.replicas == 1 or line.measured.problem is not None:
        return None
    single = (replace(line.contender, replicas=1), 1)
    base = next((other for other in lines if (other.contender, other.threads) == single), None)
    return None if base is None else line.measured.seconds / base.measured.seconds


def _setting(line: Line) -> tuple[Any, ...]:
    return line.contender.case.name, line.contender.batch, line.contender.device, line.threads


def table(lines: list[Line], machine: dict[str, str]) -> str:
    """The whole run in Markdown."""
    head = ["step", "batch", "threads", "way", "replicas", "ms", "quartiles", "of plain SGD"]
    head += ["processor, ms", "of plain SGD", "memory, MB", "outside passes, %", "of one replica"]
    rows = []
    for line in lines:
        contender, measured = line.contender, line.measured
        if measured.problem is not None:
            numbers = [f"not possible: {measured.problem}", *[""] * 7]
        else:
            parts = [ratio(line, lines, field) for field in ("seconds", "processor")]
            wall, processor = ("" if part is None else f"{part:.2f}" for part in parts)
            numbers = [
                f"{1000 * measured.seconds:.4g}",
                f"{1000 * measured.low:.4g} to {1000 * measured.high:.4g}",
                wall,
                f"{1000 * measured.processor:.4g}",
                processor,
                f"{measured.megabytes:.0f}",
                "" if measured.outside is None else f"{100 * measured.outside:.0f}",
                "" if (share := of_one_replica(line, lines)) is None else f"{share:.2f}",
            ]
        threads = f"{contender.device} {line.threads}" if contender.device != "cpu" else str(line.threads)
        setting = [contender.case.name, f"{contender.batch}", threads, contender.way, f"{contender.replicas}"]
        rows.append([*setting, *numbers])
    text = [
        "# What a training step costs",
        "",
        "Medians and quartiles of steps that were measured in turn, each way in processes of its own. *Plain "
        "SGD* is forward, loss, backward and a step of `torch.optim.SGD` on a batch that is there already, "
        "as anybody writes it; *ours* is a whole step of the method, with sampling, noise and what goes into "
        "the history, and for batch clipping its part of the passes over public data. Memory is what the "
        "process grew by, at most. On a machine that others use too, the processor's time of all threads is "
        "what to compare; it has the noise that a thread of its own draws ahead. Outside passes is the share "
        "of our step that is neither forward nor backward, with the clipping between them: sampling, "
        "look-up, noise, descent and history. Replicas are trained side by side, a process for each thread; "
        "a step of them all is compared with that of one replica by one thread.",
        "",
        "; ".join(f"{key} {value}" for key, value in machine.items()),
        "",
        "| " + " | ".join(head) + " |",
        "| " + " | ".join("---" for _ in head) + " |",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    return "\n".join(text) + "\n"


def figure(name: str, lines: list[Line]) -> str:
    """Ratios of processor time to plain SGD's in every setting, on a logarithmic axis, as SVG."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import ScalarFormatter

    from pipeline.reporting.drawing import style

    single = [line for line in lines if line.contender.replicas == 1]
    settings = list(dict.fromkeys(_setting(line) for line in single))
    ways = [way for way in WAYS if way in (PLAIN, BEST, OURS, HOOKS, GHOST)]

    def draw(page: Figure) -> None:
        axes = page.subplots()
        for way, colour in zip(ways, style.COLOURS, strict=False):
            points = [
                (value, settings.index(_setting(line)))
                for line in single
                if line.contender.way == way and (value := ratio(line, lines, "processor")) is not None
            ]
            axes.scatter([x for x, _ in points], [y for _, y in points], label=way, color=colour)
        axes.set_yticks(
            range(len(settings)),
            [f"{case}, B {batch}, {threads} thread(s)" for case, batch, _, threads in settings],
        )
        axes.invert_yaxis()
        axes.set_xscale("log")
        for axis in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
            axis(ScalarFormatter())
        axes.set_xlabel("processor's time of a step, in those of plain SGD")
        axes.legend(loc="upper center", bbox_to_anchor=(0.4, 1.0), ncols=2)
        axes.margins(y=0.25)

    return style.svg(f"benchmark-{name}", (9.0, 1.6 + 0.32 * len(settings)), draw)
