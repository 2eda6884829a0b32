"""Read and validate the user's requirements, from files and options."""

from tfdoctor.environment.requirements.lines import MAX_LINES, parse_packages, parse_requirements
from tfdoctor.environment.requirements.models import VersionCondition
from tfdoctor.environment.requirements.requirement_set import (
    PythonRequirements,
    RequirementSet,
    drop_cuda_lines,
    read_requirement_files,
)

__all__ = [
    "MAX_LINES",
    "PythonRequirements",
    "RequirementSet",
    "VersionCondition",
    "drop_cuda_lines",
    "parse_packages",
    "parse_requirements",
    "read_requirement_files",
]
