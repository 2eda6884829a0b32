"""Changes to single files: cut, emptied, replaced, removed or unreadable; and plugins that TensorFlow loads."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from lab import standins
from lab.strangers.grammar import Kind, Meaning, make_causes
from lab.strangers.ground import TOOLKITS, BaseContents, Undrawn
from lab.strangers.kinds_packages import find_cuda_causes
from lab.strangers.person import NOBODY

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from lab.strangers.person import User

MAX_COPIED_BYTES = 64 << 20
"""Maximum bytes that are kept of a file that is cut.

The rest of a large library makes no difference.
"""
_DAMAGES = ("cut", "cut", "emptied", "text", "wrong-class", "wrong-machine", "zeros")


_OPENED_LIBRARY = re.compile(
    r"lib(cudart|cublas|cublasLt|cufft|curand|cusolver|cusparse|cudnn|nvJitLink)\.so"
)


def pick_library(rng: random.Random, ground: BaseContents) -> str | None:
    """Return a CUDA library, mostly one that TensorFlow opens; None if there is none."""
    needed = [name for name in ground.libraries if _OPENED_LIBRARY.search(name)]
    candidates = needed if needed and rng.random() < 0.7 else list(ground.libraries)
    return rng.choice(candidates) if candidates else None


def _pick_file(rng: random.Random, ground: BaseContents) -> tuple[str, str] | None:
    """Return a type of file and a file, or None."""
    sort = rng.choice(("cuda", "cuda", "cuda", "native", "extension", "extension", "module"))
    if sort == "cuda":
        library = pick_library(rng, ground)
        return (sort, library) if library else None
    files = {
        "native": ground.native,
        "extension": ground.extensions,
        "module": ground.modules,
    }[sort]
    return (sort, rng.choice(list(files))) if files else None


def _find_file(person: User, sort: str, name: str) -> Path:
    in_toolkit = sort == "cuda" and person.story.base in TOOLKITS
    file_path = person.work / "cuda/lib64" / name if in_toolkit else person.site / name
    if not file_path.is_file():
        message = f"{name} is not there any more"
        raise Undrawn(message)
    return file_path


def _draw_damaged(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    picked = _pick_file(rng, ground)
    if picked is None:
        return None
    how = rng.choice(_DAMAGES)
    if picked[0] == "module":
        how = rng.choice(("cut", "emptied", "zeros"))
    return *picked, how, str(rng.randrange(5, 96))


def _apply_damage(person: User, arguments: tuple[str, ...]) -> None:
    sort, name, how, percent = arguments
    damage_file(_find_file(person, sort, name), how, int(percent))


def damage_file(path: Path, how: str, percent: int) -> None:
    """Replace a file with a damaged one; never write into it, because hard links share it."""
    mode = path.stat().st_mode
    keep = min(path.stat().st_size * percent // 100, MAX_COPIED_BYTES)
    with path.open("rb") as stream:
        content = stream.read(keep)
    if how == "wrong-class":
        standins.write_wrong_class(path)
    elif how == "wrong-machine":
        standins.write_wrong_machine(path)
    else:
        path.unlink()
        contents = {"cut": content, "emptied": b"", "text": b"<html>404 Not Found</html>\n"}
        path.write_bytes(contents.get(how, b"\0" * min(max(keep, 4096), 1 << 20)))
    path.chmod(mode)


def _explain_damaged(arguments: tuple[str, ...]) -> Meaning:
    sort, name = arguments[0], arguments[1]
    right = make_causes("damaged-file")
    if sort == "cuda" and "/" not in name:  # of a toolkit outside the environment
        return Meaning(right, later=right, by_hand=None, fix=None)
    if sort in ("extension", "module"):
        right |= make_causes("package-conflict")
    return Meaning(right, later=make_causes("damaged-file"))


def _draw_removed(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    return _pick_file(rng, ground)


def _apply_removed(person: User, arguments: tuple[str, ...]) -> None:
    _find_file(person, *arguments).unlink()


def _explain_removed(arguments: tuple[str, ...]) -> Meaning:
    sort, name = arguments
    if sort == "cuda":
        stem = "cudnn" if "cudnn" in name else "nvjitlink" if "nvJitLink" in name else name
        right = find_cuda_causes(stem) | make_causes("damaged-file", "libs-not-on-path")
        is_mendable = True if "/" in name else None
        return Meaning(right, later=right, by_hand=is_mendable, fix=is_mendable)
    right = make_causes("damaged-file")
    if sort != "native":
        right |= make_causes("package-conflict")
    return Meaning(right, later=right)


def _draw_unreadable(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    picked = _pick_file(rng, ground)
    if picked is None or (picked[0] == "cuda" and ground.toolkit):
        return None
    return *picked, rng.choice(("file", "folder", "folder")), rng.choice(("000", "700", "700"))


def _make_unreadable(person: User, arguments: tuple[str, ...]) -> None:
    sort, name, which, mode = arguments
    path = _find_file(person, sort, name)
    person.user = NOBODY
    if which == "folder" and path.parent != person.site:
        path.parent.chmod(int(mode, 8))
        return
    if path.stat().st_size > 4 * MAX_COPIED_BYTES:
        message = f"{name} is too large to copy"
        raise Undrawn(message)
    person.make_writable_copy(path.relative_to(person.site).as_posix()).chmod(int(mode, 8))


def _explain_not_permitted(_words: tuple[str, ...]) -> Meaning:
    return Meaning(make_causes("not-permitted"), later=make_causes("not-permitted"), by_hand=None, fix=False)


def _draw_plugin(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    if ground.release < (2, 5):
        return None
    return rng.choice(("text", "emptied", "stand-in", "wrong-machine", "needs-more")), rng.choice(
        ("libitex_gpu.so", "libmetal_plugin.so", "libtfdml_plugin.so", "libdevice_plugin.so")
    )


def _add_plugin(person: User, arguments: tuple[str, ...]) -> None:
    how, name = arguments
    folder = person.site / "tensorflow-plugins"
    folder.mkdir(exist_ok=True)
    path = folder / name
    if how == "stand-in":
        standins.write_library(path, person.cache)
    elif how == "needs-more":
        standins.write_library(path, person.cache, needs=("libze_loader.so.1",))
    else:
        path.write_bytes(b"")
        damage_file(path, how, 50)


def _explain_plugin(arguments: tuple[str, ...]) -> Meaning:
    right = make_causes("damaged-file", "package-conflict")
    if arguments[0] == "needs-more":
        right |= make_causes("libs-transitive", "libs-not-installed")
    return Meaning(right, later=right)


def _draw_doubled(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    libraries = [name for name in ground.libraries if "/" in name and not name.endswith(".so")]
    return (rng.choice(libraries),) if libraries else None


def _apply_doubled(person: User, arguments: tuple[str, ...]) -> None:
    path = _find_file(person, "cuda", arguments[0])
    shutil.copyfile(
        path, path.with_name(path.name + ".bak")
    ) if path.stat().st_size < MAX_COPIED_BYTES else None
    backup = person.folder("backup/lib")
    (backup / path.name).symlink_to(path)
    person.set_variable("shell", "LD_LIBRARY_PATH", str(backup), front=True)


def _draw_patched(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    return (rng.choice(ground.native),) if ground.native else None


def _patch(person: User, arguments: tuple[str, ...]) -> None:
    """Change the name of the compiler in an object, at the same size, as patchelf and conda-pack change other texts."""
    if (person.site / arguments[0]).stat().st_size > MAX_COPIED_BYTES:
        message = f"{arguments[0]} is too large to be copied"
        raise Undrawn(message)
    path = person.make_writable_copy(arguments[0])
    content = path.read_bytes()
    position = content.rfind(b"GCC: (")
    if position < 0:
        message = f"{arguments[0]} does not name its compiler"
        raise Undrawn(message)
    with path.open("r+b") as stream:
        stream.seek(position)
        stream.write(b"gcc")


KINDS = (
    Kind(
        "patched",
        3,
        _draw_patched,
        _patch,
        lambda _words: Meaning(
            make_causes("damaged-file"), later=make_causes("damaged-file"), by_hand=None, fix=None
        ),
    ),
    Kind("file-damaged", 12, _draw_damaged, _apply_damage, _explain_damaged),
    Kind("file-removed", 6, _draw_removed, _apply_removed, _explain_removed),
    Kind("unreadable", 4, _draw_unreadable, _make_unreadable, _explain_not_permitted, group="user"),
    Kind("plugin", 4, _draw_plugin, _add_plugin, _explain_plugin),
    Kind(
        "doubled",
        1,
        _draw_doubled,
        _apply_doubled,
        lambda _words: Meaning(find_cuda_causes("cudnn"), fix=None),
    ),
)
