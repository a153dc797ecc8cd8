"""What the site has beside the pages of `docs/`: pages that lie elsewhere, pages made from the code, and linked files.

Owns the names that these have on the site. The start page is the README, so that nothing is written twice; the command
line and the modules are read from the code at each build, so that they cannot be out of date; a file that a page links
to (an example, a test) comes along as it is. No public module is imported: the site needs neither Spark nor a driver.
Refuses nothing: a link that leads nowhere is MkDocs' to refuse.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, MutableMapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import click
import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from leasehold.cli.app import app

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "bench/README.md": "benchmarks.md",
    "deploy/README.md": "deploy.md",
    "examples/README.md": "examples.md",
    "testkit/README.md": "testkit.md",
}
"""Pages outside `docs/`, and where they are on the site."""

LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")
FENCE = re.compile(r"^```.*?^```", flags=re.MULTILINE | re.DOTALL)

COMMANDS = """# The command line

Made from the commands themselves: `leasehold COMMAND --help` says the same. [Pipeline files](../pipelines.md) are what
most of them take.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages that lie elsewhere, pages that are made from the code, and the files that pages link to."""
    for place, name in ELSEWHERE.items():
        files.append(File.generated(config, name, content=_moved((ROOT / place).read_text("utf-8"), place, name)))
    files.append(File.generated(config, "reference/commands.md", content="\n".join(_commands(app, "leasehold", None))))
    for module in _public_modules():
        files.append(File.generated(config, f"reference/api/{module}.md", content=_module_page(module)))
    for linked in sorted(_linked_files(files)):
        files.append(File.generated(config, f"files/{linked}", abs_src_path=str(ROOT / linked)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that leave `docs/` to where their files are on the site."""
    source = page.file.src_uri
    return markdown if page.file.generated_by else _moved(markdown, f"docs/{source}", source)


def _moved(text: str, place: str, name: str) -> str:
    """The text of the page at `place` of the project, with its links as the page `name` of the site needs them."""

    def led(found: re.Match[str]) -> str:
        there = _on_site(_target(found[1], place))
        return found[1] if there is None else os.path.relpath(there, PurePosixPath(name).parent)

    return LINK.sub(led, text)


def _target(link: str, place: str) -> str:
    """What a link on the page at `place` names, from the project's folder on; `""` for another site's address."""
    if "://" in link or link.startswith("mailto:"):
        return ""
    return os.path.normpath(PurePosixPath(place).parent / link)


def _on_site(path: str) -> str | None:
    """Where a file or folder of the project is on the site, `None` where it is not known."""
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    full = ROOT / path
    if path and full.is_dir():
        return ELSEWHERE.get(f"{path}/README.md")
    return f"files/{path}" if path and full.is_file() else None


def _linked_files(files: Files) -> set[str]:
    """The files of the project outside `docs/` that pages link to, those apart that are pages."""
    pages = [
        (f"docs/{file.src_uri}", file.content_string) for file in files.documentation_pages() if not file.generated_by
    ]
    pages += [(place, (ROOT / place).read_text("utf-8")) for place in ELSEWHERE]
    targets = {_target(link, place) for place, text in pages for link in LINK.findall(FENCE.sub("", text))}
    there = {_on_site(path) for path in targets if not path.startswith("docs/")}
    return {path.removeprefix("files/") for path in there if path and path.startswith("files/")}


def _commands(command: click.Command, path: str, parent: click.Context | None) -> Iterator[str]:
    """The page's text: what each command says of itself, those below it behind it."""
    context = click.Context(command, parent, info_name=path.rpartition(" ")[2], max_content_width=100)
    yield COMMANDS if parent is None else f"{'#' * path.count(' ')}# {path}\n"
    yield f"```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (below := command.get_command(context, name)) is not None and not below.hidden:
                yield from _commands(below, f"{path} {name}", context)


def _public_modules() -> Iterator[str]:
    """The public modules, as the reference lists them."""
    page = (ROOT / "docs" / "reference" / "README.md").read_text("utf-8")
    yield from re.findall(r"^## `([a-z_.]+)`$", page, flags=re.MULTILINE)


@cache
def _code() -> griffe.GriffeLoader:
    """The code of both distributions, as it is written."""
    loader = griffe.GriffeLoader(search_paths=[ROOT / "src", ROOT / "testkit" / "src"])
    for package in ("leasehold", "leasehold_testkit"):
        loader.load(package)
    loader.resolve_aliases()
    return loader


def _module_page(module: str) -> str:
    """A page that documents each name of a module's `__all__`, where it is defined."""
    text = [f"# {module}", ""]
    there = _code().modules_collection[module]
    for name in sorted(str(export) for export in there.exports):
        value = there[name]
        text += [f"::: {f'{module}.{name}' if value.is_attribute else value.canonical_path}", ""]
    return "\n".join(text)


def on_config(config: MkDocsConfig) -> MutableMapping[str, Any]:
    """Fill in the parts of the navigation that are lists of files: the decisions and the modules."""
    for section in config.nav or []:
        for entries in section.values():
            if isinstance(entries, list):
                entries[:] = [_filled(entry) for entry in entries]
    return config


def _filled(entry: dict[str, Any]) -> dict[str, Any]:
    if entry == {"Decisions": "decisions/"}:
        names = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("*.md"))
        return {
            "Decisions": [f"decisions/{name}" for name in sorted(names, key=lambda name: (name != "README.md", name))]
        }
    if entry == {"Modules": "reference/api/"}:
        return {"Modules": [{name: f"reference/api/{name}.md"} for name in _public_modules()]}
    return entry
