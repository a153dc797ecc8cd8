"""A token as the password of a Postgres role, with a credential made here on a real server that asks for passwords."""

from __future__ import annotations

import logging
import re
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from leasehold.database.postgres.azure_token import SCOPE, without_auth
from leasehold.database.postgres.connections import Connections
from leasehold.errors import ConfigError, MissingDependency, StoreUnavailable, Verdict
from leasehold.installation import command_for
from leasehold.model import ConsumerGroup
from leasehold.sinks import TableSpec, open_sink
from leasehold.stores import open_store
from leasehold.stores.postgres.store import PostgresStore
from tests.sinks.events import E, batch
from tests.stores.servers import PostgresServer
from tests.waiting import until

GROUP = ConsumerGroup("", "hub", "$Default")


class Credential:
    """Gives the token that the test has set, and counts."""

    token = ""
    asked = 0
    failure: Exception | None = None

    def get_token(self, *scopes: str) -> Any:
        assert scopes == (SCOPE,)
        type(self).asked += 1
        if self.failure is not None:
            raise self.failure
        return SimpleNamespace(token=self.token)

    def close(self) -> None:
        """Has nothing open."""


class Role:
    """A role of the server that has to give its password, and the database's URL for it."""

    def __init__(self, server: PostgresServer, admin: psycopg.Connection[Any]) -> None:
        self.name, self._admin = f"azure_{secrets.token_hex(4)}", admin
        admin.execute(f"CREATE ROLE {self.name} LOGIN".encode())
        admin.execute(f"CREATE SCHEMA {self.name} AUTHORIZATION {self.name}".encode())
        admin.execute(f"ALTER ROLE {self.name} SET search_path = {self.name}".encode())  # others made tables in public
        self.url = server.url.replace("postgres:@", f"{self.name}@") + "&auth=azure"
        self.issue("first")

    def issue(self, token: str) -> None:
        """From now on this token is good, and no other."""
        self._admin.execute(f"ALTER ROLE {self.name} PASSWORD '{token}'".encode())
        Credential.token = token

    def disconnect(self) -> None:
        """Let the server close the role's connections."""
        self._admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s", [self.name]
        )


@pytest.fixture
def role(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Role]:
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", Credential)
    Credential.asked, Credential.failure = 0, None
    with psycopg.connect(postgres_server.url, autocommit=True) as admin:
        role = Role(postgres_server, admin)
        [[hba]] = admin.execute("SHOW hba_file").fetchall()
        rules = Path(hba)
        before = rules.read_text()
        rules.write_text(f"local all {role.name} scram-sha-256\n{before}")
        admin.execute("SELECT pg_reload_conf()")
        until(lambda: _is_asked(role), "the server to ask for a password")
        yield role
        rules.write_text(before)
        admin.execute("SELECT pg_reload_conf()")
        admin.execute(f"DROP OWNED BY {role.name} CASCADE".encode())
        admin.execute(f"DROP ROLE {role.name}".encode())


def _is_asked(role: Role) -> bool:
    """Whether the server asks the role for its password yet."""
    try:
        psycopg.connect(without_auth(role.url)[0]).close()
    except psycopg.OperationalError:
        return True
    return False


def test_each_connection_of_store_and_table_asks_for_a_token(
    role: Role, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "of another")
    caplog.set_level(logging.DEBUG)
    store = PostgresStore(role.url)
    table = open_sink(role.url, TableSpec(name="flights", pipeline="p", keys=("tail",)))
    assert list(store.list_ownership(GROUP).records) == []
    assert table.apply(batch([E("a")])).applied == 1
    asked = Credential.asked
    assert table.apply(batch([E("a", number=1)])).applied == 1
    assert Credential.asked == asked  # the connection that is there is used
    role.issue("second")
    role.disconnect()
    assert table.apply(batch([E("a", number=2)])).applied == 1
    assert list(store.list_ownership(GROUP).records) == []
    assert Credential.asked > asked
    Credential.token = "stale"  # noqa: S105
    role.disconnect()
    with pytest.raises(StoreUnavailable, match="password authentication failed") as refused:
        store.list_ownership(GROUP)
    for told in (caplog.text, str(refused.value), repr(store), repr(table)):
        assert not any(token in told for token in ("first", "second", "stale"))
    store.close()
    table.close()


def test_a_credential_that_fails_is_an_outage_that_says_what_to_check(role: Role) -> None:
    from azure.core.exceptions import ServiceRequestError
    from azure.identity import CredentialUnavailableError

    store = PostgresStore(role.url)
    for failure, lasts in ((ServiceRequestError("secret"), False), (CredentialUnavailableError("secret"), True)):
        Credential.failure = failure
        with pytest.raises(StoreUnavailable, match=r"azure-identity has given no token .*az login") as failed:
            store.list_ownership(GROUP)
        assert "secret" not in str(failed.value)
        assert (failed.value.verdict is Verdict.MEND) is lasts
    Credential.failure = None
    assert list(store.list_ownership(GROUP).records) == []
    store.close()


def test_without_azure_identity_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    with pytest.raises(MissingDependency, match=re.escape(command_for("azure"))):
        open_store("postgresql://me@localhost/db?auth=azure")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://me@localhost/db?auth=aws", "auth=azure"),
        ("postgresql://me@localhost/db?auth=azure&auth=azure", "auth=azure"),
        ("postgresql://me:s3cret@localhost/db?auth=azure", "has another"),
        ("postgresql://me@localhost,db.example/db?auth=azure", "unencrypted"),
        ("postgresql://me@db.example/db?auth=azure&sslmode=prefer", "unencrypted"),
    ],
)
def test_what_would_give_the_token_away_is_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        open_store(url)
    assert "s3cret" not in str(refused.value)


def test_the_option_is_ours_and_the_rest_is_libpqs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", Credential)
    assert without_auth("postgresql://a:1,b:2/db?auth=azure&sslmode=require") == (
        "postgresql://a:1,b:2/db?sslmode=require",
        True,
    )
    assert without_auth("postgresql://h/db?auth=azure") == ("postgresql://h/db", True)
    assert without_auth("postgresql://h/db?options=auth=azure") == ("postgresql://h/db?options=auth=azure", False)
    Connections("postgresql://me@a.example,b.example/db?auth=azure&sslmode=verify-full", 1.0, lambda _: None).close()
