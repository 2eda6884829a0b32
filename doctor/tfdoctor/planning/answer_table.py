"""Define the table of the planner's answers for each system, GPU, driver, Python and TensorFlow minor.

`planning.answer_table_builder` fills it.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdoctor.core import versions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from tfdoctor.compat import Platform
    from tfdoctor.prediction.fit.models import Host

Answer: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...], int]"
VersionNumbers: TypeAlias = "tuple[int, ...]"

__all__ = [
    "ANY_GPU",
    "GPU_NAME_PLACEHOLDER",
    "OLDEST_DRIVER_BRANCH",
    "PLACEHOLDERS",
    "Answer",
    "AnswerTable",
    "DriverSteps",
    "TableSystem",
    "VersionNumbers",
    "encode_run_lengths",
    "insert_text_placeholders",
    "join_numbers",
    "replace_placeholders",
]

(
    GPU_NAME_PLACEHOLDER,
    QUOTED_NAME_PLACEHOLDER,
    CAPABILITY_PLACEHOLDER,
    DRIVER_PLACEHOLDER,
    GLIBC_PLACEHOLDER,
) = PLACEHOLDERS = ("\ue000", "\ue001", "\ue002", "\ue003", "\ue004")
"""Private-use characters that stand for the GPU and the machine in a text of the table.

In this order: the GPU's name, the name quoted for a shell, its compute capability, the driver, the glibc.
"""
_QUOTED_PLACEHOLDER = shlex.quote(GPU_NAME_PLACEHOLDER)
"""The placeholder of the GPU's name as the commands of an option contain it."""
ANY_GPU = "*"
"""The key for every compute capability, if the answer does not depend on the GPU."""
OLDEST_DRIVER_BRANCH = 375
"""The oldest driver branch that is offered: no release with GPU code needs an older one."""


@dataclass(frozen=True, slots=True)
class TableSystem:
    """An operating system that the user can choose."""

    key: str
    """`"linux"`, `"linux-2.17"` (with that glibc), `"wsl"`, `"windows"` or `"macos"`."""
    title: str
    platform: Platform
    """The platform whose driver versions apply."""
    host: Host
    """A machine with this system, about which nothing else is known."""
    needs_machine_arguments: bool = False
    """Whether the commands name the GPU and the driver, so that they work on any machine."""


@dataclass(frozen=True, slots=True)
class DriverSteps:
    """The driver versions of one platform at which an answer can change."""

    steps: tuple[str, ...]
    """The driver steps, oldest first.

    A version (`"525.60.13"`) stands for itself and every driver before the next version. `"525.*"` stands for
    `--driver 525`, the newest driver of that branch. If a branch has no step, all of its drivers have the same
    answer.
    """

    @property
    def answer_count(self) -> int:
        """The number of answers in a row.

        A row has an answer for drivers before all steps, one for each step, and one for an unknown driver.
        """
        return len(self.steps) + 2

    def find_driver_index(self, driver: str) -> int:
        """Return the index of a driver's answer in a row; "" means that the driver is unknown.

        Raise VersionSyntaxError if `driver` is not a version.
        """
        if not driver:
            return self.answer_count - 1
        numbers = versions.parse_numbers(driver)
        branch = f"{join_numbers(numbers)}.*"
        if branch in self.steps:
            return 1 + self.steps.index(branch)
        older_indexes = [
            index
            for index, step in enumerate(self.steps)
            if "*" not in step and versions.parse_numbers(step) <= numbers
        ]
        # Index 0 is for drivers that are older than all steps.
        return older_indexes[-1] + 1 if older_indexes else 0

    @property
    def branches(self) -> tuple[str, ...]:
        """The branches among the steps that are offered: whole numbers from `OLDEST_DRIVER_BRANCH` on."""
        branches = [step.removesuffix(".*") for step in self.steps if step.endswith(".*")]
        return tuple(
            branch for branch in branches if branch.isdigit() and int(branch) >= OLDEST_DRIVER_BRANCH
        )


