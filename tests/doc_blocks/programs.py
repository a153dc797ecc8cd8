"""What each program of the pages needs to run as it is written, and when it has done what it shows.

A block that goes on from one before it on its page gets that one first (`behind`). Names that are the reader's own
(`flights`, `later`) come from `given`; a block of lines from inside a function gets the function around it (`inside`);
`after` uses what the block defines.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.doc_blocks.fences import Block, block
from tests.doc_blocks.scene import Scene

DELAYS = [json.dumps({"flight": f"UA{n}", "delay": 1.5}) for n in range(100)]
ORDERS = [json.dumps({"order_id": f"o{n % 4}", "amount": 2, "version": n // 4 + 1}) for n in range(20)]


@dataclass(frozen=True)
class Program:
    """One block: its page, and what only it has there."""

    page: str
    has: str
    prepare: Callable[[Scene], object] = lambda scene: None
    ends: Callable[[Scene], object] | None = None
    """For a program that goes on until somebody stops it: when it has done its work."""
    behind: tuple[str, ...] = ()
    """Blocks of the page that come first: what only each of them has."""
    given: str = ""
    inside: str = ""
    """The head of a function around the block."""
    after: str = ""
    instead: Mapping[str, str] = field(default_factory=dict)
    """What the page leaves open, and what stands there."""
    needs: tuple[str, ...] = ()
    """Fixtures of servers."""
    soak: bool = False
    """Whether `make soak` runs it: those on Spark, but for that of the README."""

    @property
    def block(self) -> Block:
        return block(self.page, self.has)

    def text(self) -> str:
        own = self.block.text
        if self.inside:
            own = f"{self.inside}\n{textwrap.indent(own, '    ')}"
        before = [block(self.page, has).text for has in self.behind]
        text = "\n".join([textwrap.dedent(self.given), *before, own, textwrap.dedent(self.after)])
        for name, here in self.instead.items():
            assert name in text, f"{self.page}: no {name!r}"
            text = text.replace(name, here)
        return text

    def __str__(self) -> str:
        return f"{self.page} {self.has}"


def _sends(log: str, bodies: list[str], key: Callable[[int], str] = str) -> Callable[[Scene], None]:
    return lambda scene: scene.send(log, bodies, key)


def _all(*steps: Callable[[Scene], object]) -> Callable[[Scene], None]:
    def prepare(scene: Scene) -> None:
        for step in steps:
            step(scene)

    return prepare


def _has_rows(table: str, count: int) -> Callable[[Scene], bool]:
    return lambda scene: scene.ask(f"SELECT count(*) FROM {table}") == [(count,)]


def _pipeline_with_handler(scene: Scene) -> None:
    scene.send("orders.db", ORDERS, lambda n: f"o{n % 4}")
    scene.write("orders.toml", block("handlers.md", 'handler = "orders:order"').text)
    handler = block("handlers.md", "orders.level_of").text.partition("orders = HandledTable")[0]
    scene.write("orders.py", handler)


HANDLER = """
from leasehold.handlers import EntityEvent, HandledTable, Spread, entity

@entity(keys=["order_id"])
def order(state: dict | None, event: EntityEvent) -> dict:
    return {"total": event.row["amount"]}
"""
OPEN = (
    '"sqlite:///entities.db", table="orders", pipeline="orders", '
    'schema="order_id STRING, amount BIGINT, version BIGINT", state="order_id STRING, total BIGINT"'
)
SPARK = """
from leasehold.spark import EntityTable, MicroBatches, RowRules, open_session, read_bodies
spark = open_session("flights")
"""
LOOP = """
with MicroBatches(
    spark, hub="log:///flights.db", store="sqlite:///leasehold.db", pipeline="flights", available_now=True
) as batches:
"""
HTTP = """
import http.server, threading
class Rates(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"1.5")
    def log_message(self, *words): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Rates)
