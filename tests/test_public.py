"""The public names: a list that is true, and an import that needs nothing but Python."""

from __future__ import annotations

import subprocess
import sys

import leasehold

ALONE = """
import sys

class Others:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top != "leasehold" and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"{name} is not there", name=name)

sys.meta_path.insert(0, Others())
import leasehold
print(leasehold.__version__)
"""


def test_public_names_are_there_once_and_sorted() -> None:
    names = leasehold.__all__
    assert len(set(names)) == len(names)
    assert [name for name in names if not hasattr(leasehold, name)] == []
    assert list(names) == sorted(names, key=lambda name: (not name.isupper(), not name[:1].isupper(), name))


def test_leasehold_is_imported_with_the_standard_library_alone() -> None:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", ALONE], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == leasehold.__version__
