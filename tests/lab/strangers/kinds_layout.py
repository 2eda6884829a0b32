"""TensorFlow in other layouts, another Python's home, libraries under foreign names, and the memory of a cgroup."""

from __future__ import annotations

import shutil
import zipfile
from typing import TYPE_CHECKING

from lab.environments import find_python
from lab.strangers.grammar import Kind, Meaning, make_causes
from lab.strangers.ground import BaseContents, Undrawn
from lab.strangers.kinds_files import MAX_COPIED_BYTES
from lab.strangers.kinds_packages import find_cuda_causes, find_distribution, install_wheels
from lab.strangers.person import MEMORY_GROUPS

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from lab.strangers.person import User

_INSTALLERS = ("pip", "setuptools", "uv", "wheel")
"""Distributions that stay in the environment."""

# -- Layouts -----------------------------------------------------------------------------------------


def _draw_layout(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    if ground.toolkit or ground.release < (2, 15):  # their tensorflow needs LD_LIBRARY_PATH
        return None
    return rng.choice(("one-folder", "folder-each", "folder-each")), rng.choice(("PYTHONPATH", "pth"))


def _move_packages(person: User, arguments: tuple[str, ...]) -> None:
    """Move the packages into one folder (`pip install --target`), or each into its own (pex, rules_python)."""
    layout, door = arguments
    folders: list[Path] = []
    for info in sorted(person.site.glob("*.dist-info")):
        name = info.name.partition("-")[0].lower()
        if name in _INSTALLERS:
            continue
        folder = person.folder("libs" if layout == "one-folder" else f"wheels/{name}")
        folders += [folder] if folder not in folders else []
        _, files = find_distribution(person, name.replace("_", "-").replace(".", "-"))
        links = [path for path in person.site.glob("nvidia/*/lib/*") if path.is_symlink()]
        for path in (*files, *(links if layout == "one-folder" else ())):
            if path.exists() or path.is_symlink():
                target = folder / path.relative_to(person.site)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.rename(target)
        shutil.rmtree(info, ignore_errors=True)
    if door == "pth":
        (person.site / "zz_libs.pth").write_text("".join(f"{folder}\n" for folder in folders))
    else:
        person.set_variable("shell", "PYTHONPATH", ":".join(map(str, folders)), front=True)


def _draw_zipped(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    names = ("tensorflow", "numpy", "six", "absl-py", "protobuf", "keras", "typing-extensions", "wrapt")
    name = rng.choice(names)
    return (name, rng.choice(("before", "instead"))) if name in {*ground.companions, "tensorflow"} else None


def _zip_package(person: User, arguments: tuple[str, ...]) -> None:
    """Put a package into an archive on PYTHONPATH, as `spark-submit --py-files` and zipapps do."""
    name, how = arguments
    info, files = find_distribution(person, name)
    archive = person.folder("deps") / "packages.zip"
    with zipfile.ZipFile(archive, "w") as stream:
        for path in files:
            if path.is_file() and path.stat().st_size < MAX_COPIED_BYTES // 4:
                stream.write(path, path.relative_to(person.site))
    if how == "instead":
        for path in files:
            path.unlink(missing_ok=True)
        shutil.rmtree(info, ignore_errors=True)
    person.set_variable("shell", "PYTHONPATH", str(archive), front=True)


# -- Another Python's home ---------------------------------------------------------------------------


def _draw_home(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    other = rng.choice(
        [python for python in ("3.9", "3.10", "3.11", "3.12", "3.13") if python != ground.python]
    )
    return rng.choice(("shell", "activate")), rng.choice((ground.python, ground.python, other, "itself"))


def _set_home(person: User, arguments: tuple[str, ...]) -> None:
    door, version = arguments
    home = str(person.root)
    if version != "itself":
        python = find_python(version)
        if python is None:
            message = f"no Python {version}"
            raise Undrawn(message)
        home = python.rpartition("/bin/")[0]
    person.set_variable(door, "PYTHONHOME", home)


def _explain_home(arguments: tuple[str, ...]) -> Meaning:
    right = make_causes("python-unusable", "tensorflow-missing", "shadowed-module")
    return Meaning(right, fix=None)


# -- Foreign names -----------------------------------------------------------------------------------

_FOREIGN = (
    ("libcudart.so", "cuda_runtime", "nvidia-cuda-runtime-cu11"),
    ("libcufft.so", "cufft", "nvidia-cufft-cu11"),
    ("libcurand.so", "curand", "nvidia-curand-cu11"),
    ("libcudart.so", "cu13", "nvidia-cuda-runtime"),
)


def _draw_foreign(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    stem, folder, package = rng.choice(_FOREIGN)
    names = [path.rpartition("/")[2] for path in ground.libraries if f"/{stem}." in path]
    if not names or ground.toolkit or any(name.endswith("cu11") for name in ground.nvidia):
        return None
    return names[0], stem, folder, package, rng.choice(ground.versions(package)[:4])


def _link_foreign(person: User, arguments: tuple[str, ...]) -> None:
    """Link a library of another CUDA under the name that TensorFlow asks for, as blogs advise."""
    name, stem, folder, package, version = arguments
    other = person.folder("other-cuda")
    install_wheels(person, "--no-deps", "--target", str(other), f"{package}=={version}")
    files = sorted(other.glob(f"nvidia/{folder}/lib/{stem}.*"))
    if not files:
        message = f"{package} {version} has no {stem}"
        raise Undrawn(message)
    links = person.folder("links")
    (links / name).symlink_to(files[0])
    person.set_variable("shell", "LD_LIBRARY_PATH", str(links), front=True)


def _explain_foreign(arguments: tuple[str, ...]) -> Meaning:
    right = find_cuda_causes("cudnn")
    return Meaning(right, later=right, fix=None)


# -- Memory ------------------------------------------------------------------------------------------


def _draw_memory(rng: random.Random, _ground: BaseContents) -> tuple[str, ...] | None:
    return (str(rng.choice((96, 128, 192, 256, 512, 1024, 4096))),) if MEMORY_GROUPS.is_dir() else None


def _limit_memory(person: User, arguments: tuple[str, ...]) -> None:
    person.memory_mib = int(arguments[0])


def _explain_memory(_words: tuple[str, ...]) -> Meaning:
    # The limit holds for the user's installers, too.
    return Meaning(make_causes("oom"), later=make_causes("oom"), by_hand=None, fix=None)


KINDS = (
    Kind(
        "layout",
        4,
        _draw_layout,
        _move_packages,
        lambda _words: Meaning(find_cuda_causes("cudnn") | make_causes("libs-not-on-path"), fix=None),
        group="place",
        last=True,
    ),
    Kind(
        "zipped",
        3,
        _draw_zipped,
        _zip_package,
        lambda _words: Meaning(
            make_causes("shadowed-module", "package-conflict", "tensorflow-missing", "damaged-file"),
            later=make_causes("shadowed-module"),
            by_hand=None,
            fix=None,
        ),
        group="overlay",
    ),
    Kind("python-home", 3, _draw_home, _set_home, _explain_home, group="python-home"),
    Kind("foreign-name", 3, _draw_foreign, _link_foreign, _explain_foreign),
    Kind("memory", 3, _draw_memory, _limit_memory, _explain_memory, group="limit"),
)
