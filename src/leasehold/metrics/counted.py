"""What is counted between scrapes: plain numbers by the value of one label, made into Prometheus's families when asked.

Owns the numbers of counters and histograms. Counting is on the way of every batch and a scrape is rare, so counting
adds to a number in a dictionary, and the families are made at the scrape. Promises nothing of threads: whoever counts
and whoever scrapes hold one lock of theirs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

_text: Callable[[float], str] = floatToGoString


class Counted:
    """A counter. `label` is the name of its one label, `""` where it has none; `values` are those that begin at 0."""

    __slots__ = ("_documentation", "_label", "_name", "_values")

    def __init__(self, name: str, documentation: str, label: str = "", values: Iterable[str] = ()) -> None:
        self._name, self._documentation, self._label = name, documentation, label
        self._values: dict[str, float] = dict.fromkeys(values if label else ("",), 0)

    def add(self, count: float, value: str = "") -> None:
        """Count more, for this value of the label."""
        values = self._values
        values[value] = values.get(value, 0) + count

    def family(self) -> Metric:
        """What has been counted."""
        labels = [self._label] if self._label else []
        family = CounterMetricFamily(self._name, self._documentation, labels=labels)
        for value, count in self._values.items():
            family.add_metric([value] if self._label else [], count)
        return family


class Timed:
    """A histogram of seconds with one label, `buckets` being their upper ends; `values` are those that begin at 0."""

    __slots__ = ("_buckets", "_documentation", "_ends", "_label", "_name", "_series")

    def __init__(
        self, name: str, documentation: str, label: str, buckets: Sequence[float], values: Iterable[str] = ()
    ) -> None:
        self._name, self._documentation, self._label = name, documentation, label
        self._buckets = tuple(buckets)
        self._ends = [_text(end) for end in (*buckets, float("inf"))]
        self._series: dict[str, _Series] = {value: _Series(len(self._ends)) for value in values}

    def observe(self, seconds: float, value: str) -> None:
        """Count an observation, for this value of the label."""
        series = self._series.get(value)
        if series is None:
            series = self._series[value] = _Series(len(self._ends))
        series.counts[bisect_left(self._buckets, seconds)] += 1
        series.sum += seconds

    def family(self) -> Metric:
        """What has been observed."""
        family = HistogramMetricFamily(self._name, self._documentation, labels=[self._label])
        for value, series in self._series.items():
            family.add_metric([value], list(zip(self._ends, accumulate(series.counts), strict=True)), series.sum)
        return family


class _Series:
    """How many observations fell into each bucket, the last being without end, and their sum."""

    __slots__ = ("counts", "sum")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.sum = 0.0
