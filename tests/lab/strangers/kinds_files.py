"""Ways to change single files: cut, emptied, replaced, gone, not to be read; and plugins that TensorFlow loads."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from lab import standins
from lab.strangers.grammar import Kind, Meaning, causes
from lab.strangers.ground import TOOLKITS, Ground, Undrawn
from lab.strangers.kinds_packages import of_cuda
from lab.strangers.person import NOBODY

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from lab.strangers.person import Person

MOST_COPIED = 64 << 20
"""Bytes that are kept of a file that is cut: the rest of a library of hundreds of MB says nothing more."""
_HOW = ("cut", "cut", "emptied", "text", "wrong-class", "wrong-machine", "zeros")


_NEEDED = re.compile(r"lib(cudart|cublas|cublasLt|cufft|curand|cusolver|cusparse|cudnn|nvJitLink)\.so")


def pick_library(rng: random.Random, ground: Ground) -> str | None:
    """One of CUDA's, mostly of those that TensorFlow opens."""
    needed = [name for name in ground.libraries if _NEEDED.search(name)]
    found = needed if needed and rng.random() < 0.7 else list(ground.libraries)
    return rng.choice(found) if found else None


def _pick(rng: random.Random, ground: Ground) -> tuple[str, str] | None:
    """What sort of file, and which."""
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


def _where(person: Person, sort: str, name: str) -> Path:
    if sort == "cuda" and person.story.base in TOOLKITS:
        found = person.work / "cuda/lib64" / name
    else:
        found = person.site / name
    if not found.is_file():
        message = f"{name} is not there any more"
        raise Undrawn(message)
    return found


def _draw_damaged(rng: random.Random, ground: Ground) -> tuple[str, ...] | None:
    picked = _pick(rng, ground)
    if picked is None:
        return None
    how = rng.choice(_HOW)
    if picked[0] == "module":
        how = rng.choice(("cut", "emptied", "zeros"))
    return *picked, how, str(rng.randrange(5, 96))


def _damage(person: Person, words: tuple[str, ...]) -> None:
    sort, name, how, percent = words
    damage(_where(person, sort, name), how, int(percent))


def damage(path: Path, how: str, percent: int) -> None:
    """Put something else in the place of a file, never into it: others have it, too."""
    mode = path.stat().st_mode
    keep = min(path.stat().st_size * percent // 100, MOST_COPIED)
    with path.open("rb") as stream:
        content = stream.read(keep)
    if how == "wrong-class":
        standins.wrong_class(path)
    elif how == "wrong-machine":
        standins.wrong_machine(path)
    else:
        path.unlink()
        named = {"cut": content, "emptied": b"", "text": b"<html>404 Not Found</html>\n"}
        path.write_bytes(named.get(how, b"\0" * min(max(keep, 4096), 1 << 20)))
    path.chmod(mode)


def _damaged_means(words: tuple[str, ...]) -> Meaning:
    sort, name = words[0], words[1]
    found = causes("damaged-file")
    if sort == "cuda" and "/" not in name:  # a toolkit's: not of this environment
        return Meaning(found, later=found, by_hand=None, fix=None)
    if sort in ("extension", "module"):
        found |= causes("package-conflict")
    return Meaning(found, later=causes("damaged-file"))


def _draw_removed(rng: random.Random, ground: Ground) -> tuple[str, ...] | None:
    return _pick(rng, ground)


def _remove(person: Person, words: tuple[str, ...]) -> None:
    _where(person, *words).unlink()


def _removed_means(words: tuple[str, ...]) -> Meaning:
    sort, name = words
    if sort == "cuda":
        stem = "cudnn" if "cudnn" in name else "nvjitlink" if "nvJitLink" in name else name
        found = of_cuda(stem) | causes("damaged-file", "libs-not-on-path")
        inside = True if "/" in name else None
        return Meaning(found, later=found, by_hand=inside, fix=inside)
    found = causes("damaged-file")
    if sort != "native":
        found |= causes("package-conflict")
    return Meaning(found, later=found)


def _draw_unreadable(rng: random.Random, ground: Ground) -> tuple[str, ...] | None:
    picked = _pick(rng, ground)
    if picked is None or (picked[0] == "cuda" and ground.toolkit):
        return None
    return *picked, rng.choice(("file", "folder", "folder")), rng.choice(("000", "700", "700"))


def _make_unreadable(person: Person, words: tuple[str, ...]) -> None:
    sort, name, which, mode = words
    path = _where(person, sort, name)
    person.user = NOBODY
    if which == "folder" and path.parent != person.site:
        path.parent.chmod(int(mode, 8))
        return
    if path.stat().st_size > 4 * MOST_COPIED:
        message = f"{name} is too large to copy"
        raise Undrawn(message)
    person.changed(path.relative_to(person.site).as_posix()).chmod(int(mode, 8))


def _not_permitted(_words: tuple[str, ...]) -> Meaning:
    return Meaning(causes("not-permitted"), later=causes("not-permitted"), by_hand=None, fix=False)


def _draw_plugin(rng: random.Random, ground: Ground) -> tuple[str, ...] | None:
    if ground.release < (2, 5):
        return None
    return rng.choice(("text", "emptied", "stand-in", "wrong-machine", "needs-more")), rng.choice(
        ("libitex_gpu.so", "libmetal_plugin.so", "libtfdml_plugin.so", "libdevice_plugin.so")
    )


def _add_plugin(person: Person, words: tuple[str, ...]) -> None:
    how, name = words
    folder = person.site / "tensorflow-plugins"
    folder.mkdir(exist_ok=True)
    path = folder / name
    if how == "stand-in":
        standins.library(path, person.cache)
    elif how == "needs-more":
        standins.library(path, person.cache, needs=("libze_loader.so.1",))
    else:
        path.write_bytes(b"")
        damage(path, how, 50)


def _plugin_means(words: tuple[str, ...]) -> Meaning:
    found = causes("damaged-file", "package-conflict")
    if words[0] == "needs-more":
        found |= causes("libs-transitive", "libs-not-installed")
    return Meaning(found, later=found)


def _draw_doubled(rng: random.Random, ground: Ground) -> tuple[str, ...] | None:
    libraries = [name for name in ground.libraries if "/" in name and not name.endswith(".so")]
    return (rng.choice(libraries),) if libraries else None


def _double(person: Person, words: tuple[str, ...]) -> None:
    path = _where(person, "cuda", words[0])
    shutil.copyfile(path, path.with_name(path.name + ".bak")) if path.stat().st_size < MOST_COPIED else None
    other = person.folder("backup/lib")
    (other / path.name).symlink_to(path)
    person.opens("shell", "LD_LIBRARY_PATH", str(other), front=True)


KINDS = (
    Kind("file-damaged", 12, _draw_damaged, _damage, _damaged_means),
    Kind("file-removed", 6, _draw_removed, _remove, _removed_means),
    Kind("unreadable", 4, _draw_unreadable, _make_unreadable, _not_permitted, group="user"),
    Kind("plugin", 4, _draw_plugin, _add_plugin, _plugin_means),
    Kind("doubled", 1, _draw_doubled, _double, lambda _words: Meaning(of_cuda("cudnn"), fix=None)),
)
