"""What a user wants installed: files and options that come from outside, checked."""

from tfdoctor.environment.requirements.asked import Condition
from tfdoctor.environment.requirements.lines import MAX_LINES, parse_packages, parse_requirements
from tfdoctor.environment.requirements.wish import RequirementSet, WantedForPython, drop_cuda_lines, read_wish

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
