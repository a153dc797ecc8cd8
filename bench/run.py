"""`make bench`: every benchmark in one run, as a table of figures and ratios with the machine named.

A figure is one machine's on one day; a ratio compares two sides of one run and lasts longer. Nothing here
fails because of a time. `--quick` takes a tenth of the work.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

BENCHMARKS = (
    "append",
    "sink",
    "table_set",
    "formats",
    "format_loops",
    "leases",
    "stores",
    "balancing",
    "metrics",
    "processor",
    "source",
    "hubs",
    "kafka_partitions",
    "kafka_source",
    "start",
    "pipeline",
    "loop",
    "postgres_table",
    "kafka_table",
    "kafka_avro",
    "postgres_sink",
    "queues",
    "entities",
)


def main() -> None:
    """Run the benchmarks named on the command line, or all."""
    parser = argparse.ArgumentParser(description="Measure, and print a table of figures and ratios.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(BENCHMARKS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - set(BENCHMARKS)):
        parser.error(f"no benchmark is named {unknown[0]}: give any of {', '.join(BENCHMARKS)}")
    quick, chosen = given.quick, given.names or list(BENCHMARKS)
    sys.path.insert(0, str(Path(__file__).parent))
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table("Benchmark", box=None, title=_machine(), title_justify="left")
    for title in ("Figure", "Unit", "Ratio", "Goal"):
        table.add_column(title, justify="right" if title in ("Figure", "Ratio") else "left")
    for name in chosen:
        for what, figure, unit, ratio, goal in importlib.import_module(name).run(quick):
            shown = f"{figure:,.0f}" if figure >= 100 else f"{figure:,.2f}"
            table.add_row(what, shown, unit, "" if ratio is None else f"{ratio:.2f}", goal)
    console.print(table)


def _machine() -> str:
    """What the figures were measured on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    model = next(
        (line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")), platform.machine()
    )
    return f"{os.cpu_count()} x {model}, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}"


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    main()
