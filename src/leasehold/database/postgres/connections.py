"""Connections to a Postgres server: deadlines, threads, forks, and servers that go away.

Owns every connection of a store or a sink and the translation of errors, into those that it names (`Errors`).
Promises that a call ends within the time-out whatever the server does (also one that is stopped, or that no packet
reaches any more), and that a server that is back is used again without anything being done about it. Refuses to send
anything again by itself unless the server has said that it rolled it back.

What these promises and all statements need of the server is set after connecting (`session_settings`). It is the
session's, so a pooler in between (PgBouncer) has to give each client a session of its own for as long as that is
connected (`pool_mode = session`, PgBouncer's default).

Concurrency. Any number of threads call at once; up to `MOST_CONNECTIONS` of them talk to the server, each on a
connection that is its own meanwhile, and the others wait. One request is one statement and its own
transaction, so that no lock outlives it: if this process stops for a minute, the server finishes the
statement and waits for nobody; if the server stops, the call raises at its deadline that the server is unavailable and
leaves the connection, and `statement_timeout` ends there what nobody waits for. A connection belongs to the
process that made it: a forked child makes its own, and never closes or uses an inherited one.
"""

from __future__ import annotations

import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg
from psycopg import conninfo
from psycopg.rows import TupleRow

from leasehold.backends import masked, say_unverified
from leasehold.backoff import Backoff, until_done
from leasehold.database.postgres.azure_token import AzureTokens, check_way, without_auth
from leasehold.database.postgres.place import RELATIONS, check_encoding, find_place, qualified
from leasehold.database.postgres.rights import lacking
from leasehold.database.postgres.session_settings import ENCODING, read_only_by, set_up, settings_of, split_options
from leasehold.database.postgres.troubles import in_a_function, is_denied, is_full, passes, remedy_of, verdict_on
from leasehold.environment import secret_from
from leasehold.errors import LeaseholdError, StoreError, StoreUnavailable, Verdict
from leasehold.printable import span
from leasehold.server_urls import bad_url, check_server_url
from leasehold.waiting import readable

logger = logging.getLogger(__name__)

MOST_CONNECTIONS = 4
"""To one server at a time, by one store in one process."""

PASSWORD = "PGPASSWORD"  # noqa: S105  the name of the variable
_FORM = "a Postgres URL is postgresql://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE, with options of libpq"
_TICK = 0.05  # how often a call that waits looks at its deadline
_PAUSES = Backoff(0.002, 0.05)
ROLLED_BACK = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
_UNKNOWN_HERE = re.compile(
    r"FATAL:.*(?:authentication failed|does not exist|no pg_hba\.conf entry|not permitted to log in|permission denied)"
)
"""What a server says that does not let this user in. In another language it is waited for a moment, as an outage."""
_LET_IN = (
    "Let the server take this user again (ALTER ROLE … PASSWORD, GRANT CONNECT, pg_hba.conf), or correct the URL or "
    "PGPASSWORD and start again"
)
_READ_ONLY = re.compile("session is read-only")
"""What libpq says of a server that answers, and takes no writes of this role by default."""
_KNOWS_PRIMARIES = 14_00_00
"""The release of libpq that can be asked for a primary server, whether its sessions are read only or not."""
_LOCKED = ". Another session holds a lock that this waits for: pg_locks and pg_stat_activity say which one"

T = TypeVar("T")
Row = tuple[Any, ...]


class _DeadlineMissed(Exception):
    """The server has not answered in time."""


class Connection(psycopg.Connection[TupleRow]):
    """Gives up waiting at its deadline. Closes itself when it is forgotten, in the process that made it."""

    deadline = math.inf
    process = 0
    schema = ""
    """Where our tables are, once that is known; each of their names in a statement is qualified by it."""

    def execute(self, query: Any, params: Any = None, **kwargs: Any) -> psycopg.Cursor[TupleRow]:
        return super().execute(qualified(query, self.schema) if self.schema else query, params, **kwargs)

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        kwargs["interval"] = _TICK
        return super().wait(_until(self.deadline, gen), *args, **kwargs)

    def __del__(self, *_: Any) -> None:
        if self.process == os.getpid() and not self.closed:
            self.close()


