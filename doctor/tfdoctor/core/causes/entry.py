"""The data of a cause, and the enumerations that it uses."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from tfdoctor.core.records import dataclass

if TYPE_CHECKING:
    from tfdoctor.core.causes.steps import Remedy

__all__ = ["CauseData", "CommonRemedy", "Severity"]


class Severity(enum.IntEnum):
    """How serious a finding is. Members are ordered."""

    INFO = 0
    WARNING = 1
    ERROR = 2

    @property
    def word(self) -> str:
        """The name in lower case, as users see it."""
        return self.name.lower()


class CommonRemedy(enum.Enum):
    """A remedy that several causes share, or whose text depends on the log.

    The values only describe the remedies. logs/advice.py has their texts and commands.
    """

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
    DRIVER_START = "make the driver start"
    DRIVER = "a newer driver, or a release for the one that is there"
    HOST_DRIVER = "which image the host's driver runs"
    RUN = "run the program so that it says more"
    STUB = "search no folder of stubs"
    APPTAINER = "run in an official image, without root"


@dataclass(frozen=True, slots=True)
class CauseData:
    """Everything that is known about one cause."""

    word: str
    """The word that users see and type. It never changes."""
    meaning: str
    """A sentence that `tfdoctor explain WORD` prints."""
    finding_title: str
    """Title of the finding about a log that shows this cause."""
    finding_code: str
    """Code of that finding: the code of the check with this cause, or TFD8xx if only a log shows the cause."""
    allows_registration: bool = True
    """False if this cause keeps TensorFlow from registering GPUs. A log that shows a registered GPU takes precedence."""
    severity: Severity = Severity.ERROR
    """Severity of the finding about a log that shows this cause."""
    consequence_words: tuple[str, ...] = ()
    """Words of the causes whose findings are only consequences of this one, or are fixed together with it."""
    refusal_rank: int | None = None
    """Rank of this cause among the reasons why no release fits a machine. The lowest rank comes first, None last."""
    log_remedies: Remedy | tuple[Remedy | CommonRemedy, ...] = (CommonRemedy.CHECK,)
    """Remedies if only a log is available, not the machine."""
