"""The endpoint of a process that has instances: `/metrics`, `/livez`, `/readyz` and `/status` on one port.

Owns what they answer: 200 or 503 for the two in the middle, with the reason as text, for probes of Kubernetes and the
like; `/status` has the same as JSON, with owner ids and what is held. It answers from what notices have told, so that a
store or hub that hangs keeps no probe waiting.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Self

from leasehold.clock import Clock, SystemClock
from leasehold.listening import Address
from leasehold.metrics.exposition import CONTENT_TYPE, text_of
from leasehold.metrics.health import Health, InstanceHealth
from leasehold.metrics.instance import InstanceMetrics
from leasehold.metrics.server import JSON, Answer, HttpServer
from leasehold.notices import Notices


class MetricsServer:
    """Serves the metrics and the health of the instances that tell `notices`, at `listen`, until it is closed.

    `clock` is the one that the instances have. Raises `ConfigError` that names `field` where it cannot listen.
    """

    def __init__(
        self,
        notices: Sequence[Notices],
        listen: Address,
        *,
        field: str = "listen",
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._metrics = InstanceMetrics(self._clock)
        self._health = [InstanceHealth(one, self._clock) for one in notices]
        self._ends = [self._metrics.watch(one) for one in notices]
        routes = {
            "/metrics": lambda: Answer(text_of(self._metrics.registry.collect()), CONTENT_TYPE),
            "/livez": lambda: self._probe(lambda health: health.alive),
            "/readyz": lambda: self._probe(lambda health: health.ready),
            "/status": self._status,
        }
        self._paths = tuple(routes)
        self._server = HttpServer(listen, routes, field=field)

    @property
    def paths(self) -> tuple[str, ...]:
        """What it answers to."""
        return self._paths

    @property
    def url(self) -> str:
        """What its paths begin with."""
        return self._server.url

    def close(self) -> None:
        """Listen no more, to requests and to notices."""
        self._server.close()
        for end in [*self._ends, *(health.end for health in self._health)]:
            end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _probe(self, good: Callable[[Health], bool]) -> Answer:
        answers = [health.now() for health in self._health]
        bad = [answer.why for answer in answers if not good(answer)]
        if bad:
            return Answer("".join(f"{why}\n" for why in bad).encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
        return Answer(b"ok\n")

    def _status(self) -> Answer:
        return Answer(json.dumps([self._document(one) for one in self._health]).encode(), JSON)

    def _document(self, health: InstanceHealth) -> dict[str, object]:
        answer, cycle, now = health.now(), health.last_cycle, self._clock.monotonic()
        return {
            "ownerId": None if cycle is None else cycle.owner_id,
            "alive": answer.alive,
            "ready": answer.ready,
            "why": answer.why,
            "lastError": health.last_error,
            "partitionCount": None if cycle is None else cycle.known,
            "partitions": {} if cycle is None else {p: round(until - now, 3) for p, until in cycle.holds.items()},
        }


def serve_metrics(*notices: Notices, listen: str = "127.0.0.1:9465") -> MetricsServer:
    """Serve the metrics and the health of the instances whose `notices` are given, at `listen` (`HOST:PORT`).

    For example `serve_metrics(processor.notices)`, before the instance is started. A context manager; `close` ends it.
    Port 0 takes a free one: `url` says which. Raises `ConfigError` where it cannot listen there.
    """
    return MetricsServer(notices, Address.parse(listen))