@dataclass
class AnswerTable:
    """The answers of the planner. `find_answer_index` finds one; writers of other formats read the fields."""

    systems: tuple[TableSystem, ...]
    gpu_names: dict[str, tuple[str, ...]]
    """The GPU names by compute capability, without names that several capabilities share."""
    pythons: tuple[str, ...]
    """Python versions, oldest first."""
    minors: tuple[str, ...]
    """Minor versions of TensorFlow, newest first."""
    driver_steps: dict[Platform, DriverSteps] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    options: list[tuple[object, ...]] = field(default_factory=list)
    """The options as tuples.

    Items: recipe, TensorFlow, Python, CUDA, cuDNN, image, bytes, commands, serious caveats, other caveats.
    The image, the commands and the caveats are indexes into `texts`. A cuDNN of "" and a size of -1 are unknown.
    """
    answers: list[Answer] = field(default_factory=list)
    """The answers as tuples.

    Items: the indexes of `options`, best first; the indexes of the `texts` that explain why there is no
    option; the index of the text that explains why a virtual environment would not work, or -1.
    """
    answer_rows: dict[tuple[str, str, str, str], tuple[int, ...]] = field(default_factory=dict)
    """The answers to each request, as run-length encoded rows (see `encode_run_lengths`).

    The key is (system, minor, Python, capability), in which "" means any value. A row has one answer for each
    index that `DriverSteps.find_driver_index` returns. If the GPU does not matter, the only row has the capability
    `ANY_GPU` and one answer.
    """

    def find_answer_index(self, system: str, minor: str, python: str, capability: str, driver: str) -> int:
        """Return the index of an answer. An argument of "" means any value, or an unknown driver.

        Raise KeyError if the table has no answer for these arguments.
        """
        any_gpu_row = self.answer_rows.get((system, minor, python, ANY_GPU))
        if any_gpu_row is not None:
            return any_gpu_row[0]
        platform = next(table_system.platform for table_system in self.systems if table_system.key == system)
        index = self.driver_steps[platform].find_driver_index(driver)
        row = self.answer_rows[system, minor, python, capability]
        # Find the run that contains the index.
        for answer, count in zip(row[::2], row[1::2], strict=True):
            index -= count
            if index < 0:
                return answer
        raise KeyError(driver)


def replace_placeholders(text: str, *, name: str, capability: str, driver: str, glibc: str) -> str:
    """Replace the placeholders in a text of the table with the given values."""
    values = (name, shlex.quote(name), capability, driver, glibc)
    for placeholder, value in zip(PLACEHOLDERS, values, strict=True):
        text = text.replace(placeholder, value)
    return text


def join_numbers(numbers: VersionNumbers) -> str:
    return ".".join(map(str, numbers))


def encode_run_lengths(answers: Iterable[int]) -> tuple[int, ...]:
    """Return the run-length encoding of the answers: answer, count, answer, count, and so on."""
    runs: list[int] = []
    for answer in answers:
        if runs and runs[-2] == answer:
            runs[-1] += 1
        else:
            runs += [answer, 1]
    return tuple(runs)


def insert_text_placeholders(text: str, capability: str | None, driver: str | None, glibc: str | None) -> str:
    """Replace the given values in a text with placeholders. This is the inverse of `replace_placeholders`.

    A capability or glibc is replaced only after certain words, because it may equal another version number.
    """
    text = text.replace(_QUOTED_PLACEHOLDER, QUOTED_NAME_PLACEHOLDER)
    if capability is not None:
        text = re.sub(
            rf"(compute capability |--gpu ){re.escape(capability)}(?![.\d])",
            rf"\1{CAPABILITY_PLACEHOLDER}",
            text,
        )
    if driver is not None:
        text = re.sub(rf"(?<![.\d]){re.escape(driver)}(?![.\d])", DRIVER_PLACEHOLDER, text)
    if glibc is not None:
        text = re.sub(rf"(?<=here is ){re.escape(glibc)}(?![.\d])", GLIBC_PLACEHOLDER, text)
    return text
