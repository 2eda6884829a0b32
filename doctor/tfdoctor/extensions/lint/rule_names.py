"""The names of the rules that can report a problem of an image. Importing them takes long."""

from __future__ import annotations

from tfdoctor.images.checks import DOCKERFILE_RULES
from tfdoctor.rules import ALL_RULES

__all__ = ["NAME_BY_CODE"]

NAME_BY_CODE = {rule.code: rule.name for rule in ALL_RULES}
NAME_BY_CODE |= {rule.code: rule.name for rule in DOCKERFILE_RULES}
"""The name of each rule, by code."""
