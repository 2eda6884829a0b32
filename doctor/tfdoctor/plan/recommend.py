"""From a request and a machine to ranked options, or to a conflict with reasons and the nearest way out. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.findings import Cause
from tfdoctor.fit import Reason, choose_preferred, list_candidates
from tfdoctor.plan import cpu_fallback
from tfdoctor.plan.models import (
    Conflict,
    Method,
    Option,
    Recipe,
    Recommendation,
    Rejected,
    Suggestion,
)
from tfdoctor.plan.recipes import RECIPES, adapt_to_machine, from_conda, tries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfdoctor.compat import Compat, Release
    from tfdoctor.fit import Host
    from tfdoctor.plan.models import Request

__all__ = ["MAX_OPTIONS", "merge_reasons", "rank_options", "recommend", "way"]

MAX_OPTIONS = 6
"""Options that are shown: of each way the best."""


def recommend(compat: Compat, request: Request, host: Host, *, nearest: bool = True) -> Recommendation:
    """Return options, best first, or a conflict.

    `nearest`: with the ways out that are nearest, which take long to look for.

    Raises UnknownReleaseError if the specification fits no release, versions.VersionSyntaxError where it is none.
    """
    processor = cpu_fallback.make_machine_remedy(compat, request, host)
    if cpu_fallback.is_arm64(host):
        if request.tensorflow is not None:
            compat.select(request.tensorflow)  # what is no release is told as such
        return Recommendation(request, host, (), (), _on_arm64(compat, host), processor)
    options, rejected = _search(compat, request, host)
    if options:
        return Recommendation(request, host, tuple(options), tuple(rejected), None, processor)
    reasons = merge_reasons(rejected)
    if not reasons:
        reasons = [
            Reason(
                Cause.CPU_ONLY_BUILD,
                f"no release that fits {request.tensorflow or 'the request'} has GPU code for Linux",
                "tensorflow.json",
            )
        ]
    conflict = Conflict(tuple(reasons), _nearest(compat, request, host) if nearest else ())
    return Recommendation(request, host, (), tuple(rejected), conflict, processor)


def _on_arm64(compat: Compat, host: Host) -> Conflict:
    """No wheel has GPU code for it: what NVIDIA has for such a machine, as far as it is known."""
    table = compat.arm64
    reason = Reason(
        Cause.CPU_ONLY_BUILD,
        f"the package index has no TensorFlow with GPU code for {host.machine} machines. {table.index.note}",
        "arm64.toml",
    )
    found = [
        kind
        for card in host.cards
        for capability in (card.capability, *card.others)
        for kind in [table.kind_of(card.name, capability)]
        if kind is not None
    ]
    ways = {way.command: way for kind in found for way in kind.ways}
    return Conflict((reason,), (), tuple(ways.values()))


def _search(compat: Compat, request: Request, host: Host) -> tuple[list[Option], list[Rejected]]:
    """Return the best option of each recipe, ranked, and what was turned down on the way to it."""
    best: list[Option] = []
    rejected: list[Rejected] = []
    for recipe in _recipes(request):
        option, turned_down = way(compat, request, host, recipe)
        best += [] if option is None else [option]
        rejected += turned_down
    options = rank_options(request, host, best)[:MAX_OPTIONS]
    return [adapt_to_machine(compat, option, request, host) for option in options], rejected


def way(compat: Compat, request: Request, host: Host, recipe: Recipe) -> tuple[Option | None, list[Rejected]]:
    """Return the best option of one recipe, and what was turned down on the way to it.

    `recommend` is all of them, ranked.

    Raises as it does.
    """
    turned_down: list[Rejected] = []
    meant = list(list_candidates(compat, request.tensorflow))
    if recipe is Recipe.CONDA_CUDA and request.recipe is None:  # for others it is no way that was turned down
        meant = [release for release in meant if from_conda(compat, release) is not None]
    option = choose_preferred(_options(compat, meant, request, host, recipe, turned_down))
    return option, turned_down if option is None else _list_newer(turned_down, option)


def rank_options(request: Request, host: Host, options: Iterable[Option]) -> list[Option]:
    """Return the options, one a recipe, best first."""
    every = list(options)
    newest_first = sorted({option.tensorflow for option in every}, key=versions.sort_key, reverse=True)
    return sorted(every, key=lambda option: _rank(request, host, option, newest_first))


def _options(
    compat: Compat,
    releases: Sequence[Release],
    request: Request,
    host: Host,
    recipe: Recipe,
    turned_down: list[Rejected],
) -> Iterator[Option]:
    """Yield what a recipe makes of the releases, as far as they are asked for.

    The others go to `turned_down`.
    """
    for release in releases:
        answer = tries(compat, release, request, host, recipe)
        if isinstance(answer, Rejected):
            turned_down.append(answer)
        else:
            yield answer


def _list_newer(rejected: Sequence[Rejected], option: Option) -> list[Rejected]:
    """Return those newer than what was taken: why not the newest?"""
    return [
        one for one in rejected if versions.sort_key(one.tensorflow) > versions.sort_key(option.tensorflow)
    ]


def _recipes(request: Request) -> tuple[Recipe, ...]:
    if request.recipe is not None:
        return (request.recipe,)
    if request.base is not None:
        return (Recipe.PIP_CUDA, Recipe.OFFICIAL)
    return tuple(recipe for recipe in RECIPES if request.method in (None, recipe.method))


def _rank(request: Request, host: Host, option: Option, newest_first: Sequence[str]) -> tuple[object, ...]:
    """Lower is better: fewer serious caveats, then the newer TensorFlow, then known size, then preference.

    Without a wish for a method the container comes first where an engine was seen, else the environment.
    """
    wished = Method.CONTAINER if host.engine else Method.PIP
    return (
        option.serious,
        newest_first.index(option.tensorflow),
        request.method is None and host.engine is not None and option.method is not wished,
        option.size is None,
        option.size or 0,
        list(RECIPES).index(option.recipe),
    )


def merge_reasons(rejected: Iterable[Rejected]) -> list[Reason]:
    """Return the reasons of everything that was turned down, each text once, those of the newest release first."""
    seen: dict[str, Reason] = {}
    for one in rejected:
        for reason in one.reasons:
            seen.setdefault(reason.text, reason)
    return sorted(seen.values(), key=_place)[:12]


def _place(reason: Reason) -> float:
    """Return what the user's own machine or wish is the reason of is told before what the world lacks."""
    place = reason.cause.row.refusal
    return place if place is not None else math.inf


