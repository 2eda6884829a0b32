"""What a row of the causes has, and the words that it is written with."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from tfdoctor.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.causes.steps import Remedy

__all__ = ["CauseRow", "Do", "Severity"]


class Severity(enum.IntEnum):
    """How much it matters; comparable."""

    INFO = 0
    WARNING = 1
    ERROR = 2

    @property
    def word(self) -> str:
        return self.name.lower()


class Do(enum.Enum):
    """What to do, where several causes share it or it takes what a log says: logs/advice.py has the words."""

    CHECK = "check the machine itself"
    RELEASE = "which release fits the cards"
    LIBRARIES = "what the release needs, and how to install it"
    LIBRARY = "the shortest of these"
    NAME_LIBRARIES = "make TensorFlow name the libraries"
    RESTART = "restart the machine"
    GPUS = "start the container with GPUs"
    UTILITIES = "start the container with the driver's utilities"
    TOOLKIT = "install NVIDIA's container toolkit"
    MEMORY = "let memory grow"
    PROFILER = "let the profiler have CUPTI"
    DRIVER = "a newer driver, or a release for the one that is there"
    HOST_DRIVER = "which image the host's driver runs"
    RUN = "run the program so that it says more"
    STUB = "search no folder of stubs"


@dataclass(frozen=True, slots=True)
class CauseRow:
    """What is known of one cause."""

    word: str
    """For ever, as codes are."""
    meaning: str
    """A sentence: `tfdoctor explain WORD`."""
    title: str
    """Of the finding in a log that shows it."""
    code: str
    """Of that finding: the check's where one has this cause, TFD8xx where only a log shows it."""
    registers: bool = True
    """False: TensorFlow registers no GPU with it, unless the log shows one."""
    severity: Severity = Severity.ERROR
    """Of that finding."""
    brings: tuple[str, ...] = ()
    """The words of causes whose findings merely follow from it, or are fixed with it."""
    refusal: int | None = None
    """Where no release serves a machine: its place among the reasons. What the user's own machine or wish is the
    reason of comes first; None: after these, what the world lacks."""
    remedies: Remedy | tuple[Remedy | Do, ...] = (Do.CHECK,)
    """What to do where a log is all there is: one thing, or several."""
