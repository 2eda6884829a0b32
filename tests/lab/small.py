"""An image made in two seconds without any network: this machine's shell, a few tools and the tests' own Python.

For tests of the engine side, which need something that runs, and care little what it is.
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
from lab.standins import tool

if TYPE_CHECKING:
    from collections.abc import Iterable

TOOLS = ("sh", "cat", "echo", "sleep", "env", "head", "yes", "true", "rm", "mkdir", "id", "ls", "uname", "dd")
_LEFT_OUT = re.compile(
    r"(?:^|/)(?:test|tests|idlelib|tkinter|turtledemo|ensurepip|lib2to3|pydoc_data|site-packages|dist-packages"
    r"|__pycache__|config-[^/]*)(?:/|$)"
)
SITE = "/opt/site"
"""Where tfdoctor itself lies in the image."""
_ROOT = Path(__file__).resolve().parents[2]


def small_root(*, with_tfdoctor: bool = False) -> bytes:
    """The root of a file system as a tar; `with_tfdoctor`: with the tool and what it imports in SITE."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", dereference=True) as archive:
        files: dict[str, Path] = {}
        for tool in TOOLS:
            found = shutil.which(tool)
            if found is not None:
                files[f"/usr/bin/{tool}"] = Path(found).resolve()
        python = Path(sys.executable).resolve()
        files[str(python)] = python
        libraries = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
        for folder in libraries:
            for path in folder.rglob("*"):
                if path.is_file() and not _LEFT_OUT.search(path.relative_to(folder).as_posix()):
                    files[str(path)] = path
        files |= {name: Path(name) for name in _needed(files.values())}
        if with_tfdoctor:
            files |= _tool()
        for name, path in sorted(files.items()):
            archive.add(path, name.lstrip("/"), recursive=False, filter=_plain)
        for name, target in _links(python).items():
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


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Content and mode alone."""
    entry.uid = entry.gid = 0
    return entry


def _links(python: Path) -> dict[str, str]:
    """Names that programs are called by."""
    links = {"/usr/bin/python3": str(python), "/bin": "usr/bin"}
    loader = Path("/lib64")
    if loader.is_symlink():
        links["/lib64"] = os.readlink(loader)  # noqa: PTH115 - as it is written
    return links


def _needed(paths: Iterable[Path]) -> set[str]:
    """The shared objects that these programs and libraries load, with the loader."""
    programs = [str(path) for path in paths if path.suffix in ("", ".so") or path.parent.name == "bin"]
    told = subprocess.run([tool("ldd"), *programs], capture_output=True, text=True, check=False).stdout
    found = set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", told, re.MULTILINE))
    # Where /lib is a link to usr/lib, the link is not in the image: the real place is.
    return {str(Path(name).parent.resolve() / Path(name).name) for name in found}


def _tool() -> dict[str, Path]:
    """tfdoctor, its data, and the packages that looking at a machine imports."""
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
