"""Recommend an installation: ranked options, or a conflict with reasons and suggestions."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.findings import Cause
from tfdoctor.core.text import join_words
from tfdoctor.planning import cpu_fallback
from tfdoctor.planning.models import (
    Conflict,
    Method,
    Option,
    Recipe,
    Recommendation,
    Rejection,
    Suggestion,
)
from tfdoctor.planning.recipes import RECIPES, adapt_to_machine, find_conda_packages, has_image, try_recipe
from tfdoctor.prediction.fit import constraints
from tfdoctor.prediction.fit.compatibility import choose_preferred, list_candidates
from tfdoctor.prediction.fit.models import HostGpu, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfdoctor.compat import Compat, Release
    from tfdoctor.compat.arm64 import Arm64Source
    from tfdoctor.planning.models import Request
    from tfdoctor.prediction.fit.models import Caveat, Host

__all__ = ["MAX_OPTIONS", "find_best_option", "merge_reasons", "rank_options", "recommend"]

_MACHINE_CAUSES = frozenset({Cause.NO_DEVICE, Cause.DRIVER_TOO_OLD, Cause.GPU_TOO_OLD, Cause.GPU_TOO_NEW})
"""The causes that no other recipe can change."""
MAX_OPTIONS = 6
"""Limit for the options in a recommendation. Each recipe has at most one."""


def recommend(
    compat: Compat, request: Request, host: Host, *, with_suggestions: bool = True
) -> Recommendation:
    """Return the options for a request on a machine, best first, or a conflict.

    A conflict has suggestions only if `with_suggestions` is true, because finding them takes long. Raise UnknownReleaseError
    if no release matches the requested version, and versions.VersionSyntaxError if that version is malformed.
    """
    cpu_remedy = cpu_fallback.make_machine_remedy(compat, request, host)
    if cpu_fallback.is_arm64(host):
        if request.tensorflow is not None:
            compat.select(request.tensorflow)  # raises an error for an unknown release
        conflict = _make_arm64_conflict(compat, host)
        return Recommendation(
            request=request,
            host=host,
            options=(),
            rejections=(),
            conflict=conflict,
            cpu_remedy=cpu_remedy,
        )
    options, rejections = _find_options(compat, request, host)
    if options:
        return Recommendation(
            request=request,
            host=host,
            options=tuple(options),
            rejections=tuple(rejections),
            conflict=None,
            cpu_remedy=cpu_remedy,
        )
    decisive_reasons = _find_decisive_reasons(compat, request, host, rejections)
    decisive_texts = {reason.text for reason in decisive_reasons}
    reasons = [
        *decisive_reasons,
        *(reason for reason in merge_reasons(rejections) if reason.text not in decisive_texts),
    ]
    if not reasons:
        reasons = [
            Reason(
                Cause.CPU_ONLY_BUILD,
                f"no release that fits {request.tensorflow or 'the request'} has GPU code for Linux",
                "tensorflow.json",
            )
        ]
    conflict = Conflict(
        tuple(reasons),
        len(decisive_reasons),
        _find_suggestions(compat, request, host) if with_suggestions else (),
    )
    return Recommendation(
        request=request,
        host=host,
        options=(),
        rejections=tuple(rejections),
        conflict=conflict,
        cpu_remedy=cpu_remedy,
    )


def _find_decisive_reasons(
    compat: Compat, request: Request, host: Host, rejections: Sequence[Rejection]
) -> list[Reason]:
    """Return the reasons that exclude every release that matches the request, the most important first."""
    if request.tensorflow is not None:
        releases = compat.select(request.tensorflow)
        names = [release.version for release in releases]
        if all(release.is_prerelease for release in releases) and request.tensorflow not in names:
            text = f"TensorFlow {request.tensorflow} is not out yet: the package index has only {join_words(names)}"
            return [Reason(Cause.NO_MATCHING_WHEEL, text, "tensorflow.json")]
    else:
        floor = cpu_fallback.find_capability_limit(compat)
        pythons = {python for release in list_candidates(compat) for python in release.linux_pythons}
        if request.python is not None and request.python not in pythons:
            newest = next(list_candidates(compat))
            text = (
                f"no TensorFlow has a wheel for Python {request.python}; the newest, {newest.version}, has them for "
                f"{join_words(newest.linux_pythons)}"
            )
            return [Reason(Cause.NO_MATCHING_WHEEL, text, "tensorflow.json")]
        too_old = [gpu for gpu in host.cards if not versions.is_at_least(gpu.capability, floor)]
        if too_old:
            text = (
                f"{too_old[0].name} (compute capability {too_old[0].capability}) is older than every TensorFlow with "
                f"GPU code: the oldest cards that one uses have {floor}"
            )
            return [Reason(Cause.GPU_TOO_OLD, text, "tensorflow.json")]
    texts_by_version: dict[str, set[str]] = {}
    for rejection in rejections:
        texts_by_version.setdefault(rejection.tensorflow, set()).update(
            reason.text for reason in rejection.reasons if reason.cause in _MACHINE_CAUSES
        )
    common_texts = set.intersection(*texts_by_version.values()) if texts_by_version else set()
    reason_by_cause: dict[Cause, Reason] = {}
    for reason in merge_reasons(rejections):
        if reason.text in common_texts:
            reason_by_cause.setdefault(reason.cause, reason)
    return list(reason_by_cause.values())


def _make_arm64_conflict(compat: Compat, host: Host) -> Conflict:
    """Return the conflict for an ARM machine: no wheel has GPU code for it, but NVIDIA's own builds may."""
    table = compat.arm64
    reason = Reason(
        Cause.CPU_ONLY_BUILD,
        f"the package index has no TensorFlow with GPU code for {host.machine} machines. {table.index.note}",
        "arm64.toml",
    )
    kinds = [
        kind
        for card in host.cards
        for capability in (card.capability, *card.other_capabilities)
        for kind in [table.find_kind(card.name, capability)]
        if kind is not None
    ]
    build_by_command = {
        build.command: _add_driver_note(compat, build, host) for kind in kinds for build in kind.build_sources
    }
    return Conflict(reasons=(reason,), arm64_builds=tuple(build_by_command.values()))


