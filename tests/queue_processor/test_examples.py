"""The examples with queues run: the program against `leasehold serve`, the function as its host calls it."""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import LeaseholdError
from leasehold.leases import EntityLeases
from leasehold_testkit.clock import ManualClock
from tests.cli.served import serving
from tests.handlers.processes import expire_leases
from tests.repository import ROOT
from tests.waiting import NEVER, PATIENCE

EXAMPLES = ROOT / "examples"
functions: Any = pytest.importorskip("azure.functions")


@pytest.mark.more
def test_the_program_against_served_queues(tmp_path: Path) -> None:
    with serving(f"servicebus:///{tmp_path}/bus.db", "--json", "--queue", "orders") as server:
        assert server.stdout is not None
        said = json.loads(server.stdout.readline())
        environment = os.environ | {"LEASEHOLD_SERVICE_BUS_CONNECTION_STRING": said["connectionString"]}
        ran = subprocess.run(
            [
                sys.executable,
                EXAMPLES / "queue_processor.py",
                f"servicebus://127.0.0.1:{said['port']}/orders",
                tmp_path,
            ],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    totals = [f"o{order} {sum(range(order, 100, 5))}" for order in range(5)]
    assert ran.stdout.splitlines() == [*totals, "sent twice, and dropped: 10"]


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The function app, loaded as its host does."""
    monkeypatch.setenv("LEASE_STORE", f"sqlite:////{tmp_path}/leases.db")
    monkeypatch.setenv("ORDERS_DATABASE", str(tmp_path / "orders.db"))
    monkeypatch.setenv("LEASE_WAIT", "0.2")
    spec = importlib.util.spec_from_file_location("function_app", EXAMPLES / "azure_functions" / "function_app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.leases()
    yield module
    made.close()


def hosted(app: Any) -> Callable[[str, int, int], None]:
    """Call the app's function with a message that is made of what its host sends."""
    from azure.functions import meta
    from azure.functions.servicebus import ServiceBusMessageInConverter

    (function,) = app.app.get_functions()
    trigger = function.get_trigger()
    assert (trigger.type, trigger.queue_name) == ("serviceBusTrigger", "orders")

    def call(order_id: str, amount: int, number: int) -> None:
        body = meta.Datum(json.dumps({"order_id": order_id, "amount": amount}), "string")
        metadata = {"SequenceNumber": number, "MessageId": f"m{number}", "DeliveryCount": 1}
        told = {name: meta.Datum(json.dumps(value), "json") for name, value in metadata.items()}
        told |= {name: meta.Datum("{}", "json") for name in ("ApplicationProperties", "UserProperties")}
        message = ServiceBusMessageInConverter.decode(body, trigger_metadata=told)
        assert isinstance(message, functions.ServiceBusMessage)
        function.get_user_function()(**{trigger.name: message})

    return call


def totals(folder: Path) -> dict[str, int]:
    with closing(sqlite3.connect(folder / "orders.db")) as database:
        return dict(database.execute("SELECT id, total FROM orders"))


def test_a_function_adds_each_message_once_and_holds_nothing_between_calls(app: Any, tmp_path: Path) -> None:
    call = hosted(app)
    for order, amount, number in [("a", 1, 1), ("b", 5, 2), ("a", 2, 3), ("a", 2, 3)]:
        call(order, amount, number)
    assert totals(tmp_path) == {"a": 3, "b": 5}
    with closing(EntityLeases(f"sqlite:////{tmp_path}/leases.db", scope="orders", holder="other")) as other:
        with other.hold("a"), pytest.raises(LeaseholdError, match="other"):
            call("a", 4, 4)
        assert totals(tmp_path)["a"] == 3
        call("a", 4, 4)
    assert totals(tmp_path)["a"] == 7
    with pytest.raises(RuntimeError, match="a later holder has written"):
        app.add("a", 1, 5, fence=1)
    app.add("a", 1, 5, fence=99)
    assert totals(tmp_path)["a"] == 8


def test_a_worker_that_was_paused_between_calls_until_its_session_died_goes_on(
    app: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, store = ManualClock(), os.environ["LEASE_STORE"]
    with closing(EntityLeases(store, scope="orders", holder="me", duration=NEVER, clock=clock)) as leases:
        monkeypatch.setattr(app, "leases", lambda: leases)
        call = hosted(app)
        call("a", 1, 1)
        clock.advance(NEVER)
        expire_leases(tmp_path / "leases.db", "me")
        call("a", 2, 2)
        assert totals(tmp_path) == {"a": 3}
