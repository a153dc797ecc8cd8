"""`leasehold dashboard`: what pipelines do, as a page in a browser."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leasehold.cli.options.pipeline_files import read_pipelines
from leasehold.cli.options.settings import set_option
from leasehold.cli.output import Output, Result, output_option
from leasehold.errors import ConfigError, MissingDependency

if TYPE_CHECKING:
    from leasehold.dashboard.server import Dashboard

TOKEN = "LEASEHOLD_DASHBOARD_TOKEN"  # noqa: S105 -- the name of a variable
SHORTEST_TOKEN = 16


@click.command(short_help="Show what pipelines do, as a page in a browser.")
@click.argument("files", metavar="PIPELINE.toml...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:9466",
    show_default=True,
    help="Where to listen; port 0 takes a free one. Any other address than this machine's own needs a token.",
)
@click.option(
    "--public-url",
    metavar="URL",
    help="Where browsers find it behind a reverse proxy, like https://ops.example/leasehold/.",
)
@click.option(
    "--every", metavar="DURATION", default="1s", show_default=True, help="How long to wait between two looks."
)
@click.option(
    "--history",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Where the last day is kept, some megabytes a pipeline.  [default: leasehold/dashboard.db in XDG_STATE_HOME]",
)
@click.option(
    "--allow-actions",
    is_flag=True,
    help="Let whoever has the token try rejected events again, and drop them. Needs a token.",
)
@set_option
@output_option
def dashboard(
    files: tuple[Path, ...],
    listen: str,
    public_url: str | None,
    every: str,
    history: Path | None,
    allow_actions: bool,
    settings: tuple[str, ...],
    output: Output,
) -> None:
    """Show what pipelines do, as a page in a browser.

    A lane for each partition: who owned it and how far behind it was, over the last half hour or day, and what it is
    doing now. Take-overs and other moves as they happen, with the reason; suspects and their error; the first rejected
    rows with their bodies; several pipelines side by side. Nothing needs to be running, and Spark is not needed either.
    It reads, and changes nothing, unless --allow-actions says otherwise: then the page has buttons that do what
    `leasehold rejected retry` and `leasehold rejected drop` do, the former with Spark as that does.

    It answers to pages of its own only, and needs no other address. Where LEASEHOLD_DASHBOARD_TOKEN is set (16
    characters or more) it asks for that token; at another address than this machine's own it has to be set. There is no
    encryption: put a proxy with TLS in front where the network is not your own, and name the address that browsers then
    use with --public-url. Runs until Ctrl-C.

    \b
    Example:
      leasehold dashboard flights.toml orders.toml
      export LEASEHOLD_DASHBOARD_TOKEN=$(openssl rand -hex 16); echo $LEASEHOLD_DASHBOARD_TOKEN
      leasehold dashboard flights.toml --allow-actions
      leasehold dashboard flights.toml --listen 0.0.0.0:9466
      leasehold dashboard flights.toml --public-url https://ops.example/leasehold/
    """
    from leasehold.config import parse_duration
    from leasehold.dashboard.public_url import PublicUrl
    from leasehold.listening import Address

    address = Address.parse(listen, "--listen")
    pause = parse_duration(every, "--every")
    public = PublicUrl.parse(public_url, "--public-url") if public_url is not None else None
    pipelines = read_pipelines(files, settings)
    token = _token(loopback=address.is_loopback, listen=listen)
    if allow_actions and not token:
        raise ConfigError(
            "--allow-actions", None, f"whoever acts has to have a token, and {TOKEN} is not set", "Set it"
        )
    try:
        from leasehold.cli.dashboard_server import serve
        from leasehold.dashboard.server import Dashboard
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("starlette", "uvicorn"):
            raise MissingDependency("leasehold dashboard", "dashboard") from error
        raise
    from leasehold.clock import SystemClock
    from leasehold.dashboard.access import PageAccess
    from leasehold.dashboard.actions import Actions
    from leasehold.dashboard.looking import Looking
    from leasehold.dashboard.ring import Ring
    from leasehold.dashboard.watching import PipelineWatch

    clock, ring = SystemClock(), Ring(history or _default_history())
    watches: dict[str, PipelineWatch] = {}
    allowed = {one.name: Actions(one.path, settings) for one in pipelines} if allow_actions else {}
    access = PageAccess(address.is_loopback, token, listens_as=address.host, public=public)
    served: Dashboard = Dashboard(watches, access, allowed)
    for one in pipelines:
        watches[one.name] = PipelineWatch(
            one.name, Looking(one, clock), ring, every=pause, clock=clock, changed=served.changed
        )

    with _bound(address.host, address.port) as listening:
        url = str(Address(address.host, listening.getsockname()[1]))
        names = ", ".join(watches)
        facts = {"url": f"http://{url}/", "pipelines": list(watches)}
        summary = f"showing {names} at http://{url}/ until Ctrl-C"
        if public is not None:
            facts["public_url"] = str(public)
            summary = f"showing {names} at http://{url}/, for browsers at {public}, until Ctrl-C"
        output.show(Result(summary=summary, facts=facts))
        serve(served, listening)


def _token(*, loopback: bool, listen: str) -> str:
    token = os.environ.get(TOKEN, "")
    if token and len(token) < SHORTEST_TOKEN:
        raise ConfigError(TOKEN, None, f"at least {SHORTEST_TOKEN} characters", "Take a longer one, made by chance")
    if not token and not loopback:
        raise ConfigError(
            "--listen", listen, f"may be reached from other machines, and no token is set in {TOKEN}", "Set one"
        )
    return token


def _default_history() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        folder = (Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state") / "leasehold"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError) as error:  # a home that is read only, or a user that has none
        raise ConfigError("--history", None, f"its default folder cannot be had ({error})", "Name a file") from error
    return folder / "dashboard.db"


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises `ConfigError` for an address that cannot be had."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(place)
            listening.listen(128)  # before its address is told
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        raise ConfigError("--listen", f"{host}:{port}", f"cannot be had ({error})", "Name another") from error
    return listening
