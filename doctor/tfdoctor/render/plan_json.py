"""What the planner answers, in the shape of docs/schemas/recommend.schema.json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfdoctor.fit import Caveat, Host, Reason
    from tfdoctor.plan import Option, Recommendation, Request

__all__ = ["build_json", "option_json", "recommendation_json"]


def recommendation_json(answer: Recommendation) -> dict[str, Any]:
    """The document that `tfdoctor recommend --json` prints."""
    return {
        "schema_version": 1,
        "request": _request(answer.request),
        "host": _host(answer.host),
        "options": [option_json(option, rank) for rank, option in enumerate(answer.options, 1)],
        "rejected": [
            {
                "method": one.recipe.method.value,
                "recipe": one.recipe.value,
                "tensorflow": one.tensorflow,
                "reasons": [_reason(reason) for reason in one.reasons],
            }
            for one in answer.rejected
        ],
        "conflict": None
        if answer.conflict is None
        else {
            "reasons": [_reason(reason) for reason in answer.conflict.reasons],
            "nearest": [
                {"text": one.text, "option": option_json(one.option, rank)}
                for rank, one in enumerate(answer.conflict.nearest, 1)
            ],
        },
    }


def build_json(
    option: Option,
    dockerfile: str,
    image: dict[str, Any] | None,
    verification: dict[str, Any] | None,
) -> dict[str, Any]:
    """The document that `tfdoctor build --json` prints. `image`: its `id`, `tags` and `size_bytes`."""
    return {
        "schema_version": 1,
        "plan": option_json(option, 1),
        "dockerfile": dockerfile,
        "image": image,
        "verification": verification,
    }


def option_json(option: Option, rank: int) -> dict[str, Any]:
    """One option."""
    return {
        "rank": rank,
        "method": option.method.value,
        "recipe": option.recipe.value,
        "tensorflow": option.tensorflow,
        "python": option.python,
        "cuda": option.cuda,
        "cudnn": option.cudnn,
        "base_image": option.base.reference if option.base is not None else None,
        "packages": list(option.packages),
        "size_bytes": option.size,
        "parts": [{"name": part.name, "bytes": part.bytes, "why": part.why} for part in option.parts],
        "commands": list(option.commands),
        "reasons": list(option.reasons),
        "caveats": [_caveat(caveat) for caveat in option.caveats],
    }


def _reason(reason: Reason) -> dict[str, Any]:
    return {"cause": reason.cause.value, "text": reason.text, "source": reason.source}


def _caveat(caveat: Caveat) -> dict[str, Any]:
    return {
        "cause": caveat.cause.value,
        "text": caveat.text,
        "source": caveat.source,
        "serious": caveat.serious,
    }


def _request(request: Request) -> dict[str, Any]:
    return {
        "tensorflow": request.tensorflow,
        "python": request.python,
        "method": request.method.value if request.method is not None else None,
        "recipe": request.recipe.value if request.recipe is not None else None,
        "base": request.base,
        "requirements": list(request.requirements),
    }


def _host(host: Host) -> dict[str, Any]:
    return {
        "gpus": [{"name": card.name, "compute_capability": card.capability} for card in host.cards],
        "driver": host.driver,
        "system": host.system,
        "machine": host.machine,
        "glibc": host.glibc,
        "python": host.python,
        "container_engine": host.engine,
    }
