"""From a wish and a machine to a way that works, each decision with the row of compat/ it rests on. Pure."""

from tfdoctor.plan.hypothetical_facts import make_predicted_facts
from tfdoctor.plan.models import (
    Base,
    Conflict,
    Method,
    Option,
    Part,
    Recipe,
    Recommendation,
    Rejected,
    Request,
    Suggestion,
)
from tfdoctor.plan.recommend import recommend

__all__ = [
    "Base",
    "Conflict",
    "Method",
    "Option",
    "Part",
    "Recipe",
    "Recommendation",
    "Rejected",
    "Request",
    "Suggestion",
    "make_predicted_facts",
    "recommend",
]
