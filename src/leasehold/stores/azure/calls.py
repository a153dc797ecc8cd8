"""Requests to an Azure service: many at once, within the store's time-out, with errors in our words.

Owns the threads and the deadlines. Promises that no call waits longer than the store's time-out, also when the
service accepts a connection and then says nothing: what has not answered by then is given up, and its thread
ends on a time-out of its own. The SDKs' own retries are switched off, since they know nothing of the deadline
and cannot tell a lost race from a lost answer (`records.py` can).

No message carries a URL, a signature or a key: errors are told by their code and the kind of the failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from contextlib import contextmanager
from typing import Any, TypeVar

import requests
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.core.pipeline.transport import RequestsTransport
from requests.adapters import HTTPAdapter

from leasehold.config import check_number
from leasehold.errors import LeaseholdError, StoreError, StoreUnavailable
from leasehold.printable import span

WORKERS = 16
"""How many requests of one store are under way at once."""

_LAST = 0.15  # of the time-out: with less of it left, the latest failure is told instead of another attempt

_MISSING = {"ContainerNotFound": "container", "TableNotFound": "table"}
_PASSING = {"ContainerBeingDeleted", "TableBeingDeleted", "ContainerDisabled", "ServerBusy", "OperationTimedOut"}
_LOST = (ResourceExistsError, ResourceModifiedError, ResourceNotFoundError)

A = TypeVar("A")
T = TypeVar("T")


class ConditionFailed(Exception):
    """The condition of a write did not hold, or the record to be read is not there. Never leaves this package."""


class Leased(StoreUnavailable):
    """Another program has leased the blob of a record: nobody can write the record until that lease ends.

    That lasts longer than any call, so that no call waits for it.
    """


class Deadline:
    """The end of a call, on the local monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._shortest = _LAST * seconds

    def left(self) -> float:
        """Seconds until the end."""
        return self._end - time.monotonic()

    @property
    def allows_another(self) -> bool:
        """Whether there is time for another attempt."""
        return self.left() > self._shortest

    def pause(self) -> None:
        """Wait a little before the next attempt."""
        time.sleep(max(0.0, min(0.1, self.left() / 4)))

    def request(self) -> dict[str, Any]:
        """The time-outs of one request: such that there is time for another one if it gets no answer."""
        share = 0.6 * max(self.left(), self._shortest)
        return {"connection_timeout": share, "read_timeout": share}


class Calls:
    """The threads of one store. `where` names it in messages, without secrets."""

    def __init__(self, where: str, timeout: float) -> None:
        check_number("timeout", timeout, above=0, rule="a duration above zero", remedy="3 s is the default")
        self.where = where
        self._timeout = timeout
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="leasehold-azure")

    def deadline(self) -> Deadline:
        """The end of a call that begins now."""
        return Deadline(self._timeout)

    def each(self, job: Callable[[A], T], items: Iterable[A], deadline: Deadline) -> list[T]:
        """Do the job for all items at once; return what it returns, in their order, or raise its first error."""
        results = []
        for outcome in self.outcomes(job, items, deadline):
            if isinstance(outcome, LeaseholdError):
                raise outcome
            results.append(outcome)
        return results

    def outcomes(self, job: Callable[[A], T], items: Iterable[A], deadline: Deadline) -> list[T | LeaseholdError]:
        """Do the job for all items at once, and wait until each is done, has failed or has run out of time."""
        running = [self._pool.submit(job, item) for item in items]
        outcomes: list[T | LeaseholdError] = []
        for future in running:
            try:
                outcomes.append(future.result(timeout=max(0.0, deadline.left())))
            except NotDone:
                future.cancel()
                outcomes.append(StoreUnavailable(f"{self.where}: no answer within {span(self._timeout)}"))
            except LeaseholdError as error:
                outcomes.append(error)
        return outcomes

    def make(self, request: Callable[..., object]) -> None:
        """Make the place that the store is in, by `request`, unless it is there."""

        def job(deadline: Deadline) -> None:
            try:
                with self.asking():
                    request(**deadline.request())
            except ConditionFailed:
                pass  # it is there

        deadline = self.deadline()
        self.each(job, [deadline], deadline)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Say in our words what a request in the block raises: `ConditionFailed`, `StoreUnavailable`, `StoreError`."""
        try:
            yield
        except AzureError as error:
            # The cause is not kept: its text may hold a URL with a signature in it.
            raise self._translated(error) from None

    def _translated(self, error: AzureError) -> Exception:
        code = getattr(error, "error_code", None) or ""
        code = str(getattr(code, "value", code))
        if isinstance(error, ClientAuthenticationError) and not error.status_code:
            return StoreError(f"{self.where}: no credential was found (azure-identity has tried all that it knows)")
        if not isinstance(error, HttpResponseError) or error.status_code is None:
            return StoreUnavailable(f"{self.where}: {_kind(error)}")
        if code in _MISSING:
            return StoreError(
                f"{self.where}: there is no such {_MISSING[code]}. Make it first, with `leasehold init` or the portal: "
                "it is not made here, since the credential of a worker should not need that right"
            )
        if (code not in _PASSING and isinstance(error, _LOST)) or error.status_code == 412:
            return ConditionFailed(code)
        answer = f"{self.where}: the service answered {error.status_code} {code}".rstrip()
        if error.status_code in (401, 403):
            return StoreError(f"{answer}. Check the credential, its rights on this place, and when it ends")
        if error.status_code >= 500 or error.status_code in (408, 429) or code in _PASSING:
            return StoreUnavailable(answer)
        return StoreError(answer)

    def close(self) -> None:
        """End the threads; those that wait for an answer end when they have it or give it up."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _kind(error: BaseException) -> str:
    """What went wrong on the way, without the text of the failure, which may hold a URL."""
    reason: BaseException | None = error
    while reason is not None:
        if isinstance(reason, ConnectionRefusedError):
            return "connection refused"
        if isinstance(reason, TimeoutError | requests.exceptions.Timeout) or "Timeout" in type(reason).__name__:
            return "no answer in time"
        reason = getattr(reason, "inner_exception", None) or reason.__cause__ or reason.__context__
    return f"no connection, or it broke ({type(error).__name__})"


def transport() -> RequestsTransport:
    """Connections for all threads of one store, without the SDK's habit of warning about more than ten."""
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(pool_connections=1, pool_maxsize=WORKERS))
    return RequestsTransport(session=session, session_owner=True)
