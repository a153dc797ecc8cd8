"""The endpoint of another process, whose answers go into those of this one.

Owns the asking, and how series of several processes come together: counts are added up, of anything else the highest is
told, since one process alone has it (what is held, levels) or the latest is meant (times). An endpoint that does not
answer within `TIMEOUT`, or with what nobody can read, is away: it has no series then, and an old figure is never told
for a new one.

For any thread. Whoever asks waits `TIMEOUT` seconds at most for each step of one endpoint's answer.
"""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Iterable, Sequence
from copy import copy

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from leasehold.listening import Address

logger = logging.getLogger(__name__)

TIMEOUT = 2.0
_LONGEST = 16 * 2**20  # bytes of an answer
_COUNTS = frozenset({"counter", "histogram"})


class Beside:
    """The endpoint at `address`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._answered = True

    def __str__(self) -> str:
        return str(self._address)

    def metrics(self) -> list[Metric] | None:
        """Its families; None where it is away."""
        found = self._get("/metrics")
        if found is None:
            return None
        try:
            return list(text_string_to_metric_families(found[1]))
        except ValueError as error:
            logger.debug("%s tells no metrics: %s", self, error)
            return None

    def probe(self, path: str) -> tuple[bool, str] | None:
        """Whether its probe is good, and why not where it is not; None where it is away."""
        found = self._get(path)
        return None if found is None else (found[0] == http.client.OK, " ".join(found[1].split()))

    def status(self) -> list[object]:
        """What it tells of its instances; nothing where it is away."""
        found = self._get("/status")
        try:
            told = None if found is None else json.loads(found[1])
        except ValueError:
            told = None
        return told if isinstance(told, list) else []

    def _get(self, path: str) -> tuple[int, str] | None:
        connection = http.client.HTTPConnection(self._address.host, self._address.port, timeout=TIMEOUT)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            found = answer.status, answer.read(_LONGEST).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            if self._answered:  # once while it stays so
                logger.info("%s does not answer: %s", self, error)
            self._answered = False
            return None
        finally:
            connection.close()
        self._answered = True
        return found


def together(own_families: Iterable[Metric], other_families: Sequence[Iterable[Metric]]) -> list[Metric]:
    """One family of each name, with the series of all of them."""
    families = {family.name: family for family in own_families}
    for family in (one for those in other_families for one in those):
        known = families.get(family.name)
        if known is None and not family.name.endswith("_created"):  # the text has these apart, as gauges
            families[family.name] = family
        elif known is not None and known.type == family.type:
            families[family.name] = _joined(known, family)
    return list(families.values())


def _joined(first: Metric, second: Metric) -> Metric:
    samples = {_series(sample): sample for sample in first.samples}
    for sample in second.samples:
        series = _series(sample)
        before = samples.get(series)
        if before is not None:
            value = before.value + sample.value if first.type in _COUNTS else max(before.value, sample.value)
            sample = Sample(sample.name, sample.labels, value)
        samples[series] = sample
    joined = copy(first)
    joined.samples = list(samples.values())
    return joined


def _series(sample: Sample) -> tuple[str, frozenset[tuple[str, str]]]:
    return sample.name, frozenset(sample.labels.items())
