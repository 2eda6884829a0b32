"""What the planner answers, in a terminal and as JSON (docs/schemas/recommend.schema.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.findings import Cause
from tfdoctor.render.page import Page, Text, command_lines, hanging
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.fit import Caveat, Host, Reason
    from tfdoctor.plan import Option, Part, Recommendation, Rejected, Request

__all__ = ["option_json", "recommendation_json", "render_option", "render_recommendation", "size_text"]

_SHOWN = 3
"""Options shown whole without --verbose."""


def render_recommendation(
    answer: Recommendation, *, verbose: bool = False, width: int = 80, colour: bool = False
) -> str:
    """The recommendation as text. Commands are never wrapped."""
    out = Page(width, coloured=colour)
    out.print(Text(_for_whom(answer.host)))
    out.print()
    if answer.conflict is not None:
        _conflict(out, answer)
    else:
        shown = answer.options if verbose else answer.options[:_SHOWN]
        for number, option in enumerate(shown):
            if number:
                out.print()
            _option(out, option, number, verbose=verbose)
        rest = len(answer.options) - len(shown)
        if rest:
            out.print()
            out.print(Text(f"{rest} more with --verbose."))
    _rejected(out, answer, verbose=verbose)
    return out.text


def render_option(option: Option, *, commands: bool = True, width: int = 80, colour: bool = False) -> str:
    """One option, whole, with or without its commands: what `--dry-run` shows."""
    out = Page(width, coloured=colour)
    _option(out, option, 0, verbose=True, commands=commands)
    return out.text


def _for_whom(host: Host) -> str:
    cards = ", ".join(
        card.name if "capability" in card.name else f"{card.name} ({card.capability})" for card in host.cards
    )
    driver = f"driver {host.driver}" if host.driver else "driver not known"
    return clean_line(f"For {cards or 'any card'}, {driver}")


def _option(out: Page, option: Option, number: int, *, verbose: bool, commands: bool = True) -> None:
    where = f"in {option.base.image}" if option.base is not None else "in a virtual environment"
    title = f"TensorFlow {option.tensorflow} on Python {option.python} {where}"
    mark = "!" if option.serious else "✓"
    style = "yellow" if option.serious else "green"
    label = "" if number == 0 else "Or "
    hanging(
        out,
        Text(f"{mark} ", style=style),
        clean_line(f"{label}{title} [{option.recipe.value}]"),
        style="bold",
    )
    cudnn = f", cuDNN {option.cudnn}" if option.cudnn else ""
    size = f"; about {size_text(option.size)}" if option.size is not None else ""
    hanging(out, Text("  Has   "), f"CUDA {option.cuda}{cudnn}{size}")
    for reason in option.reasons:
        hanging(out, Text("  Why   "), clean_line(reason, limit=1000))
    for caveat in option.caveats:
        if caveat.serious or verbose:
            hanging(out, Text("  But   "), clean_line(caveat.text, limit=1000))
    if verbose:
        _parts(out, option.parts)
    command_lines(out, option.commands if commands else ())


def _parts(out: Page, parts: Sequence[Part]) -> None:
    for part in sorted(parts, key=lambda part: -(part.bytes or 0)):
        size = size_text(part.bytes) if part.bytes is not None else "?"
        hanging(out, Text(f"  {size:>9}  "), clean_line(f"{part.name}: {part.why}"))


def size_text(count: int) -> str:
    """Bytes as people read them: `"2.4 GB"`, `"130 MB"`; decimal, as registries count."""
    if count >= 1_000_000_000:
        return f"{count / 1_000_000_000:.1f} GB"
    if count >= 1_000_000:
        return f"{count / 1_000_000:.0f} MB"
    return f"{max(count, 0) / 1000:.0f} kB"


def _conflict(out: Page, answer: Recommendation) -> None:
    assert answer.conflict is not None  # noqa: S101 - the caller has looked
    wish = answer.request.tensorflow
    what = f"TensorFlow {wish}" if wish else "a TensorFlow"
    hanging(
        out,
        Text("✗ ", style="bold red"),
        clean_line(f"There is no way to {what} that fulfils this."),
        style="bold",
    )
    for reason in answer.conflict.reasons[:6]:
        hanging(out, Text("  Why   "), clean_line(reason.text, limit=1000))
    for one in answer.conflict.nearest:
        out.print()
        hanging(out, Text("  Works "), clean_line(one.text, limit=500))
        for caveat in one.option.caveats:
            if caveat.serious or caveat.cause is Cause.DRIVER_TOO_OLD:
                hanging(out, Text("  But   "), clean_line(caveat.text, limit=1000))
        command_lines(out, one.option.commands)


def _newest_of_each(
    grouped: dict[tuple[str, str], list[Rejected]],
) -> list[tuple[tuple[str, str], list[Rejected]]]:
    """Of each recipe why not its newest."""
    first: dict[str, tuple[tuple[str, str], list[Rejected]]] = {}
    for key, ones in grouped.items():
        first.setdefault(key[0], (key, ones))
    return list(first.values())


def _rejected(out: Page, answer: Recommendation, *, verbose: bool) -> None:
    """Why not the newer ones, and why not the other ways."""
    if answer.conflict is not None or not answer.rejected:
        return
    grouped: dict[tuple[str, str], list[Rejected]] = {}
    for one in answer.rejected:
        text = "; ".join(reason.text for reason in one.reasons[:2])
        grouped.setdefault((one.recipe.value, text), []).append(one)
    shown = list(grouped.items()) if verbose else _newest_of_each(grouped)
    out.print()
    for (recipe, text), ones in shown:
        which = ones[0].tensorflow if len(ones) == 1 else f"{ones[-1].tensorflow} to {ones[0].tensorflow}"
        hanging(
            out,
            Text("  Not   "),
            clean_line(f"{recipe}, {which}: {text}", limit=600),
        )
    if len(grouped) > len(shown):
        out.print(Text(f"  {len(grouped) - len(shown)} more reasons with --verbose."))


# ---------------------------------------------------------------- JSON


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
