"""The endpoint of a process that has instances: `/metrics`, `/livez`, `/readyz` and `/status` on one port.

Owns what they answer: 200 or 503 for the two in the middle, with the reason as text, for probes of Kubernetes and the
like; `/status` has the same as JSON, with owner ids and what is held. It answers from what notices have told, so that a
store or hub that hangs keeps no probe waiting.

Where the parts of one thing live in several processes, as the source and the table of a streaming query, one of them
asks the others at each request (`beside`), and answers for all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Self

from prometheus_client.core import GaugeMetricFamily, Metric

from leasehold.clock import Clock, SystemClock
from leasehold.listening import Address
from leasehold.metrics.beside import Beside, together
from leasehold.metrics.exposition import CONTENT_TYPE, text_of
from leasehold.metrics.health import Health, InstanceHealth
from leasehold.metrics.instance import InstanceMetrics
from leasehold.metrics.server import JSON, HttpServer, MetricsResponse
from leasehold.notices import Notices


class MetricsServer:
    """Serves the metrics and the health of the instances that tell `notices`, at `listen`, until it is closed.

    `clock` is the one that the instances have. `beside` are endpoints of other processes, whose answers are part of its
    own. Raises `ConfigError` that names `field` where it cannot listen.
    """

    def __init__(
        self,
        notices: Sequence[Notices],
        listen: Address,
        *,
        field: str = "listen",
        clock: Clock | None = None,
        beside: Sequence[Address] = (),
    ) -> None:
        self._clock = clock or SystemClock()
        self._metrics = InstanceMetrics(self._clock)
        self._health = [InstanceHealth(one, self._clock) for one in notices]
        self._beside = [Beside(address) for address in beside]
        self._ends = [self._metrics.watch(one) for one in notices]
        routes = {
            "/metrics": lambda: MetricsResponse(text_of(self._families()), CONTENT_TYPE),
            "/livez": lambda: self._probe("/livez", lambda health: health.alive),
            "/readyz": lambda: self._probe("/readyz", lambda health: health.ready),
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

    def _families(self) -> Iterable[Metric]:
        mine = self._metrics.registry.collect()
        if not self._beside:
            return mine
        told = {str(one): one.metrics() for one in self._beside}
        up = GaugeMetricFamily(
            "leasehold_instance_beside_up",
            "Whether the endpoint of another process answers that this one asks too; without, its series are missing.",
            labels=["endpoint"],
        )
        for endpoint, families in told.items():
            up.add_metric([endpoint], families is not None)
        return [*together(mine, [families for families in told.values() if families is not None]), up]

    def _instances(self) -> list[InstanceHealth]:
        """Those of this process. Where other endpoints are merged in, a source that never had a dispatch cycle, such as
        an entity table, does not count as an instance."""
        return [one for one in self._health if not self._beside or one.has_cycles]

    def _probe(self, path: str, good: Callable[[Health], bool]) -> MetricsResponse:
        answers = [health.now() for health in self._instances()]
        bad = [answer.why for answer in answers if not good(answer)]
        for one in self._beside:
            told = one.probe(path)
            if told is None:
                bad += [f"{one} does not answer"] if path == "/readyz" else []
            elif not told[0]:
                bad.append(f"{one}: {told[1]}")
        if bad:
            return MetricsResponse("".join(f"{why}\n" for why in bad).encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
        return MetricsResponse(b"ok\n")

    def _status(self) -> MetricsResponse:
        told = [self._document(one) for one in self._instances()]
        others = [page for one in self._beside for page in one.status()]
        return MetricsResponse(json.dumps([*told, *others]).encode(), JSON)

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


def serve_metrics(*notices: Notices, listen: str = "127.0.0.1:9465", beside: str | Sequence[str] = ()) -> MetricsServer:
    """Serve the metrics and the health of the instances whose `notices` are given, at `listen` (`HOST:PORT`).

    For example `serve_metrics(processor.notices)`, before the instance is started. A context manager; `close` ends it.
    Port 0 takes a free one: `url` says which. `beside` has the addresses (`HOST:PORT`) of endpoints in other processes
    that do a part of the same work, as `metricsListen` of `format("leasehold")`: their series, probes and status are
    asked for at each request, and come together in this one. Raises `ConfigError` where it cannot listen there.
    """
    others = [beside] if isinstance(beside, str) else beside
    return MetricsServer(notices, Address.parse(listen), beside=[Address.parse(one, "beside") for one in others])
