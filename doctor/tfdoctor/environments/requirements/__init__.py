"""Read and validate the user's requirements, from files and options."""

from tfdoctor.environments.requirements.lines import MAX_LINES, parse_packages, parse_requirements
from tfdoctor.environments.requirements.models import VersionCondition
from tfdoctor.environments.requirements.requirement_set import (
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
