"""The user's requirements: validated files and options."""

from tfdoctor.environment.requirements.lines import MAX_LINES, parse_packages, parse_requirements
from tfdoctor.environment.requirements.models import Condition
from tfdoctor.environment.requirements.requirement_set import (
    RequirementSet,
    WantedForPython,
    drop_cuda_lines,
    read_wish,
)

__all__ = [
    "MAX_LINES",
    "Condition",
    "RequirementSet",
    "WantedForPython",
    "drop_cuda_lines",
    "parse_packages",
    "parse_requirements",
    "read_wish",
]
