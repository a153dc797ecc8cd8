"""The stores on Azure when the network, the server or the credential is bad, on Azurite."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from leasehold.errors import StoreError, StoreUnavailable
from leasehold.model import Ask, Checkpoint, ConsumerGroup, Ownership, Presence
from leasehold.stores import open_store
from leasehold.stores.azure.access import BLOB, TABLE, read_url
from leasehold.stores.azure.blob import BlobStore
from leasehold.stores.azure.table import TableStore
from leasehold.stores.base import PipelineBinding, SchemaKeeper
from leasehold_testkit.contracts.stores.groups import ending_by_itself
from leasehold_testkit.contracts.stores.ownership_records import claim, records
from tests.stores.azurite import ACCOUNT, KEY, Azurite, started
from tests.stores.proxy import Proxy
from tests.waiting import NEVER

GROUP = ConsumerGroup("fleet.servicebus.windows.net", "flights")
AzureStore = BlobStore | TableStore


@dataclasses.dataclass
class Place:
    """A container or table of its own, behind a proxy."""

    proxy: Proxy
    url: str
    opened: list[AzureStore]

    def open(self, timeout: float = 60.0) -> AzureStore:
        if self.url.startswith("azblob"):
            self.opened.append(BlobStore(read_url(self.url, BLOB), timeout=timeout))
        else:
            self.opened.append(TableStore(read_url(self.url, TABLE), timeout=timeout))
        return self.opened[-1]


@pytest.fixture(params=["azblob", "aztable"])
def place(azurite: Azurite, request: pytest.FixtureRequest) -> Iterator[Place]:
    service = "blob" if request.param == "azblob" else "table"
    name = f"faults{secrets.token_hex(4)}"
    if service == "blob":
        azurite.make_container(name)
    else:
        azurite.make_table(name)
    port = azurite.port(service)
    proxy = Proxy(port)
    url = azurite.url(request.param, name).replace(f"%3A{port}%2F", f"%3A{proxy.port}%2F")
    assert str(proxy.port) in url
    made = Place(proxy, url, [])
    yield made
    proxy.close()
    for store in made.opened:
        store.close()


# Answers that are lost


def test_a_write_whose_answer_is_lost_is_known_again(place: Place) -> None:
    store = place.open()
    place.proxy.losing = b"ownerid"
    for attempt in range(3):
        group = dataclasses.replace(GROUP, name=f"g{attempt}")
        place.proxy.answers_to_lose = 1
        claimed = claim(store, group)
        place.proxy.answers_to_lose = 1
        [renewed] = store.renew_ownership([claimed])
        assert records(store, group) == {"0": renewed}
        place.proxy.answers_to_lose = 1
        assert store.renew_ownership([claimed]) == [], "a lost race stays a lost race"
        assert records(store, group) == {"0": renewed}
        place.proxy.answers_to_lose = 0
    assert place.proxy.lost >= 6


def test_a_checkpoint_whose_answer_is_lost(place: Place) -> None:
    store = place.open()
    place.proxy.losing = b"sequencenumber"
    place.proxy.answers_to_lose = 1
    assert store.raise_owner_level([Checkpoint(GROUP, "0", 1, 1, "10")]) == [Checkpoint(GROUP, "0", 1, 1, "10")]
    place.proxy.answers_to_lose = 1
    assert store.update_checkpoints([Checkpoint(GROUP, "0", 2, 1, "20")]) == []
    assert store.list_checkpoints(GROUP) == [Checkpoint(GROUP, "0", 2, 1, "20")]
    assert place.proxy.lost == 2


@pytest.mark.more
def test_some_renewals_that_fail_take_no_other_with_them(place: Place) -> None:
    store = place.open(timeout=10.0)
    held = store.claim_ownership([Ownership(GROUP, str(p), "me" if p else "victim", 1) for p in range(8)])
    assert len(held) == 8
    place.proxy.losing, place.proxy.answers_to_lose = b"victim", 1000
    assert {one.partition for one in store.renew_ownership(held)} == {str(p) for p in range(1, 8)}
    place.proxy.answers_to_lose = 0
    assert set(records(store, GROUP)) == {str(p) for p in range(8)}


# Servers that do not answer

CALLS: dict[str, Callable[[AzureStore], object]] = {
    "list": lambda store: store.list_ownership(GROUP),
    "claim": lambda store: store.claim_ownership([Ownership(GROUP, str(p), "me", 1) for p in range(40)]),
    "renew": lambda store: store.renew_ownership([Ownership(GROUP, "0", "me", 1, '"etag"')], Presence(GROUP, "me")),
    "relinquish": lambda store: store.relinquish_ownership([Ownership(GROUP, "0", "me", 1, '"etag"')]),
    "withdraw": lambda store: store.withdraw_presence(GROUP, ["me"]),
    "ask": lambda store: store.ask([Ask(GROUP, "0", 1, "me")]),
    "withdraw asks": lambda store: store.withdraw_asks([Ask(GROUP, "0", 1, "me")]),
    "checkpoints": lambda store: store.list_checkpoints(GROUP),
    "raise": lambda store: store.raise_owner_level([Checkpoint(GROUP, "0", 1, 1)]),
    "update": lambda store: store.update_checkpoints([Checkpoint(GROUP, "0", 1, 1)]),
    "bind": lambda store: store.bind_pipeline(GROUP, PipelineBinding("p", "s")),
    "rebind": lambda store: store.rebind_pipeline(GROUP, PipelineBinding("p", "s")),
}


def test_every_call_gives_up_at_the_time_out(place: Place) -> None:
    place.proxy.hangs = True

    def gives_up(call: Callable[[AzureStore], object]) -> None:
        store = place.open(timeout=0.5)  # impatient: nobody answers it
        with (
            ending_by_itself(),
            pytest.raises(StoreUnavailable, match=f"{ACCOUNT}/faults.*(no answer|no time was left)") as raised,
        ):
            call(store)
        assert KEY not in str(raised.value)

    with ThreadPoolExecutor(len(CALLS)) as pool:
        assert len(list(pool.map(gives_up, CALLS.values()))) == len(CALLS)


@pytest.mark.timing
def test_thirty_two_renewals_stay_within_the_default_time_out(place: Place) -> None:
    store = place.open(timeout=3.0)
    held = store.claim_ownership([Ownership(GROUP, str(p), "me", 1) for p in range(32)])
    for _ in range(3):
        held = store.renew_ownership(held, Presence(GROUP, "me"))
        assert len(held) == 32


@pytest.fixture
def mortal() -> Iterator[Azurite]:
    server = started()
    yield server
    server.stop()


@pytest.mark.more
def test_a_server_that_is_killed_and_started_again(mortal: Azurite) -> None:
    mortal.make_container("stores")
    impatient = open_store(mortal.url("azblob", "stores"), timeout=2.0)  # impatient: called while it is away
    store = open_store(mortal.url("azblob", "stores"), timeout=NEVER)
    first = claim(store, GROUP, level=3)
    mortal.stop()
    for call in (CALLS["list"], CALLS["claim"], CALLS["update"]):
        # A machine that is busy has not refused the connection before the time is up.
        with pytest.raises(StoreUnavailable, match=r"stores: .*(connection|no answer within 2 s)"):
            call(impatient)  # type: ignore[arg-type]
    mortal.start()
    with pytest.raises(StoreError, match=r"no such container\. Make it first, with `leasehold init`"):
        store.list_ownership(GROUP)
    with pytest.raises(StoreError, match="no such container"):
        store.claim_ownership([Ownership(GROUP, "0", "me", 1)])
    assert isinstance(store, SchemaKeeper)
    for _ in range(2):
        assert store.create_schema() is None
    assert records(store, GROUP) == {}
    assert store.renew_ownership([first]) == []
    again = claim(store, GROUP, level=4)
    assert records(store, GROUP) == {"0": again}
    for one in (store, impatient):
        one.close()  # type: ignore[attr-defined]


# Credentials


def test_a_wrong_key_is_told_without_the_key(place: Place) -> None:
    place.url = place.url.replace(KEY[:10], "x" * 10)
    store = place.open()
    with pytest.raises(StoreError, match=r"answered 403 .*Check the credential") as raised:
        store.list_ownership(GROUP)
    assert not isinstance(raised.value, StoreUnavailable)
    shown = f"{raised.value!r} {store!r} {raised.value.__cause__!r}"
    assert "x" * 10 not in shown
    assert "sig=" not in shown


def test_everything_of_a_claim_comes_back(place: Place) -> None:
    store = place.open()
    wanted = Ownership(GROUP, "0", "a/1", 3, None, 0.0, "nonce", "b/2", 17, 2, "ValueError: é\n" * 3)
    [claimed] = store.claim_ownership([wanted])
    assert claimed == dataclasses.replace(wanted, etag=claimed.etag, last_modified=claimed.last_modified)
    assert records(store, GROUP) == {"0": claimed}
    [cut] = store.relinquish_ownership([dataclasses.replace(claimed, last_error="é" * 100_000)])
    assert 500 < len(cut.last_error) < 1000
    assert records(store, GROUP) == {"0": cut}
