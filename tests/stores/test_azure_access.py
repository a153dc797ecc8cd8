"""URLs of stores on Azure, names there, and the lease blobs of the oldest processors."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from urllib.parse import quote

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.storage.blob import ContainerClient
from click.testing import CliRunner

from leasehold.cli.app import app
from leasehold.errors import ConfigError, StoreError
from leasehold.model import Checkpoint, ConsumerGroup
from leasehold.stores import open_store
from leasehold.stores.azure.access import BLOB, TABLE, read_url
from leasehold.stores.azure.names import ANY_CASE, LOWER, blob_folder, decode, encode, table_key
from leasehold.stores.azure.old_checkpoints import old_checkpoints
from leasehold_testkit.contracts.stores.groups import HOSTILE_NAMES
from tests.stores.azurite import Azurite

HIDDEN = "c2VjcmV0LWtleQ=="
STRING = f"DefaultEndpointsProtocol=https;AccountName=shop;AccountKey={HIDDEN};EndpointSuffix=core.windows.net"
IN_URL = f"connection_string={quote(STRING, safe='')}"
SAS = "sv=2024-11-04&ss=b&sp=rwdl&sig=c2VjcmV0%2Fsig%3D"
FROM_STRING = {"AZURE_STORAGE_CONNECTION_STRING": STRING}


@pytest.mark.parametrize(
    ("url", "environment", "endpoint", "credential"),
    [
        (f"azblob://shop/fleet?{IN_URL}", {}, "https://shop.blob.core.windows.net", AzureNamedKeyCredential),
        ("azblob://shop/fleet", FROM_STRING, "https://shop.blob.core.windows.net", AzureNamedKeyCredential),
        (f"azblob://shop/fleet?{SAS}", FROM_STRING, "https://shop.blob.core.windows.net", AzureSasCredential),
        (
            "azblob://shop/fleet",
            {"AZURE_STORAGE_SAS_TOKEN": f"?{SAS}"},
            "https://shop.blob.core.windows.net",
            AzureSasCredential,
        ),
        (
            f"azblob://shop/fleet?endpoint=https://shop.blob.core.usgovcloudapi.net&{SAS}",
            {},
            "https://shop.blob.core.usgovcloudapi.net",
            AzureSasCredential,
        ),
    ],
)
def test_the_first_credential_that_is_there_is_taken(
    url: str, environment: dict[str, str], endpoint: str, credential: type
) -> None:
    access = read_url(url, BLOB, environment)
    assert (access.where, access.endpoint, access.place) == ("azblob://shop/fleet", endpoint, "fleet")
    assert isinstance(access.credential, credential)
    assert "c2VjcmV0" not in repr(access)


def test_a_sas_comes_out_as_it_went_in() -> None:
    credential = read_url(f"azblob://shop/fleet?{SAS}", BLOB, {}).credential
    assert isinstance(credential, AzureSasCredential)
    assert credential.signature == SAS


@pytest.mark.parametrize("environment", [{}, FROM_STRING])
def test_the_default_credential(environment: dict[str, str]) -> None:
    url = "aztable://shop/fleet?credential=default" if environment else "aztable://shop/fleet"
    access = read_url(url, TABLE, environment)
    assert access.endpoint == "https://shop.table.core.windows.net"
    assert type(access.credential).__name__ == "DefaultAzureCredential"


@pytest.mark.parametrize(
    ("url", "environment", "message"),
    [
        ("azblob://shop", {}, "a URL of this kind is azblob://ACCOUNT/CONTAINER"),
        ("azblob://shop/a/b", {}, "a URL of this kind is"),
        ("azblob://shop/Fleet", {}, "lower-case letters"),
        ("azblob://shop.blob.core.windows.net/fleet", {}, "Give the account's name alone"),
        (f"azblob://user:{HIDDEN}@shop/fleet", {}, "a URL of this kind is"),
        ("azblob://shop/fleet?conection_string=x", {}, "unknown option conection_string"),
        (f"azblob://shop/fleet?{IN_URL}&{SAS}", {}, "names a SAS and connection_string"),
        (f"azblob://shop/fleet?{IN_URL}&credential=default", {}, "names connection_string and credential=default"),
        (f"azblob://shop/fleet?credential={HIDDEN}", {}, "credential=default is all that this option may be"),
        ("azblob://other/fleet", FROM_STRING, "is of the account shop.*credential=default"),
        ("azblob://shop/fleet?connection_string=Endpoint%3Dx", {}, "AccountName and AccountKey"),
        (f"azblob://shop/fleet?endpoint=http://shop.example&{SAS}", {}, "a SAS would go over plain http"),
        ("azblob://shop/fleet?endpoint=http://127.0.0.1:10000/shop", {}, "a token would go over plain http"),
        (f"azblob://shop/fleet?endpoint=ftp://shop&{SAS}", {}, "endpoint is an http or https URL"),
    ],
)
def test_what_cannot_work_is_refused(url: str, environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        read_url(url, BLOB, environment)
    assert HIDDEN not in str(refused.value)
    assert "c2VjcmV0" not in str(refused.value)


@pytest.mark.parametrize("plain", [LOWER, ANY_CASE])
def test_names_are_told_apart_and_come_back(plain: object) -> None:
    encoded = [encode(name, plain) for name in ("", *HOSTILE_NAMES)]  # type: ignore[arg-type]
    assert len(set(encoded)) == len(encoded)
    assert [decode(text) for text in encoded] == ["", *HOSTILE_NAMES]


def test_names_of_event_hubs_are_spelled_as_the_official_processors_spell_them() -> None:
    group = ConsumerGroup("Shop.ServiceBus.windows.net", "Orders_v2", "$Default")
    assert blob_folder(group) == "shop.servicebus.windows.net/orders_v2/$default"
    assert table_key(group) == "Shop.ServiceBus.windows.net Orders_v2 $Default"
    elsewhere = ConsumerGroup("cluster", "MkU3OEVB", "$Default")
    assert blob_folder(elsewhere) == "cluster/~4dk~553~4f~45~56~42/$default"
    assert blob_folder(ConsumerGroup("cluster", "h", "$default")) != blob_folder(ConsumerGroup("cluster", "h"))


def test_names_as_go_and_rust_spell_them() -> None:
    group = ConsumerGroup("Shop.ServiceBus.windows.net", "Orders_v2", "$Default")
    assert blob_folder(group, as_spelled=True) == "Shop.ServiceBus.windows.net/Orders_v2/$Default"
    access = read_url(f"azblob://shop/fleet?names=as-spelled&{SAS}", BLOB, {})
    assert access.as_spelled
    assert access.where == "azblob://shop/fleet?names=as-spelled", "who names it otherwise names another place"
    assert not read_url(f"azblob://shop/fleet?names=lower&{SAS}", BLOB, {}).as_spelled
    for url, service in (("azblob://shop/fleet?names=upper", BLOB), ("aztable://shop/fleet?names=lower", TABLE)):
        with pytest.raises(ConfigError, match="names is one of lower, as-spelled"):
            read_url(f"{url}&{SAS}", service, {})


@pytest.mark.parametrize(
    ("namespace", "folder"),
    [
        ("127.0.0.1:5699", "127.0.0.1:5699"),
        ("Emulator.Local:5672", "emulator.local:5672"),
        ("[::1]:5672", "[::1]:5672"),
        ("localhost", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
    ],
)
def test_a_server_that_is_no_namespace_is_called_as_others_call_it(namespace: str, folder: str) -> None:
    assert blob_folder(ConsumerGroup(namespace, "Flights", "$Default")) == f"{folder}/flights/$default"
    ours_alone = blob_folder(ConsumerGroup("127.0.0.1:5699", "flights@1700000000000", "$Default"))
    assert ours_alone == "127.0.0.1~3a5699/flights~401700000000000/$default", "records that are there keep their names"


def test_lease_blobs_of_the_oldest_processors(azurite: Azurite, tmp_path: Path) -> None:
    name = f"old-{secrets.token_hex(4)}"
    azurite.make_container(name)
    url, group = azurite.url("azblob", name), ConsumerGroup("shop.servicebus.windows.net", "orders", "$Default")
    leases = {
        "0": {"PartitionId": "0", "Owner": "host-1", "Token": "t", "Epoch": 7, "Offset": "8589", "SequenceNumber": 41},
        "1": {"partitionId": "1", "owner": "", "token": "", "epoch": 2, "offset": "12", "sequenceNumber": 3},
        "2": {"PartitionId": "2", "Owner": "", "Token": "", "Epoch": 0, "Offset": None, "SequenceNumber": 0},
    }
    with ContainerClient.from_connection_string(azurite.connection_string, name) as container:
        for partition, lease in leases.items():
            blob = container.upload_blob(f"$Default/{partition}", json.dumps(lease).encode())
            if partition == "0":
                blob.acquire_lease(15)  # reading does not ask for it
            container.upload_blob(f"shop/orders/$Default/{partition}", json.dumps(lease).encode())
        wanted = [Checkpoint(group, "0", 41, 7, "8589"), Checkpoint(group, "1", 3, 2, "12")]
        assert old_checkpoints(url, group) == old_checkpoints(url, group, folder="shop/orders/") == wanted
        command = ["checkpoints", "import", f"sqlite:///{tmp_path / 'new.db'}", url, "--group", str(group)]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        assert open_store(f"sqlite:///{tmp_path / 'new.db'}").list_checkpoints(group) == wanted
        other = CliRunner().invoke(app, [*command, "--folder", "nowhere"])
        assert other.exit_code == 1
        assert "there is no lease blob of consumer group '$Default'" in other.output
        assert "AccountKey" not in other.output
        container.upload_blob("$Default/3", b"no lease")
        with pytest.raises(StoreError, match=r"\$Default/3: not the lease of an event processor"):
            old_checkpoints(url, group)
