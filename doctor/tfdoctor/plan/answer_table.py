"""The structure of the answer table that `plan.answer_table_builder` fills. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdoctor import versions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from tfdoctor.compat import Platform
    from tfdoctor.fit import Host

Answer: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...], int]"
Numbers: TypeAlias = "tuple[int, ...]"

__all__ = [
    "ANY_CARD",
    "NAME",
    "OLDEST_BRANCH",
    "PLACES",
    "Answer",
    "Drivers",
    "Numbers",
    "TableSystem",
    "Verdicts",
    "encode_runs",
    "fill_text",
    "join_numbers",
    "make_text",
]

NAME, QUOTED, CAPABILITY, DRIVER, GLIBC = PLACES = ("\ue000", "\ue001", "\ue002", "\ue003", "\ue004")
"""What stands in an answer for the card's name, the same as a shell's word, its compute capability, the driver and the
glibc."""
ANY_CARD = "*"
"""Stands for every capability, where the card does not matter."""
OLDEST_BRANCH = 375
"""Branches before this one are older than what any release with GPU code needs; they are not offered."""


@dataclass(frozen=True, slots=True)
class TableSystem:
    """An operating system that can be chosen."""

    word: str
    """`"linux"`, `"linux-2.17"` (with that glibc), `"wsl"`, `"windows"`, `"macos"`."""
    title: str
    platform: Platform
    """Whose driver numbers count."""
    host: Host
    """A machine with it of which nothing else is known."""
    addressed: bool = False
    """Whether its commands name the card and the driver: they may be typed anywhere."""


@dataclass(frozen=True, slots=True)
class Drivers:
    """The drivers of one platform, as far as the answers tell them apart."""

    steps: tuple[str, ...]
    """The oldest first: a version (`"525.60.13"`) stands for itself and all before the next version; `"525.*"` is what
    `--driver 525` means, the newest driver of a branch. Another branch has the answer of any driver of it."""

    @property
    def places(self) -> int:
        """Answers in a row: of drivers before all steps, of each step, and of an unknown driver."""
        return len(self.steps) + 2

    def place(self, driver: str) -> int:
        """Return where the answer of a driver stands in a row; "": not known. Raises VersionSyntaxError."""
        if not driver:
            return self.places - 1
        numbers = versions.numbers(driver)
        branch = f"{join_numbers(numbers)}.*"
        if branch in self.steps:
            return 1 + self.steps.index(branch)
        reached = [
            place
            for place, step in enumerate(self.steps)
            if "*" not in step and versions.numbers(step) <= numbers
        ]
        return reached[-1] + 1 if reached else 0

    @property
    def branches(self) -> tuple[str, ...]:
        """The branches among the steps that are worth offering."""
        named = [step.removesuffix(".*") for step in self.steps if step.endswith(".*")]
        return tuple(one for one in named if one.isdigit() and int(one) >= OLDEST_BRANCH)


@dataclass
class Verdicts:
    """The table. `answer` looks up; whoever writes it elsewhere writes its parts."""

    systems: tuple[TableSystem, ...]
    cards: dict[str, tuple[str, ...]]
    """A compute capability → the cards' names that mean it and nothing else."""
    pythons: tuple[str, ...]
    """The oldest first."""
    minors: tuple[str, ...]
    """The newest first."""
    drivers: dict[Platform, Drivers] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    options: list[tuple[object, ...]] = field(default_factory=list)
    """(recipe, TensorFlow, Python, CUDA, cuDNN, image, bytes, commands, serious caveats, other caveats): the image and
    the last three as numbers of `texts`, "" and -1 for what is not known."""
    answers: list[Answer] = field(default_factory=list)
    """(numbers of `options`, best first; of the `texts` that say why there is none; of the one that says why it is not
    in a virtual environment, or -1)."""
    cells: dict[tuple[str, str, str, str], tuple[int, ...]] = field(default_factory=dict)
    """(system, minor or "", Python or "", capability or "") → runs over the places of the platform's drivers: an
    answer, how often, the next answer, how often …

    Where the card does not matter, there is one row of one answer for `ANY_CARD`.
    """

    def answer(self, system: str, minor: str, python: str, capability: str, driver: str) -> int:
        """Return the number of an answer; "": any. Raises KeyError for what is not in the table."""
        alone = self.cells.get((system, minor, python, ANY_CARD))
        if alone is not None:
            return alone[0]
        platform = next(one.platform for one in self.systems if one.word == system)
        left = self.drivers[platform].place(driver)
        runs = self.cells[system, minor, python, capability]
        for answer, times in zip(runs[::2], runs[1::2], strict=True):
            left -= times
            if left < 0:
                return answer
        raise KeyError(driver)


def fill_text(text: str, *, name: str, capability: str, driver: str, glibc: str) -> str:
    """Return a text of the table with what was asked for in its places."""
    values = (name, shlex.quote(name), capability, driver, glibc)
    for place, value in zip(PLACES, values, strict=True):
        text = text.replace(place, value)
    return text


def join_numbers(numbers: Numbers) -> str:
    return ".".join(map(str, numbers))


def encode_runs(answers: Iterable[int]) -> tuple[int, ...]:
    """Return (answer, how often, answer, how often, …)."""
    found: list[int] = []
    for one in answers:
        if found and found[-2] == one:
            found[-1] += 1
        else:
            found += [one, 1]
    return tuple(found)


_QUOTED = shlex.quote(NAME)


def make_text(text: str, capability: str | None, driver: str | None, glibc: str | None) -> str:
    """Return the text with places for what was asked for: `put` makes it as it was."""
    text = text.replace(_QUOTED, QUOTED)
    if capability is not None:
        text = re.sub(
            rf"(compute capability |--gpu ){re.escape(capability)}(?![.\d])", rf"\1{CAPABILITY}", text
        )
    if driver is not None:
        text = re.sub(rf"(?<![.\d]){re.escape(driver)}(?![.\d])", DRIVER, text)
    if glibc is not None:
        text = re.sub(rf"(?<=here is ){re.escape(glibc)}(?![.\d])", GLIBC, text)
    return text
