"""Functions of a user that a pipeline file names, as `module:function`.

Owns where they are looked for: the folder of the file first, then where Python looks. Refuses by the key of the file.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from leasehold.errors import ConfigError


def function_at(reference: str, folder: Path, key: str, example: str) -> tuple[ModuleType, Any]:
    """The module and what has the name in it. Raises `ConfigError` that names `key`."""
    module, found, name = reference.partition(":")
    if not found or not module or not name:
        raise ConfigError(key, reference, "written as module:function", f"For example {example}")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        imported = importlib.import_module(module)
        return imported, getattr(imported, name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(key, reference, f"cannot be imported ({error})", f"Put {module}.py into {folder}") from error
    except Exception as error:
        raise ConfigError(
            key,
            reference,
            f"cannot be imported ({type(error).__name__}: {error})",
            f"Correct {module}.py: `python -m {module}` shows where",
        ) from error