def _add_driver_note(compat: Compat, build: Arm64Source, host: Host) -> Arm64Source:
    """Return the build with what its image needs of the host's driver, if it is an NGC image in the table."""
    image = next((image for image in compat.images.ngc_images if build.command.endswith(image.name)), None)
    if image is None or image.driver is None or host.has_driver_at_least(image.driver):
        return build
    assessment = constraints.Assessment()
    constraints.check_ngc_image(assessment, compat, image, host)
    results: tuple[Reason | Caveat, ...] = (*assessment.reasons, *assessment.caveats)
    notes = [result.text for result in results if result.cause is Cause.DRIVER_TOO_OLD] or [
        constraints.describe_image_driver(compat, image, host)
    ]
    return replace(build, text=f"{build.text}. {'. '.join(notes)}")


def _find_options(compat: Compat, request: Request, host: Host) -> tuple[list[Option], list[Rejection]]:
    """Return the best option of each recipe, ranked, and the releases that were rejected."""
    best_options: list[Option] = []
    rejections: list[Rejection] = []
    for recipe in _select_recipes(request):
        option, recipe_rejections = find_best_option(compat, request, host, recipe)
        best_options += [] if option is None else [option]
        rejections += recipe_rejections
    options = rank_options(request, host, best_options)[:MAX_OPTIONS]
    return [adapt_to_machine(compat, option, request, host) for option in options], rejections


def find_best_option(
    compat: Compat, request: Request, host: Host, recipe: Recipe
) -> tuple[Option | None, list[Rejection]]:
    """Return the best option of one recipe, and the newer releases that were rejected.

    If there is no option, all rejected releases are returned. Raise the same errors as `recommend`.
    """
    rejections: list[Rejection] = []
    releases = list(list_candidates(compat, request.tensorflow))
    # Do not report the other releases as rejected, because they do not need this recipe.
    if recipe is Recipe.CONDA_CUDA and request.recipe is None:
        releases = [release for release in releases if find_conda_packages(compat, release) is not None]
    # Nor those without an image if others have one.
    releases = [release for release in releases if has_image(compat, release, recipe)] or releases
    option = choose_preferred(_try_releases(compat, releases, request, host, recipe, rejections))
    return option, rejections if option is None else _list_newer_rejections(rejections, option)


