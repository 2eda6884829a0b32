"""Ways to change where an environment is, whose it is, and what machine it stands on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.strangers.grammar import Kind, Meaning, causes
from lab.strangers.ground import LINKED, ON_PATH
from lab.strangers.person import NOBODY, UNREADY

if TYPE_CHECKING:
    import random

    from lab.strangers.ground import Ground
    from lab.strangers.person import Person

_PLACES = ("tf env", "Umgebung-ä", "env.old", "it's mine", "a$b", "deep/er/env")


def _draw_moved(rng: random.Random, _ground: Ground) -> tuple[str, ...] | None:
    return rng.choice(("renamed", "renamed", "symlinked")), rng.choice(_PLACES)


def _move(person: Person, words: tuple[str, ...]) -> None:
    how, name = words
    place = person.folder("places") / name
    place.parent.mkdir(parents=True, exist_ok=True)
    if how == "symlinked":
        place.symlink_to(person.root)
        person.shown = place
    else:
        person.root.rename(place)
        person.moves.append((person.root, place))
        person.root = place


def _moved_means(_words: tuple[str, ...]) -> Meaning:
    gone = causes("tensorflow-missing", "python-unusable")
    # What named the libraries by the old place names nothing any more.
    return Meaning(
        gone | causes("libs-not-on-path", "libs-not-installed", "cudnn-missing"), by_hand=None, fix=None
    )


def _draw_reader(_rng: random.Random, _ground: Ground) -> tuple[str, ...] | None:
    return ()


def _read_only(person: Person, _words: tuple[str, ...]) -> None:
    person.user = NOBODY


def _draw_nothing_more(_rng: random.Random, _ground: Ground) -> tuple[str, ...] | None:
    return ()


def _no_exec(person: Person, _words: tuple[str, ...]) -> None:
    person.noexec = True


def _not_permitted(_words: tuple[str, ...]) -> Meaning:
    return Meaning(causes("not-permitted"), later=causes("not-permitted"), by_hand=False, fix=False)


def _draw_driver(rng: random.Random, ground: Ground) -> tuple[str, ...] | None:
    nvml = ("no-nvml",) if ground.release >= (2, 21) else ()
    return (rng.choice(("no-driver", "no-device", *nvml)),)


def _break_driver(person: Person, words: tuple[str, ...]) -> None:
    if words[0] == "no-driver":
        person.driver = False
    elif words[0] == "no-nvml":
        person.nvml = False
    else:
        person.gpus = 0


def _driver_means(words: tuple[str, ...]) -> Meaning:
    named = {"no-driver": causes("no-driver"), "no-device": causes("no-device", "no-driver")}
    return Meaning(named.get(words[0], causes("nvml-missing")), by_hand=False, fix=False)


_CARDS = ("3.0", "3.5", "5.2", "6.1", "7.0", "7.5", "8.6", "8.9", "9.0", "10.0", "12.0", "8.0,3.0", "2.1,7.0")


def _draw_card(rng: random.Random, _ground: Ground) -> tuple[str, ...] | None:
    return (rng.choice(_CARDS),)


def _change_card(person: Person, words: tuple[str, ...]) -> None:
    person.capability = words[0]
    if "," in words[0]:
        person.gpus = 2


def _card_means(_words: tuple[str, ...]) -> Meaning:
    found = causes("gpu-too-old", "gpu-too-new", "hidden-by-env")
    return Meaning(found, later=found, by_hand=None, fix=None)


def _draw_python(rng: random.Random, _ground: Ground) -> tuple[str, ...] | None:
    return (rng.choice(("base-gone", "base-gone", "config-gone", "home-wrong")),)


def _break_python(person: Person, words: tuple[str, ...]) -> None:
    if words[0] == "base-gone":
        link = person.root / "bin" / "python"
        link.unlink()
        link.symlink_to("/opt/python-3.9-that-was-removed/bin/python3")
    elif words[0] == "config-gone":
        (person.root / "pyvenv.cfg").unlink()
    else:
        config = person.root / "pyvenv.cfg"
        lines = config.read_text(encoding="utf-8").splitlines()
        config.unlink()
        config.write_text(
            "\n".join("home = /nowhere/bin" if line.startswith("home") else line for line in lines) + "\n",
            encoding="utf-8",
        )


def _python_means(_words: tuple[str, ...]) -> Meaning:
    found = causes("python-unusable", "tensorflow-missing")
    return Meaning(found, later=found, by_hand=None, fix=None)


def _draw_unready(_rng: random.Random, ground: Ground) -> tuple[str, ...] | None:
    if ground.base in LINKED:
        return ("link",)
    if ground.toolkit:
        return ("toolkit",)
    return ("wheels",) if ground.base in ON_PATH else None


def _leave_unready(_person: Person, _words: tuple[str, ...]) -> None:
    """Person.prepare leaves out what would be done."""


def _unready_means(words: tuple[str, ...]) -> Meaning:
    found = causes("libs-not-on-path", "libs-not-installed", "cudnn-missing", "import-missing-cuda-lib")
    possible = None if words[0] == "toolkit" else True
    return Meaning(found, by_hand=possible, fix=possible)


KINDS = (
    Kind(UNREADY, 3, _draw_unready, _leave_unready, _unready_means, group="search-path"),
    Kind("moved", 5, _draw_moved, _move, _moved_means, group="place", last=True),
    Kind("another-user", 3, _draw_reader, _read_only, _not_permitted, group="user"),
    Kind("noexec", 2, _draw_nothing_more, _no_exec, _not_permitted, group="noexec"),
    Kind("driver", 3, _draw_driver, _break_driver, _driver_means, group="driver"),
    Kind("card", 4, _draw_card, _change_card, _card_means, group="driver"),
    Kind("python", 3, _draw_python, _break_python, _python_means, group="place", last=True),
)
