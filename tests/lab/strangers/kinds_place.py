"""Changes to the folder, the owner and the machine of an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.strangers.grammar import Kind, Meaning, make_causes
from lab.strangers.ground import NEEDS_LINK, ON_PATH
from lab.strangers.person import NOBODY, UNREADY

if TYPE_CHECKING:
    import random

    from lab.strangers.ground import BaseContents
    from lab.strangers.person import User

_FOLDER_NAMES = ("tf env", "Umgebung-ä", "env.old", "it's mine", "a$b", "deep/er/env")


def _draw_moved(rng: random.Random, _ground: BaseContents) -> tuple[str, ...] | None:
    return rng.choice(("renamed", "renamed", "symlinked")), rng.choice(_FOLDER_NAMES)


def _move(person: User, arguments: tuple[str, ...]) -> None:
    how, name = arguments
    destination = person.folder("places") / name
    destination.parent.mkdir(parents=True, exist_ok=True)
    if how == "symlinked":
        destination.symlink_to(person.root)
        person.alias = destination
    else:
        person.root.rename(destination)
        person.moves.append((person.root, destination))
        person.root = destination


def _explain_moved(_words: tuple[str, ...]) -> Meaning:
    unusable = make_causes("tensorflow-missing", "python-unusable")
    # Entries that name the libraries by the old folder are invalid.
    return Meaning(
        unusable | make_causes("libs-not-on-path", "libs-not-installed", "cudnn-missing"),
        by_hand=None,
        fix=None,
    )


def _draw_user(_rng: random.Random, _ground: BaseContents) -> tuple[str, ...] | None:
    return ()


def _change_user(person: User, _words: tuple[str, ...]) -> None:
    person.user = NOBODY


def _draw_noexec(_rng: random.Random, _ground: BaseContents) -> tuple[str, ...] | None:
    return ()


def _mount_noexec(person: User, _words: tuple[str, ...]) -> None:
    person.noexec = True


def _explain_not_permitted(_words: tuple[str, ...]) -> Meaning:
    return Meaning(make_causes("not-permitted"), later=make_causes("not-permitted"), by_hand=False, fix=False)


def _draw_driver(rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    nvml = ("no-nvml",) if ground.release >= (2, 21) else ()
    return (rng.choice(("no-driver", "no-device", *nvml)),)


def _break_driver(person: User, arguments: tuple[str, ...]) -> None:
    if arguments[0] == "no-driver":
        person.driver = False
    elif arguments[0] == "no-nvml":
        person.nvml = False
    else:
        person.gpus = 0


def _explain_driver(arguments: tuple[str, ...]) -> Meaning:
    causes_by_change = {
        "no-driver": make_causes("no-driver"),
        "no-device": make_causes("no-device", "no-driver"),
    }
    return Meaning(causes_by_change.get(arguments[0], make_causes("nvml-missing")), by_hand=False, fix=False)


_CAPABILITIES = (
    "3.0",
    "3.5",
    "5.2",
    "6.1",
    "7.0",
    "7.5",
    "8.6",
    "8.9",
    "9.0",
    "10.0",
    "12.0",
    "8.0,3.0",
    "2.1,7.0",
)


def _draw_card(rng: random.Random, _ground: BaseContents) -> tuple[str, ...] | None:
    return (rng.choice(_CAPABILITIES),)


def _change_card(person: User, arguments: tuple[str, ...]) -> None:
    person.capability = arguments[0]
    if "," in arguments[0]:
        person.gpus = 2


def _explain_card(_words: tuple[str, ...]) -> Meaning:
    right = make_causes("gpu-too-old", "gpu-too-new", "hidden-by-env")
    return Meaning(right, later=right, by_hand=None, fix=None)


def _draw_python(rng: random.Random, _ground: BaseContents) -> tuple[str, ...] | None:
    return (rng.choice(("base-gone", "base-gone", "config-gone", "home-wrong")),)


def _break_python(person: User, arguments: tuple[str, ...]) -> None:
    if arguments[0] == "base-gone":
        link = person.root / "bin" / "python"
        link.unlink()
        link.symlink_to("/opt/python-3.9-that-was-removed/bin/python3")
    elif arguments[0] == "config-gone":
        (person.root / "pyvenv.cfg").unlink()
    else:
        config = person.root / "pyvenv.cfg"
        lines = config.read_text(encoding="utf-8").splitlines()
        config.unlink()
        config.write_text(
            "\n".join("home = /nowhere/bin" if line.startswith("home") else line for line in lines) + "\n",
            encoding="utf-8",
        )


def _explain_python(_words: tuple[str, ...]) -> Meaning:
    right = make_causes("python-unusable", "tensorflow-missing")
    return Meaning(right, later=right, by_hand=None, fix=None)


def _draw_unready(_rng: random.Random, ground: BaseContents) -> tuple[str, ...] | None:
    if ground.base in NEEDS_LINK:
        return ("link",)
    if ground.toolkit:
        return ("toolkit",)
    return ("wheels",) if ground.base in ON_PATH else None


def _leave_unready(_person: User, _words: tuple[str, ...]) -> None:
    """Do nothing: Person.prepare omits its usual steps."""


def _explain_unready(arguments: tuple[str, ...]) -> Meaning:
    right = make_causes("libs-not-on-path", "libs-not-installed", "cudnn-missing", "import-missing-cuda-lib")
    is_mendable = None if arguments[0] == "toolkit" else True
    return Meaning(right, by_hand=is_mendable, fix=is_mendable)


def _draw_limit(rng: random.Random, _ground: BaseContents) -> tuple[str, ...] | None:
    return (str(rng.choice((800, 1000, 1500, 2000, 8000))),)


def _limit_address_space(person: User, arguments: tuple[str, ...]) -> None:
    person.address_kib = int(arguments[0]) << 10


def _explain_limit(_words: tuple[str, ...]) -> Meaning:
    # The limit holds for the user's installers, too.
    return Meaning(make_causes("not-permitted"), by_hand=None, fix=None)


KINDS = (
    Kind("address-space", 3, _draw_limit, _limit_address_space, _explain_limit, group="limit"),
    Kind(UNREADY, 3, _draw_unready, _leave_unready, _explain_unready, group="search-path"),
    Kind("moved", 5, _draw_moved, _move, _explain_moved, group="place", last=True),
    Kind("another-user", 3, _draw_user, _change_user, _explain_not_permitted, group="user"),
    Kind("noexec", 2, _draw_noexec, _mount_noexec, _explain_not_permitted, group="noexec"),
    Kind("driver", 3, _draw_driver, _break_driver, _explain_driver, group="driver"),
    Kind("card", 4, _draw_card, _change_card, _explain_card, group="driver"),
    Kind("python", 3, _draw_python, _break_python, _explain_python, group="place", last=True),
)