def rank_options(request: Request, host: Host, options: Iterable[Option]) -> list[Option]:
    """Return the options, best first. Each recipe may have at most one."""
    unranked = list(options)
    newest_first = sorted(
        {option.tensorflow for option in unranked}, key=versions.make_sort_key, reverse=True
    )
    return sorted(unranked, key=lambda option: _make_rank_key(request, host, option, newest_first))


def _try_releases(
    compat: Compat,
    releases: Sequence[Release],
    request: Request,
    host: Host,
    recipe: Recipe,
    rejections: list[Rejection],
) -> Iterator[Option]:
    """Yield the options of a recipe for these releases, and add the others to `rejections`."""
    for release in releases:
        result = try_recipe(compat, release, request, host, recipe)
        if isinstance(result, Rejection):
            rejections.append(result)
        else:
            yield result


def _list_newer_rejections(rejections: Sequence[Rejection], option: Option) -> list[Rejection]:
    """Return the rejected releases that are newer than the option's release."""
    return [
        rejection
        for rejection in rejections
        if versions.make_sort_key(rejection.tensorflow) > versions.make_sort_key(option.tensorflow)
    ]


def _select_recipes(request: Request) -> tuple[Recipe, ...]:
    if request.recipe is not None:
        return (request.recipe,)
    if request.base_contents is not None:  # no image that has TensorFlow
        return (Recipe.PIP_CUDA,)
    if request.base is not None:
        return (Recipe.PIP_CUDA, Recipe.OFFICIAL)
    return tuple(recipe for recipe in RECIPES if request.method in (None, recipe.method))


def _make_rank_key(
    request: Request, host: Host, option: Option, newest_first: Sequence[str]
) -> tuple[object, ...]:
    """Return the sort key of an option; the lowest is the best.

    The key orders by:

    1. fewer serious caveats;
    2. the newer TensorFlow;
    3. if the request names no method and the container engine is known: containers first if the host has an
       engine, or else environments first;
    4. a known size before an unknown one, then the smaller size;
    5. the order of `RECIPES`.
    """
    preferred_method = Method.CONTAINER if host.has_engine else Method.PIP
    return (
        option.serious_count,
        newest_first.index(option.tensorflow),
        request.method is None and host.has_engine is not None and option.method is not preferred_method,
        option.size_bytes is None,
        option.size_bytes or 0,
        list(RECIPES).index(option.recipe),
    )


def merge_reasons(rejections: Iterable[Rejection]) -> list[Reason]:
    """Return up to twelve distinct reasons of the rejections, the most important first.

    Equally important reasons stay in the order of the rejections. Each cause has a reason.
    """
    reason_by_text: dict[str, Reason] = {}
    for rejection in rejections:
        for reason in rejection.reasons:
            reason_by_text.setdefault(reason.text, reason)
    reasons = sorted(reason_by_text.values(), key=_get_sort_priority)
    first_reasons = {reason.cause: reason for reason in reversed(reasons)}
    further_reasons = [reason for reason in reasons if first_reasons[reason.cause] is not reason]
    return sorted([*first_reasons.values(), *further_reasons][:12], key=_get_sort_priority)


def _get_sort_priority(reason: Reason) -> float:
    """Return the rank of a reason's cause as its sort key. Causes without a rank come last."""
    priority = reason.cause.data.refusal_rank
    return priority if priority is not None else math.inf


# ---------------------------------------------------------------- suggestions


def _find_suggestions(compat: Compat, request: Request, host: Host) -> tuple[Suggestion, ...]:
    """Return up to four suggestions: the best options for a relaxed request or a changed machine."""
    suggestions: list[Suggestion] = []
    for text, changed_request, changed_host in _relax_request(compat, request, host):
        if changed_request.method is not request.method and any(
            suggestion.option.method is not request.method for suggestion in suggestions
        ):
            continue  # one with another method is enough
        options, _ = _find_options(compat, changed_request, changed_host)
        if options and not any(_is_same_option(options[0], suggestion.option) for suggestion in suggestions):
            suggestions.append(
                Suggestion(
                    text=text.format(
                        **_make_format_values(compat, changed_request, changed_host, host, options[0])
                    ),
                    option=options[0],
                    keeps_gpus=changed_host.cards == host.cards,
                    keeps_driver=changed_host.driver == host.driver,
                )
            )
    return tuple(suggestions[:4])


