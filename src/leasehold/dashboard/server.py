"""The dashboard's server: Starlette and uvicorn, and nothing to decide.

Owns the addresses, the stream of changes and the headers of every answer. What is shown is made in `view`, who may ask
is decided in `access`. Changes are sent as server-sent events, each pipeline whole; a slow browser skips what is out of
date by then. A stream says something at least every 15 seconds, so that one that has ended is noticed.

Concurrency: the watches call `changed` from their threads; all else is in the event loop, which reads nothing but what
is ready, except for the history, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leasehold.dashboard.access import HEADERS, AccessDecision, PageAccess
from leasehold.dashboard.actions import Action, Actions, BadRequest
from leasehold.dashboard.watching import PipelineWatch
from leasehold.errors import LeaseholdError

ALIVE_EVERY = 15.0
LONGEST_FORM = 4_096
LONGEST_ACTION = 65_536
WINDOWS = {"30m": 1_800, "6h": 21_600, "24h": 86_400}
_PAGE = Path(__file__).parent / "page"
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Dashboard:
    """The application for these watches, by the names of their pipelines. `app` is what a server runs.

    `actions` are those that are allowed: none, unless said.
    """

    def __init__(
        self, watches: Mapping[str, PipelineWatch], access: PageAccess, actions: Mapping[str, Actions] | None = None
    ) -> None:
        self._watches = watches
        self._actions = actions or {}
        self._access = access
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Event] = set()
        self._ended = False
        routes = [
            Route("/", _file("index.html")),
            Route("/page.css", _file("page.css")),
            Route("/page.js", _file("page.js")),
            Route("/draw.js", _file("draw.js")),
            Route("/icon.svg", _file("icon.svg")),
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/events", self._events),
            Route("/now", self._now),
            Route("/history/{name}", self._history),
            Route("/actions/{name}", self._act, methods=["POST"]),
        ]
        starlette = Starlette(routes=routes, lifespan=self._lifespan)
        self.app: ASGIApp = _Guard(starlette, access)

    def changed(self) -> None:
        """Something new is there to be shown. For any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake)

    def end(self) -> None:
        """End all streams, so that the server can. For the event loop's thread, or a signal handler in it."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        for one in self._waiting:
            one.set()

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self._loop = asyncio.get_running_loop()
        for watch in self._watches.values():
            watch.start()
        try:
            yield
        finally:
            for watch in self._watches.values():
                watch.stop()
            for watch in self._watches.values():
                await run_in_threadpool(watch.join, 5.0)

    async def _now(self, request: Request) -> Response:
        return JSONResponse([self._shown(watch) for watch in self._watches.values()])

    def _shown(self, watch: PipelineWatch) -> dict[str, Any]:
        return {**watch.latest[1], "actions": watch.name in self._actions}

    async def _act(self, request: Request) -> Response:
        actions = self._actions.get(request.path_params["name"])
        if actions is None:
            return PlainTextResponse("this dashboard changes nothing: start it with --allow-actions", 403)
        try:
            action = Action.parse((await _body(request, LONGEST_ACTION)).decode("utf-8", "replace"))
        except BadRequest as error:
            return JSONResponse({"error": str(error)}, 400)
        status, told = await run_in_threadpool(actions.act, action)
        return JSONResponse(told, status)

    async def _history(self, request: Request) -> Response:
        watch = self._watches.get(request.path_params["name"])
        seconds = WINDOWS.get(request.query_params.get("window", "30m"))
        if watch is None or seconds is None:
            return PlainTextResponse("there is no such pipeline or window", 404)
        try:
            return JSONResponse(await run_in_threadpool(watch.history, seconds))
        except LeaseholdError as error:
            return PlainTextResponse(str(error), 503)

    async def _events(self, request: Request) -> Response:
        headers = {"x-accel-buffering": "no"}
        if request.method == "HEAD":
            return Response(media_type="text/event-stream", headers=headers)
        return StreamingResponse(self._stream(), media_type="text/event-stream", headers=headers)

    async def _stream(self) -> AsyncIterator[str]:
        news = asyncio.Event()
        sent: dict[str, int] = {}
        self._waiting.add(news)
        try:
            while not self._ended:
                news.clear()
                for name, watch in self._watches.items():
                    number = watch.latest[0]
                    if sent.get(name) != number:
                        sent[name] = number
                        yield f"event: pipeline\ndata: {json.dumps(self._shown(watch))}\n\n"
                try:
                    await asyncio.wait_for(news.wait(), ALIVE_EVERY)
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            self._waiting.discard(news)

    async def _login(self, request: Request) -> Response:
        if request.method == "GET":
            return _read("login.html")
        form = (await _body(request, LONGEST_FORM)).decode("utf-8", "replace")
        told = parse_qs(form).get("token", [""])[0]
        if not self._access.is_token(told):
            return PlainTextResponse("that is not the token: go back, and try again", 403)
        answer = RedirectResponse("./", 303)  # relative, as all links: the path that browsers see may be longer
        public = self._access.public if self._access.is_public(request.headers.get("origin", "")) else None
        answer.set_cookie(
            self._access.cookie(request.headers.get("host", "")),
            self._access.session,
            path=public.path if public else "/",
            httponly=True,
            samesite="strict",
            secure=public is not None and public.is_secure,
        )
        return answer


async def _body(request: Request, most: int) -> bytes:
    """What a request carries; nothing, where that is more than `most` bytes."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            return b""
    return body


class _Guard:
    """Takes the public path off every request, asks `access` about it, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, access: PageAccess) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        headers = Headers(scope=scope)
        cookies = cookie_parser(headers.get("cookie", ""))
        path = scope["path"]
        if self._access.public is not None:
            path = self._access.public.below(path)
            scope = {**scope, "path": path}
        answer = self._access.judge(scope["method"], path, dict(headers), cookies)
        app: Any = self._app
        if answer is AccessDecision.REFUSED:
            app = PlainTextResponse("refused: this page answers to its own origin only", 403)
        elif self._access.public is not None and f"{path}/" == self._access.public.path:
            app = RedirectResponse(self._access.public.path, 308)  # relative links need the slash
        elif answer is AccessDecision.UNKNOWN:
            app = RedirectResponse("login", 303) if path == "/" else PlainTextResponse("a token is asked for", 401)
        await app(scope, receive, with_headers)


def _file(name: str) -> Any:
    async def answer(request: Request) -> Response:
        return _read(name)

    return answer


def _read(name: str) -> Response:
    return Response((_PAGE / name).read_bytes(), media_type=_KINDS[Path(name).suffix])
