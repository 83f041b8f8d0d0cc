"""What all benches share: the machine's facts, statistics, tables, dumps, progress."""

import json
import math
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from appliance.errors import ApplianceError

Progress = Callable[[str, int, int], None]
"""Called with (what is done, how many are done, how many there are)."""


class BenchRefused(ApplianceError):
    """A bench cannot run as asked: its data, its settings or its output folder; the message says which."""


def no_progress(stage: str, done: int, total: int) -> None:
    """The progress of someone who does not look."""


def machine_facts() -> dict[str, Any]:
    """What a number depends on: processor, cores, memory, torch and its threads, GPU, date (UTC)."""
    import torch  # a second of start-up that commands without a bench need not pay

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "cpu": _processor_name(),
        "cores": len(os.sched_getaffinity(0)),
        "ram_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpu": gpu,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def machine_line(facts: Mapping[str, Any]) -> str:
    """The machine in one line, for below a table."""
    gpu = facts["gpu"] or "no GPU"
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['ram_gib']} GiB, {gpu}, torch {facts['torch']} "
        f"({facts['torch_threads']} threads), {facts['date']}"
    )


def median(values: Sequence[float]) -> float:
    """The median; 0.0 of nothing."""
    return statistics.median(values) if values else 0.0


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of all do not exceed (nearest rank, so one that was measured); 0.0 of nothing."""
    if not 0 <= percent <= 100:
        raise ValueError(f"percent must be in [0, 100], not {percent}")
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns that line up: the first to the left, all others (numbers) to the right. No line ends in a blank."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def check_folder(folder: Path | None, option: str) -> None:
    """Make the folder that an option names before anything is measured. Raises BenchRefused where that cannot be."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchRefused(f"{folder} cannot be made ({error.strerror}): name another folder for {option}") from error


def dump_json(folder: Path, name: str, content: object) -> Path:
    """Write `content` to `folder/name.json` and return the path. Raises BenchRefused where that is not possible."""
    target = folder / f"{name}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise BenchRefused(f"{target} cannot be written ({error.strerror}): name another folder for --dump") from error
    return target


def _processor_name() -> str:
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