def _is_same_option(option: Option, other: Option) -> bool:
    return (option.recipe, option.tensorflow, option.python) == (other.recipe, other.tensorflow, other.python)


def _make_format_values(
    compat: Compat, request: Request, changed_host: Host, host: Host, option: Option
) -> dict[str, str]:
    """Return the values for the fields in the descriptions of `_relax_request`."""
    location = option.base.image if option.base is not None else "a virtual environment"
    if option.recipe is Recipe.NGC:
        location += " (NVIDIA's own build)"
    return {
        "tensorflow": option.tensorflow,
        "python": option.python,
        "where": location,
        "cuda": versions.major_minor(option.cuda),
        "machine": "this machine"
        if not host.cards
        else f"the {host.cards[0].name}"
        if len(host.cards) == 1
        else "these cards",
        "card": _find_example_card(compat, request, changed_host, option)
        if host.cards and not changed_host.cards
        else "",
    }


def _find_example_card(compat: Compat, request: Request, host: Host, option: Option) -> str:
    """Return the newest card that an option works with, such as ", such as the RTX 20 (7.5)"; "" if none is known."""
    for generation in reversed(compat.cards.generations):
        card_host = replace(host, cards=(HostGpu(generation.name, generation.capability),))
        result = try_recipe(compat, option.release, request, card_host, option.recipe)
        if isinstance(result, Option) and result.serious_count <= option.serious_count:
            return f", such as {generation.name} (compute capability {generation.capability})"
    return ""


def _relax_request(compat: Compat, request: Request, host: Host) -> Iterator[tuple[str, Request, Host]]:
    """Yield (description, request, host) for each relaxed request and each changed machine.

    The descriptions contain the fields of `_make_format_values`.
    """
    if request.recipe is not None:
        any_recipe = replace(request, recipe=None)
        yield "another recipe: TensorFlow {tensorflow} with Python {python}, {where}", any_recipe, host
    if request.base is not None:
        yield (
            "another base: TensorFlow {tensorflow} with Python {python}, {where}",
            replace(request, base=None, base_contents=None),
            host,
        )
    if request.method is not None:
        yield (
            "another method: TensorFlow {tensorflow} with Python {python}, {where}",
            replace(request, method=None, recipe=None, base=None, base_contents=None),
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
    for spec in _widen_version(compat, request):
        yield (
            "another TensorFlow: {tensorflow} with Python {python}, {where}",
            replace(request, tensorflow=spec),
            host,
        )
    if request.method is not None:
        for spec in _widen_version(compat, request):
            yield (
                "another TensorFlow and another method: {tensorflow} with Python {python}, {where}",
                replace(request, tensorflow=spec, method=None, recipe=None),
                host,
            )
    if request.tensorflow is not None:
        yield (
            "the best TensorFlow for {machine}: {tensorflow} with Python {python}, {where}",
            replace(request, tensorflow=None, python=None),
            host,
        )
    if host.driver is not None:
        branches = (compat.cards.find_unsupported(card.capability) for card in host.cards)
        last_branch = min(
            (versions.major(branch.last_branch) for branch in branches if branch is not None), default=None
        )
        description = "a newer driver"
        if last_branch is not None and versions.major(host.driver) > last_branch:
            description = f"another driver, of branch {last_branch} (the last for these cards)"
        yield (
            f"{description}, and then TensorFlow {{tensorflow}} (CUDA {{cuda}}) with Python {{python}}, {{where}}",
            request,
            replace(host, driver=None if last_branch is None else str(last_branch)),
        )
    if host.cards:
        yield (
            "a different card{card}: TensorFlow {tensorflow} with Python {python}, {where}",
            request,
            replace(host, cards=(), has_data_center_gpus=None),
        )


def _widen_version(compat: Compat, request: Request) -> Iterator[str]:
    """Yield specifications of the minor and of the major of the newest release that matches the request."""
    if request.tensorflow is None:
        return
    newest = compat.select(request.tensorflow)[0].version
    for spec in (versions.major_minor(newest), str(versions.major(newest))):
        if spec != request.tensorflow:
            yield f"=={spec}.*"
