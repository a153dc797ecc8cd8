"""Makes what tests need beside packages: Spark's classes, Azurite, and the tests' own modules compiled.

`make test` runs it beside the linters, of which one keeps one core busy for a minute. Each part would come about
without it, at another time: a test that needs Azurite installs it, and each worker compiles what it finds uncompiled,
with all other tests waiting. So what fails here is said, and fails nothing.
"""

from __future__ import annotations

import subprocess
import sys

PARTS = {
    "an archive of Spark's classes": ("-m", "tests.class_archive"),
    "Azurite": ("-c", "from tests.stores.azurite import installed; installed()"),
    "compiled tests": ("-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"),
}
"""What each part gives, and with which arguments of Python."""


def main() -> None:
    """Make all parts, at the same time."""
    started = {
        what: subprocess.Popen([sys.executable, *part], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for what, part in PARTS.items()
    }
    for what, process in started.items():
        said = process.communicate()[1].strip()
        if said or process.returncode:
            print(f"before the tests, {what}: {said[-500:]} (exit code {process.returncode})", file=sys.stderr)


if __name__ == "__main__":
    main()
