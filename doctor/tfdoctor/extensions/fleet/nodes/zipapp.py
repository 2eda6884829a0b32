"""Build a single file that runs tfdoctor without installation: `check` on a node, or every command.

The file contains tfdoctor, its data and its libraries, as the running interpreter imports them; no network is needed.
The same input gives the same bytes. Python 3.10 and newer can run it: `python3 FILE check --json`. It unpacks itself
into a private folder, which is removed at the end.
"""

from __future__ import annotations

import importlib.util
import io
import json
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import tfdoctor
from tfdoctor.cli.extensions import find_extensions
from tfdoctor.compat.folder import data_dir, find_commit
from tfdoctor.core.errors import Error
from tfdoctor.system.archive import DEMOS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["build_zipapp"]

LIBRARIES = ("packaging", "defusedxml", "yaml")
"""The libraries outside the standard library that `check` and `cluster` load. All are pure Python."""
EXCLUDED_FOLDERS = (
    "render/html/assets",
    "verification/simulate/standin",
    "extensions/lint",
    "extensions/bench",
    "logs/placement",
)
"""The folders of tfdoctor that neither command loads."""
OTHER_LIBRARIES = (
    "annotated_doc",
    "certifi",
    "charset_normalizer",
    "docker",
    "idna",
    "jinja2",
    "markdown_it",
    "markupsafe",
    "mdurl",
    "pygments",
    "requests",
    "rich",
    "shellingham",
    "typer",
    "urllib3",
)
"""The libraries that the other commands load. tree-sitter is not pure Python: `lint` works without it (see docs/lint.md)."""
SOURCE_SUFFIXES = (".py", ".pem")
DATA_FOLDERS = ("compat",)
"""The data folders that are included for `check`."""
OTHER_DATA_FOLDERS = ("dockerfiles", "schemas")
OMITTED_DATA_FILE = "source_lines.json"
"""A data file that is omitted, because only `diagnose` needs it and it is a seventh of the total size."""
NODE_EXTENSIONS = ("cluster",)
"""The extensions that are included for `check`."""
ARCHIVE_DATE = (1980, 1, 1, 0, 0, 0)
"""The date of every file in the archive. It is constant, so that the same files give the same bytes."""
MAIN_SOURCE = '''\
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
"""The content of `__main__.py`. Older Pythons, which it refuses, must be able to parse it as well."""

STARTER = """#!/bin/sh
# Python runs the archive below. Only absolute entries of PATH count: no program of the working folder runs.
set -f
IFS=:
for folder in $PATH; do
  case $folder in /*) if [ -x "$folder/python3" ]; then exec "$folder/python3" -I "$0" "$@"; fi ;; esac
done
echo "tfdoctor: python3 is not on PATH." >&2
exit 3
"""
"""The beginning of the file, which starts it with the first python3 on PATH."""


def build_zipapp(*, is_complete: bool = False) -> bytes:
    """Return the content of the file. Raise Error if a library is not available as Python source.

    With `is_complete` it has every command; otherwise only `check` and `cluster`, in a third of the size.
    """
    content_by_name = dict(_iter_tfdoctor_files(() if is_complete else EXCLUDED_FOLDERS))
    metadata_folder = f"tfdoctor-{tfdoctor.__version__}.dist-info"
    extensions = sorted(find_extensions()) if is_complete else NODE_EXTENSIONS
    lines = [f"{name} = tfdoctor.extensions.{name}:EXTENSION" for name in extensions]
    content_by_name[f"{metadata_folder}/entry_points.txt"] = "\n".join(
        ["[tfdoctor.commands]", *lines, ""]
    ).encode()
    for name in (*DATA_FOLDERS, *(OTHER_DATA_FOLDERS if is_complete else ())):
        files = _iter_files(data_dir(name), f"tfdoctor/_data/{name}")
        content_by_name.update(
            (path, content) for path, content in files if is_complete or not path.endswith(OMITTED_DATA_FILE)
        )
    if is_complete:
        for name in DEMOS:
            content_by_name.update(_iter_files(data_dir("demo") / name, f"tfdoctor/_data/demo/{name}"))
        content_by_name["tfdoctor/_data/build.json"] = json.dumps({"commit": find_commit()}).encode()
    for name in (*LIBRARIES, *(OTHER_LIBRARIES if is_complete else ())):
        content_by_name.update(_iter_library_sources(name, name))
    # Python 3.10 has no tomllib, and tomli is equivalent.
    content_by_name.update(
        _iter_library_sources("tomli" if sys.version_info < (3, 11) else "tomllib", "tomli")
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in [("__main__.py", MAIN_SOURCE.encode("ascii")), *sorted(content_by_name.items())]:
            entry = zipfile.ZipInfo(name, ARCHIVE_DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o600 << 16  # Unix permissions are in the upper 16 bits
            archive.writestr(entry, content)
    return STARTER.encode("ascii") + buffer.getvalue()


def _iter_tfdoctor_files(excluded_folders: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield (name in the archive, content) of tfdoctor's own files, without data and excluded folders."""
    package_folder = Path(tfdoctor.__file__).parent
    for name, content in _iter_files(package_folder, "tfdoctor"):
        relative = name.removeprefix("tfdoctor/")
        if not relative.startswith(("_data/", *(f"{folder}/" for folder in excluded_folders))):
            yield name, content


def _iter_library_sources(name: str, target_name: str) -> Iterator[tuple[str, bytes]]:
    """Yield (name in the archive, content) of a library's source files. Raise Error if there are none."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None or not spec.origin.endswith("__init__.py"):
        msg = f"the Python library {name} is not there as source."
        raise Error(msg, hint="Install tfdoctor again.")
    for path, content in _iter_files(Path(spec.origin).parent, target_name):
        if path.endswith(SOURCE_SUFFIXES):
            yield path, content


def _iter_files(folder: Path, target_name: str) -> Iterator[tuple[str, bytes]]:
    """Yield (name in the archive, content) of a folder's files. The archive names it `target_name`."""
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        is_hidden = path.name.startswith(".") or path.suffix == ".pyc"  # Python 2 writes it beside the source
        if path.is_file() and "__pycache__" not in relative.parts and not is_hidden:
            yield f"{target_name}/{relative.as_posix()}", path.read_bytes()
