"""Which files of tests use the Spark session of their worker, and how many workers have one.

A session costs 15 s of CPU until it is started and has loaded and compiled what its first queries need.
"""

from __future__ import annotations

from pathlib import PurePosixPath

FOLDER = PurePosixPath("tests/spark")
SESSIONS = 2
"""How many workers have a session, of those that share the tests out. One alone would work longer than all others."""
WITHOUT = {
    "test_connect.py",
    "test_java.py",
    "test_master.py",
    "test_notebook.py",
    "test_offsets.py",
    "test_options.py",
    "test_pipeline_file.py",
    "test_pipeline_values.py",
    "test_site_settings.py",
    "test_source_process.py",
    "test_unnamed_user.py",
}
"""Files of the folder whose tests do without. One that is missing here only has fewer places to run."""


def uses_session(file: PurePosixPath) -> bool:
    """Whether tests of this file, whose path begins at the repository's root, use the worker's session."""
    return file.parent == FOLDER and file.name not in WITHOUT
