"""Plan an installation: turn a request and a machine into ranked options or a conflict, without I/O.

Each decision names the entry of compat/ that justifies it.
"""

from tfdoctor.plan.hypothetical_facts import make_predicted_facts
from tfdoctor.plan.models import (
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
from tfdoctor.plan.recommend import recommend

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
