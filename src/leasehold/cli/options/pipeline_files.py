"""Several pipeline files on one command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.errors import ConfigError

if TYPE_CHECKING:
    from leasehold.pipeline_file import PipelineFile


def read_pipelines(files: Sequence[Path], settings: tuple[str, ...]) -> list[PipelineFile]:
    """The files, whose pipelines have different names: these tell them apart. Raises `ConfigError`."""
    from leasehold.pipeline_file import read_pipeline_file
    from leasehold.pipeline_values import parse_settings

    over = parse_settings(settings)
    pipelines = [read_pipeline_file(file, settings=over) for file in files]
    names = [one.name for one in pipelines]
    for file, name in zip(files, names, strict=True):
        if names.count(name) > 1:
            raise ConfigError(
                f"{file}: name", name, "another of these files has it too", "Name each pipeline file once"
            )
    return pipelines
