"""One file that runs `check` on a node where nothing is installed: tfdoctor, its data, and the libraries that it needs.

Made of what the running interpreter imports, without a network. The same parts give the same bytes. Python 3.10 and
later run it: `python3 FILE check --json`. It unpacks itself into a private folder, which is gone when it ends.
"""

from __future__ import annotations

import importlib.util
import io
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import tfdoctor
from tfdoctor.compat.folder import data_dir
from tfdoctor.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["zipapp"]

LIBRARIES = ("packaging", "defusedxml", "yaml")
"""What `check` and `cluster` load beside tfdoctor and the standard library, all of it Python alone."""
NOT_NEEDED = ("render/html/assets", "simulate/standin", "lint", "bench", "placement")
"""Folders of tfdoctor that neither command loads."""
DATA = ("compat",)
OF_LOGS = "source_lines.json"
"""Data that only `diagnose` needs, a seventh of the whole."""
FIRST_DAY = (1980, 1, 1, 0, 0, 0)
"""The date of every part: two files of the same parts are the same."""
START = '''\
"""Unpacks tfdoctor into a private folder, runs it, and takes the folder away again."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile

RUN = """
import sys
sys.path.insert(0, sys.argv[1])
sys.argv[:2] = ["tfdoctor"]
from tfdoctor.__main__ import run
run()
"""


def main():
    if sys.version_info < (3, 10):
        sys.stderr.write("tfdoctor: Python %d.%d is too old: 3.10 or later is needed.\\n" % sys.version_info[:2])
        return 3
    child = None

    def ended(number, frame):
        if child is None:
            raise SystemExit(128 + number)
        child.send_signal(number)

    for name in ("SIGTERM", "SIGHUP", "SIGINT"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), ended)
    folder = None
    try:
        folder = tempfile.mkdtemp(prefix="tfdoctor-")
        with zipfile.ZipFile(os.path.abspath(sys.argv[0])) as parts:
            parts.extractall(folder)
        command = [sys.executable, "-I", "-S", "-B", "-c", RUN, folder] + sys.argv[1:]
        child = subprocess.Popen(command)
        while True:
            try:
                status = child.wait()
                return status if status >= 0 else 128 - status
            except KeyboardInterrupt:
                continue
    except OSError as error:
        sys.stderr.write("tfdoctor: it could not be unpacked: %s.\\n" % (error.strerror or error))
        return 3
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


sys.exit(main())
'''
"""`__main__.py`. It also has to be read by the Pythons that it refuses."""


def zipapp() -> bytes:
    """Return the file. Raises Error if a library is not there as Python source."""
    parts = dict(_tfdoctor())
    for name in DATA:
        found = _list_modules(data_dir(name), f"tfdoctor/_data/{name}")
        parts.update((path, content) for path, content in found if not path.endswith(OF_LOGS))
    for name in LIBRARIES:
        parts.update(_sources(name, name))
    # Python 3.10 has no tomllib; tomli is the same.
    parts.update(_sources("tomli" if sys.version_info < (3, 11) else "tomllib", "tomli"))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in [("__main__.py", START.encode("ascii")), *sorted(parts.items())]:
            part = zipfile.ZipInfo(name, FIRST_DAY)
            part.compress_type = zipfile.ZIP_DEFLATED
            part.external_attr = 0o600 << 16
            archive.writestr(part, content)
    return b"#!/usr/bin/env python3\n" + made.getvalue()


def _tfdoctor() -> Iterator[tuple[str, bytes]]:
    home = Path(tfdoctor.__file__).parent
    for name, content in _list_modules(home, "tfdoctor"):
        inside = name.removeprefix("tfdoctor/")
        if not inside.startswith(("_data/", *(f"{one}/" for one in NOT_NEEDED))):
            yield name, content


def _sources(name: str, called: str) -> Iterator[tuple[str, bytes]]:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None or not found.origin.endswith("__init__.py"):
        msg = f"the Python library {name} is not there as source."
        raise Error(msg, hint="Install tfdoctor again.")
    for path, content in _list_modules(Path(found.origin).parent, called):
        if path.endswith(".py"):
            yield path, content


def _list_modules(folder: Path, called: str) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and "__pycache__" not in inside.parts and not path.name.startswith("."):
            yield f"{called}/{inside.as_posix()}", path.read_bytes()