# ---------------------------------------------------------------- the nearest request that works


def _nearest(compat: Compat, request: Request, host: Host) -> tuple[Suggestion, ...]:
    """Return one wish given up at a time; the first option of each that works, each way out once."""
    found: list[Suggestion] = []
    for text, changed_request, changed_host in _relax_request(compat, request, host):
        options, _ = _search(compat, changed_request, changed_host)
        if options and not any(_is_same_option(options[0], one.option) for one in found):
            found.append(Suggestion(text.format(**_words(options[0])), options[0], changed_host is host))
    return tuple(found[:4])


def _is_same_option(left: Option, right: Option) -> bool:
    return (left.recipe, left.tensorflow, left.python) == (right.recipe, right.tensorflow, right.python)


def _words(option: Option) -> dict[str, str]:
    where = option.base.image if option.base is not None else "a virtual environment"
    return {"tensorflow": option.tensorflow, "python": option.python, "where": where, "cuda": option.cuda}


def _relax_request(compat: Compat, request: Request, host: Host) -> Iterator[tuple[str, Request, Host]]:
    if request.recipe is not None:
        other = replace(request, recipe=None)
        yield "another recipe: TensorFlow {tensorflow} with Python {python}, {where}", other, host
    if request.method is not None:
        yield (
            "another method: TensorFlow {tensorflow} with Python {python}, {where}",
            replace(request, method=None, recipe=None),
            host,
        )
    if request.python is not None:
        yield (
            "another Python: TensorFlow {tensorflow} with Python {python}, {where}",
            replace(request, python=None),
            host,
        )
    if request.method is not None and request.python is not None:
        yield (
            "another method and another Python: TensorFlow {tensorflow} with Python {python}, {where}",
            replace(request, method=None, recipe=None, python=None),
            host,
        )
    for spec in _wider(compat, request):
        yield (
            "another TensorFlow: {tensorflow} with Python {python}, {where}",
            replace(request, tensorflow=spec),
            host,
        )
    if request.tensorflow is not None:
        yield (
            "the best TensorFlow for this machine: {tensorflow} with Python {python}, {where}",
            replace(request, tensorflow=None, python=None),
            host,
        )
    if host.driver is not None:
        ended = (compat.cards.find_ended(card.capability) for card in host.cards)
        last = min((versions.major(row.last) for row in ended if row is not None), default=None)
        which = "a newer driver"
        if last is not None and versions.major(host.driver) > last:
            which = f"another driver, of branch {last} (the last for these cards)"
        yield (
            f"{which}, and then TensorFlow {{tensorflow}} (CUDA {{cuda}}) with Python {{python}}, {{where}}",
            request,
            replace(host, driver=None if last is None else str(last)),
        )
    if host.cards:
        yield (
            "a different card: TensorFlow {tensorflow} with Python {python}, {where}",
            request,
            replace(host, cards=()),
        )


def _wider(compat: Compat, request: Request) -> Iterator[str]:
    """Yield the same minor, then the same major, of the newest release that was asked for."""
    if request.tensorflow is None:
        return
    newest = compat.select(request.tensorflow)[0].version
    for spec in (versions.major_minor(newest), str(versions.major(newest))):
        if spec != request.tensorflow:
            yield f"=={spec}.*"
