"""A minimal image, made in two seconds without a network: a shell, a few tools and the tests' own Python.

For tests of engine code that need a container that runs, whatever is in it.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import defusedxml
import packaging

import tfdoctor
from lab.standins import find_tool

if TYPE_CHECKING:
    from collections.abc import Iterable

TOOLS = ("sh", "cat", "echo", "sleep", "env", "head", "yes", "true", "rm", "mkdir", "id", "ls", "uname", "dd")
_EXCLUDED = re.compile(
    r"(?:^|/)(?:test|tests|idlelib|tkinter|turtledemo|ensurepip|lib2to3|pydoc_data|site-packages|dist-packages"
    r"|__pycache__|config-[^/]*)(?:/|$)"
)
SITE = "/opt/site"
"""The folder of tfdoctor in the image."""
_ROOT = Path(__file__).resolve().parents[2]


def make_small_root(*, with_tfdoctor: bool = False) -> bytes:
    """Return the root of a file system as a tar.

    with_tfdoctor: include tfdoctor and what it imports in SITE.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", dereference=True) as archive:
        files: dict[str, Path] = {}
        for tool in TOOLS:
            program = shutil.which(tool)
            if program is not None:
                files[f"/usr/bin/{tool}"] = Path(program).resolve()
        python = Path(sys.executable).resolve()
        files[str(python)] = python
        libraries = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
        for folder in libraries:
            for path in folder.rglob("*"):
                if path.is_file() and not _EXCLUDED.search(path.relative_to(folder).as_posix()):
                    files[str(path)] = path
        files |= {name: Path(name) for name in _list_shared_objects(files.values())}
        if with_tfdoctor:
            files |= _list_tool_files()
        for name, path in sorted(files.items()):
            archive.add(path, name.lstrip("/"), recursive=False, filter=_reset_owner)
        for name, target in _make_links(python).items():
            link = tarfile.TarInfo(name.lstrip("/"))
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        for name, content in {
            "etc/passwd": b"root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n",
            "etc/os-release": b"ID=debian\nVERSION_ID=12\n",
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        archive.addfile(folder)
    return out.getvalue()


def _reset_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return the entry with root as its owner."""
    entry.uid = entry.gid = 0
    return entry


def _make_links(python: Path) -> dict[str, str]:
    """Return the symlinks of the image: the target of each name."""
    links = {"/usr/bin/python3": str(python), "/bin": "usr/bin"}
    loader = Path("/lib64")
    if loader.is_symlink():
        links["/lib64"] = os.readlink(loader)  # noqa: PTH115 - as it is written
    return links


def _list_shared_objects(paths: Iterable[Path]) -> set[str]:
    """Return the shared objects that these programs and libraries load, with the loader."""
    programs = [str(path) for path in paths if path.suffix in ("", ".so") or path.parent.name == "bin"]
    output = subprocess.run([find_tool("ldd"), *programs], capture_output=True, text=True, check=False).stdout
    names = set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", output, re.MULTILINE))
    # If /lib is a link to usr/lib, the image has only the real path.
    return {str(Path(name).parent.resolve() / Path(name).name) for name in names}


def _list_tool_files() -> dict[str, Path]:
    """Return the files of tfdoctor, its data, and the packages that its probes import."""
    files: dict[str, Path] = {}
    package = Path(tfdoctor.__file__).parent
    for module in (package, Path(packaging.__file__).parent, Path(defusedxml.__file__).parent):
        for path in module.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                files[f"{SITE}/{module.name}/{path.relative_to(module)}"] = path
    if sys.version_info < (3, 11):
        import tomli

        for path in Path(tomli.__file__).parent.rglob("*.py"):
            files[f"{SITE}/tomli/{path.name}"] = path
    if not (package / "_data").is_dir():
        for path in (_ROOT / "compat").rglob("*"):
            if path.is_file():
                files[f"{SITE}/tfdoctor/_data/compat/{path.relative_to(_ROOT / 'compat')}"] = path
    return files
