"""Prometheus's text format, for families of many samples.

Owns a writer that gives what `prometheus_client.generate_latest` gives, byte for byte (a test holds the two equal), for
gauges, counters and info, in a tenth of the time: partitions come by the thousand, and samples that share one mapping
of labels have it written once. Everything else is handed to `generate_latest`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_number: Callable[[float], str] = floatToGoString
_PLAIN = 1e6  # below it a number is written as Python does
_SUFFIXES = {"gauge": "", "counter": "_total"}


def text_of(families: Iterable[Metric]) -> bytes:
    """The families in the text format, in their order."""
    kept = list(families)  # as long as the ids of their labels are in use
    written: dict[int, str] = {}
    pages: list[str] = []
    for family in kept:
        suffix = _SUFFIXES.get(family.type)
        if suffix is None or any(sample.name != family.name + suffix for sample in family.samples):
            pages.append(generate_latest(_Alone(family)).decode())
            continue
        name = family.name + suffix
        lines = [f"# HELP {name} {_documentation(family.documentation)}\n# TYPE {name} {family.type}\n"]
        for sample in family.samples:
            labels = written.get(id(sample.labels))
            if labels is None:
                labels = written[id(sample.labels)] = _labels(sample.labels)
            value = float(sample.value)
            text = repr(value) if -_PLAIN < value < _PLAIN else _number(value)
            lines.append(f"{name}{labels} {text}\n")
        pages.append("".join(lines))
    return "".join(pages).encode()


class _Alone(CollectorRegistry):
    """One family, to be written as others are."""

    def __init__(self, family: Metric) -> None:
        super().__init__()
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return [self._family]


def _documentation(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = (
        (name, value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")) for name, value in labels.items()
    )
    return "{" + ",".join(f'{name}="{value}"' for name, value in sorted(escaped)) + "}"