def _until(deadline: float, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    """The same conversation with the server, broken off at the deadline."""
    try:
        wanted = next(gen)
        while time.monotonic() < deadline:
            ready = yield wanted
            wanted = gen.send(ready)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise _DeadlineMissed


@dataclass(slots=True)
class _Process:
    """What one process has open."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    idle: list[Connection] = field(default_factory=list)
    slots: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(MOST_CONNECTIONS))


@dataclass(frozen=True, slots=True)
class Errors:
    """What is raised where the server does not answer, where it refuses a statement, and where a table is gone.

    `gone` is given the server's URL, as it is shown, and what it has said.
    """

    unavailable: type[LeaseholdError] = StoreUnavailable
    broken: type[LeaseholdError] = StoreError
    gone: Callable[[str, str], LeaseholdError] = lambda shown, said: StoreUnavailable(f"{shown}: {said}")


STORE = Errors()


class Connections:
    """The connections of one store or sink. `prepare` is run on each new one before it is used.

    `relations` are the tables and sequences by which the schema is found, unless `schema` names it; `settings` of the
    session come on top of those that the promises stand on.
    """

    def __init__(
        self,
        url: str,
        timeout: float,
        prepare: Callable[[Connection], None],
        *,
        errors: Errors = STORE,
        relations: Sequence[str] = RELATIONS,
        schema: str = "",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.shown = masked(url)
        self.timeout = timeout
        self._url = url
        self._errors = errors
        self._relations, self._schema = relations, schema
        plain, with_token = without_auth(url)
        self._parameters, stated = _parameters(plain, timeout, with_password=not with_token)
        self._settings = {**stated, **(settings or {})}
        if (mode := _unverified(self._parameters)) is not None:
            say_unverified(logger, self.shown, f"sslmode={mode}")
        if with_token:
            check_way(self.shown, self._parameters, away=bool(_hosts_away(self._parameters)))
        self._tokens = AzureTokens(self.shown, errors.unavailable) if with_token else None
        self._prepare = prepare
        self._processes: dict[int, _Process] = {}

    def rows(self, statement: str, values: dict[str, Any]) -> list[Row]:
        """Run one statement as one request and one transaction; return its rows."""
        return self.run(lambda connection: connection.execute(statement, values).fetchall())

    def run(self, use: Callable[[Connection], T]) -> T:
        """Use a connection until the deadline; again, if the server rolled back so that others could go on.

        Who knows that it takes longer sets the connection's `deadline` anew.
        """
        deadline = time.monotonic() + self.timeout

        def once() -> T:
            with self._translated(), self._connection(deadline) as connection:
                return use(connection)

        last = deadline - _PAUSES.longest  # so that the last try has some time left
        try:
            return until_done(once, lambda error: isinstance(error, RolledBack), deadline=last, pauses=_PAUSES)
        except RolledBack as rolled_back:
            raise self._errors.unavailable(
                f"{self.shown}: the server rolled back for others' sake until {span(self.timeout)} had passed "
                f"({rolled_back})"
            ) from rolled_back.__cause__

    @contextmanager
    def using(self) -> Iterator[Connection]:
        """A connection for this block alone, with errors translated; the block is not repeated.

        Its deadline is the time-out from now; who knows that the block takes longer sets it anew. Raises `RolledBack`
        where the server has undone all of it so that others could go on.
        """
        with self._translated(), self._connection(time.monotonic() + self.timeout) as connection:
            yield connection

    def once(self, use: Callable[[Connection], T]) -> T:
        """Use a connection of its own that has not been prepared."""
        alone = Connections(
            self._url, self.timeout, lambda _: None, errors=self._errors, relations=self._relations, schema=self._schema
        )
        try:
            return alone.run(use)
        finally:
            alone.close()

    def close(self) -> None:
        """Close what this process has open and does not use now. The store may be used again afterwards."""
        if self._tokens is not None:
            self._tokens.close()
        mine = self._processes.get(os.getpid())
        if mine is None:
            return
        with mine.lock:
            idle, mine.idle = mine.idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def _connection(self, deadline: float) -> Iterator[Connection]:
        mine = self._processes.setdefault(os.getpid(), _Process())  # those of a parent are kept, and left alone
        if not mine.slots.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise self._errors.unavailable(
                f"{self.shown}: other threads of this process used all {MOST_CONNECTIONS} connections for "
                f"{span(self.timeout)}"
            )
        try:
            connection = self._idle(mine) or self._open(deadline)
            connection.deadline = deadline
            try:
                yield connection
            except ROLLED_BACK:
                pass_on = True
                raise
            except BaseException as error:
                pass_on = isinstance(error, psycopg.Error) and not passes(error)
                raise
            else:
                pass_on = True
            finally:
                if pass_on and not connection.closed:
                    with mine.lock:
                        mine.idle.append(connection)
                else:
                    connection.close()
        finally:
            mine.slots.release()

    @staticmethod
    def _idle(process: _Process) -> Connection | None:
        """A connection that nobody uses and that the server has not closed, as far as can be seen from here."""
        while True:
            with process.lock:
                if not process.idle:
                    return None
                connection = process.idle.pop()
            if not readable(connection.fileno(), 0.0):  # what an idle connection has to read is a farewell
                return connection
            connection.close()

    def _open(self, deadline: float) -> Connection:
        """A new connection, made in a thread of its own: looking up a name and connecting know no deadline."""
        outcome: list[Connection | BaseException] = []
        decided = threading.Lock()
        done = threading.Event()

        def connect() -> None:
            made: Connection | BaseException
            try:
                given = self._parameters
                if self._tokens is not None:
                    given = {**given, "password": self._tokens.token()}
                made = _connected(given)
                made.process = os.getpid()
            except BaseException as error:  # noqa: BLE001  it is raised in the thread that waits
                made = error
            with decided:
                if done.is_set() and isinstance(made, Connection):
                    made.close()
                outcome.append(made)
                done.set()

        threading.Thread(target=connect, name="leasehold-connect", daemon=True).start()
        done.wait(max(0.0, deadline - time.monotonic()))
        with decided:
            done.set()
        if not outcome:
            raise _DeadlineMissed
        [made] = outcome
        if not isinstance(made, Connection):
            raise made
        try:
            made.deadline = deadline
            set_up(made, self._settings, self.shown)
            check_encoding(made, self.shown)
            made.schema = find_place(made, self.shown, self._relations, self._schema)
            self._prepare(made)
        except BaseException:
            made.close()
            raise
        return made

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except _DeadlineMissed:
            raise self._errors.unavailable(
                f"{self.shown}: no answer within {span(self.timeout)} (is the server running and reachable?)"
            ) from None
        except ROLLED_BACK as error:
            raise RolledBack(_first_line(error)) from error
        except psycopg.errors.QueryCanceled as error:
            raise self._errors.unavailable(
                f"{self.shown}: the server gave up after {span(self.timeout)} ({_first_line(error)})"
            ) from error
        except psycopg.Error as error:
            raise self._meaning(error) from error

    def _meaning(self, error: psycopg.Error) -> LeaseholdError:
        said = _first_line(error)
        if passes(error):
            if _UNKNOWN_HERE.search(str(error)):
                return self._errors.unavailable(f"{self.shown}: {said}. {_LET_IN}", verdict=Verdict.MEND)
            return self._errors.unavailable(f"{self.shown}: {said}{_LOCKED if error.sqlstate == '55P03' else ''}")
        if isinstance(error, psycopg.errors.UndefinedTable) and not in_a_function(error):
            return self._errors.gone(self.shown, said)
        if is_full(error):
            return self._errors.unavailable(f"{self.shown}: {said}. {remedy_of(error)}", verdict=Verdict.MEND)
        remedy = (self._lacking(said) if is_denied(error) else "") or remedy_of(error)
        return self._errors.broken(f"{self.shown}: {said}{f'. {remedy}' if remedy else ''}", verdict=verdict_on(error))

    def _lacking(self, text: str) -> str:
        """The right that this user lacks, as far as the server can be asked."""
        deadline = time.monotonic() + self.timeout
        with suppress(psycopg.Error, LeaseholdError, _DeadlineMissed), self._connection(deadline) as connection:
            return lacking(connection, connection.schema, text)
        return ""


class RolledBack(Exception):
    """The server rolled the statement back, and it may be sent again."""


def _connected(parameters: Mapping[str, Any]) -> Connection:
    """A connection to a server that takes writes, also where this role's are read only by default."""
    try:
        return Connection.connect(**parameters, autocommit=True)
    except psycopg.OperationalError as error:
        if not _READ_ONLY.search(str(error)) or psycopg.pq.version() < _KNOWS_PRIMARIES:
            raise
    made = Connection.connect(**{**parameters, "target_session_attrs": "primary"}, autocommit=True)
    try:
        if (whose := read_only_by(made)) is not None:
            raise psycopg.OperationalError(
                f"the server takes no writes: default_transaction_read_only is on, and comes from the {whose}. "
                "Leasehold waits until somebody has switched it off"
            )
    except BaseException:
        made.close()
        raise
    return made


def _first_line(error: psycopg.Error) -> str:
    """What the server says, without the lines that repeat values."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _parameters(url: str, timeout: float, *, with_password: bool) -> tuple[dict[str, Any], dict[str, str]]:
    """What to connect with, and what to set then: the URL's own settings, and those that the promises stand on."""
    check_server_url(url, _FORM)
    try:
        stated = conninfo.conninfo_to_dict(url)
    except psycopg.Error:  # libpq repeats parts of the URL
        raise bad_url(url, _FORM) from None
    if with_password and not stated.get("password") and (secret := secret_from(os.environ, PASSWORD)):
        stated["password"] = secret
    own, rest = split_options(str(stated.pop("options", None) or os.environ.get("PGOPTIONS", "")))
    parameters = {
        "application_name": "leasehold",
        "target_session_attrs": "read-write",
        **stated,
        "client_encoding": ENCODING,
        "options": rest,  # empty, or it is sent as it is: whoever asks for more than settings talks to a server
        "connect_timeout": max(2, math.ceil(timeout)),
    }
    return parameters, settings_of(own, timeout)


def _unverified(parameters: Mapping[str, Any]) -> str | None:
    """The `sslmode` that was asked for, if with it anybody may answer for a server that is not of this host."""
    mode = parameters.get("sslmode") or os.environ.get("PGSSLMODE")
    return mode if mode and _hosts_away(parameters) and mode not in ("verify-full", "verify-ca") else None


def _hosts_away(parameters: Mapping[str, Any]) -> list[str]:
    """The hosts of the URL that are not this one."""
    hosts = str(parameters.get("hostaddr") or parameters.get("host") or os.environ.get("PGHOST", "")).split(",")
    return [host for host in hosts if host not in ("", "localhost", "127.0.0.1", "::1") and not host.startswith("/")]