threading.Thread(target=server.serve_forever, daemon=True).start()
"""

PROGRAMS = (
    Program("README.md", "MicroBatches(", _sends("flights.db", DELAYS), _has_rows("flights", 100)),
    Program("event-hubs.md", "EventHubsServer("),
    Program(
        "event-processor.md",
        "print(context.partition, event.sequence_number, event.body)",
        _sends("events.db", ["first", "second"]),
        lambda scene: scene.printed.count("b'") == 2,
    ),
    Program(
        "event-processor.md",
        "context.fence_columns(event)",
        _sends("readings.db", [json.dumps({"sensor": f"s{n}", "value": 1}) for n in range(5)]),
        _has_rows("sensors", 5),
    ),
    Program(
        "event-processor.md",
        "for client in processor",
        _sends("events.db", ["a", "b", "c"]),
        lambda scene: scene.ask("SELECT 1 FROM leasehold_checkpoint WHERE sequence_number >= 0", "leasehold.db"),
    ),
    Program("extending.md", "LeaseStoreContract"),
    Program("extending.md", "HubContract"),
    Program("extending.md", "SinkContract"),
    Program("extending.md", "features: Features"),
    Program(
        "extending.md",
        "for piece in new",
        _all(_sends("flights.db", DELAYS), lambda scene: (scene.folder / "files").mkdir()),
        given=SPARK + 'flights = EntityTable("sqlite:///entities.db", "flights", keys=["flight"], pipeline="flights")',
        after=LOOP + "    for batch in batches:\n        both(batch.events, batch)",
        soak=True,
    ),
    Program(
        "handlers.md",
        "orders.level_of",
        _sends("orders.db", ORDERS, lambda n: f"o{n % 4}"),
        lambda scene: scene.ask("SELECT total FROM orders") == [("10.00",)] * 4,
    ),
    Program("handlers.md", 'handled_processor("orders.toml")', _pipeline_with_handler, _has_rows("orders", 4)),
    Program(
        "handlers.md",
        "HandledOnSpark(",
        _sends("orders.db", ORDERS, lambda n: f"o{n % 4}"),
        _has_rows("orders", 4),
        instead={
            "kafka://broker-1:9092/orders": "log:///orders.db",
            "postgresql://db-1/entities": "sqlite:///entities.db",
            "postgresql://db-1/leasehold": "sqlite:///leasehold.db",
        },
        soak=True,
    ),
    Program(
        "handlers.md",
        "opens=rates",
        given=HTTP,
        after="with rates() as opened: assert opened.get(f'http://127.0.0.1:{server.server_port}/').json() == 1.5",
    ),
    Program(
        "handlers.md",
        "failures=Failures(handler_timeout=5)",
        lambda scene: scene.write("orders.py", HANDLER),
        given="from leasehold.handlers import Failures, HandledTable\nfrom orders import order",
        instead={"…": OPEN},
    ),
    Program("handlers.md", 'late="apply"', given=HANDLER, instead={"postgresql://…": "sqlite:///entities.db"}),
    Program("handlers.md", "exclusive=", given=HANDLER, instead={", …,": f", {OPEN},"}, needs=("redis",)),
    Program(
        "handlers.md",
        "Gone(",
        inside="def handler(total, event):",
        after="from types import SimpleNamespace\nassert len(handler(5, SimpleNamespace(key='o1')).effects) == 2",
    ),
    Program(
        "handlers.md",
        "Emit({",
        inside="def handler(total, event):",
        after="from types import SimpleNamespace\nassert len(handler(5, SimpleNamespace(key='o1')).effects) == 1",
    ),
    Program("kafka.md", "open_hub(topic)", after="assert flights.totals.applied == 1", needs=("kafka",), soak=True),
    Program("leases.md", "EntityLeases("),
    Program(
        "moving-in.md",
        "def on_batch",
        given="""
            from types import SimpleNamespace
            from leasehold.leases import EntityLeases
            leases, other = (EntityLeases("memory://docs", scope="orders", holder=name) for name in ("one", "two"))
            handled, put_off = [], []
            handle = lambda event, fence: handled.append((event.order_id, fence > 0))
            later = put_off.append
        """,
        after="""
            events = [SimpleNamespace(order_id=f"o{n}") for n in (0, 1, 2, 1)]
            on_event(events[0])
            with other.hold("o2"):
                on_batch(events)
            assert handled == [("o0", True), ("o0", True), ("o1", True), ("o1", True)]
            assert put_off == [events[2]]
            assert len(other.acquire_many(["o0", "o1", "o2"])) == 3
        """,
    ),
    Program(
        "moving-in.md",
        "acquire_lease(15)  # 2",
        given="""
            import os
            from types import SimpleNamespace
            from azure.core.exceptions import HttpResponseError, ResourceExistsError
            from azure.storage.blob import BlobServiceClient
            service = BlobServiceClient.from_connection_string(os.environ["AZURITE"])
            container = service.get_container_client("locks-per-event")
            handled = []
            handle = handled.append
        """,
        after="""
            if not container.exists():
                container.create_container()
            event = SimpleNamespace(order_id="order-42")
            on_event(event)
            on_event(event)
            assert handled == [event, event]
        """,
        needs=("azurite",),
    ),
    Program("queues.md", "ServiceBusServer("),
    Program("queues.md", 'delivery=QueueDelivery(busy="wait")', ends=_has_rows("orders", 2), needs=("service_bus",)),
    Program(
        "queues.md",
        "orders?sessions=true",
        behind=('delivery=QueueDelivery(busy="wait")',),
        instead={'if __name__ == "__main__":': "def not_now():"},
        needs=("service_bus",),
    ),
    Program(
        "queues.md",
        "redis://leases.example:6379",
        given="""
            from leasehold.handlers import EntityEvent, entity
            from leasehold.processors.queues import QueueProcessor
        """,
        ends=_has_rows("orders", 2),
        instead={"postgresql://shop@db.example/shop": "sqlite:///entities.db"},
        needs=("service_bus", "redis"),
    ),
    Program(
        "queues.md",
        "def on_message",
        given="""
            import json, os
            from azure.core.exceptions import HttpResponseError
            from azure.servicebus import ServiceBusClient
            from azure.storage.blob import BlobServiceClient
        """,
        after="""
            service = BlobServiceClient.from_connection_string(os.environ["AZURITE"])
            container = service.get_container_client("states-per-order")
            if not container.exists():
                container.create_container()
            for order in ("o0", "o1"):
                container.upload_blob(order, '{"total": 1}', overwrite=True)
            bus = os.environ["LEASEHOLD_SERVICE_BUS_CONNECTION_STRING"]
            with ServiceBusClient.from_connection_string(bus) as client:
                with client.get_queue_receiver("orders") as receiver:
                    for message in receiver.receive_messages(max_message_count=2, max_wait_time=60):
                        on_message(receiver, container, message)
            assert json.loads(container.download_blob("o0").readall())["total"] > 1
        """,
        needs=("azurite", "service_bus"),
    ),
    Program(
        "spark.md",
        "for each in (signal.SIGINT, signal.SIGTERM)",
        _sends("flights.db", DELAYS),
        _has_rows("flights", 100),
        instead={
            "kafka://broker-1:9092/flights": "log:///flights.db",
            "postgresql://db-1/leasehold": "sqlite:///leasehold.db",
        },
        soak=True,
    ),
    Program(
        "spark.md",
        "from leasehold.spark\n",
        _sends("flights.db", DELAYS),
        given=SPARK + 'FENCE = ("hub", "partition", "sequenceNumber", "ownerLevel")',
        instead={"…\n": LOOP + "    for batch in batches:\n"},
        after="assert flights.totals.applied == 100",
        soak=True,
    ),
    Program(
        "spark.md",
        "**entities.stream_options()",
        _all(_sends("events.db", DELAYS), lambda scene: scene.run_cli("init", "sqlite:///leasehold.db")),
        _has_rows("flights", 100),
        behind=('.option("hub", "log:///events.db")\n    .option("store", "sqlite:///leasehold.db")\n    .load()',),
        given=SPARK,
        after="query.awaitTermination()",
        soak=True,
    ),
    Program("stores.md", 'open_store("sqlite:///leasehold.db")'),
    Program("stores.md", "azblob://shopstate/fleet"),
    Program("stores.md", 'open_lease_store("memory://docs")'),
    Program("table.md", "BodyReader("),
    Program("reference/formats.md", "avro = {"),
    Program("reference/formats.md", "proto = "),
    Program("reference/formats.md", "structured = b"),
    Program(
        "testkit/README.md",
        "LeaseStoreContract",
        lambda scene: scene.write("my_package.py", "class MyLeaseStore: ..."),
        after="assert TestLeases.store",
    ),
    Program(
        "watching.md",
        "serve_metrics(processor.notices",
        _all(_sends("events.db", ["a", "b"]), _sends("flights.db", DELAYS)),
        given=SPARK
        + """
