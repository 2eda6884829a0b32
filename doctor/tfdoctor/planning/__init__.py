"""Plan an installation: turn a request and a machine into ranked options or a conflict, without I/O.

Each decision names the entry of compat/ that justifies it.
"""

from tfdoctor.planning.hypothetical_facts import make_predicted_facts
from tfdoctor.planning.models import (
    BaseImage,
    Component,
    Conflict,
    Method,
    Option,
    Recipe,
    Recommendation,
    Rejection,
    Request,
    Suggestion,
)
from tfdoctor.planning.recommend import recommend

__all__ = [
    "BaseImage",
    "Component",
    "Conflict",
    "Method",
    "Option",
    "Recipe",
    "Recommendation",
    "Rejection",
    "Request",
    "Suggestion",
    "make_predicted_facts",
    "recommend",
]