from leasehold import EventProcessor
def on_events(batch, context):
    processor.stop(0)
processor = EventProcessor("log:///events.db", "sqlite:///leasehold.db", on_events)
flights = EntityTable("sqlite:///entities.db", "flights", keys=["flight"], pipeline="flights")
batches = MicroBatches(
    spark, hub="log:///flights.db", store="sqlite:///leasehold.db", pipeline="flights", available_now=True
)
""",
        instead={"127.0.0.1:9465": "127.0.0.1:0"},
        soak=True,
    ),
    Program(
        "watching.md",
        "beside=",
        _all(_sends("events.db", DELAYS), lambda scene: scene.run_cli("init", "sqlite:///leasehold.db")),
        given=SPARK
        + """
from leasehold.metrics import serve_metrics
table = EntityTable("sqlite:///entities.db", "flights", keys=["flight"], pipeline="flights")
""",
        after="server.close()",
        instead={
            "**table.stream_options()": '**table.stream_options(), hub="log:///events.db", store="sqlite:///leasehold.db"'
        },
        soak=True,
    ),
    Program(
        "watching.md",
        "from leasehold.tracing import Tracing",
        given="""
            from leasehold import Event, EventProcessor, open_hub, open_store
            from leasehold.hubs.log.hub import LogHub
            from types import SimpleNamespace
            from pathlib import Path
            hub, stores = LogHub.create(Path("traced.db"), partitions=1), "sqlite:///leasehold.db"
            events = [Event(b"1")]
            def on_events(batch, context): processor.stop(0)
            class Given(list):
                id = 1
                producers = staticmethod(lambda: ())
            batch = Given(events)
        """,
        after="processor.run()",
    ),
)
"""All programs of the pages but those that `accounts.py` names."""
