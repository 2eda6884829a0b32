"""Parse and check the arguments of a plan: releases, Pythons, drivers and GPUs as users write them."""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex
from typing import TYPE_CHECKING, TypeVar

from tfdoctor.compat import UnknownReleaseError
from tfdoctor.core import versions
from tfdoctor.core.errors import UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.planning import recommend
from tfdoctor.prediction.fit.drivers import list_known_drivers
from tfdoctor.prediction.fit.models import HostGpu

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfdoctor.compat import Compat
    from tfdoctor.planning import Option, Recommendation, Request
    from tfdoctor.planning.models import Suggestion
    from tfdoctor.prediction.fit.models import Host

__all__ = [
    "add_machine_arguments",
    "expand_ambiguous_gpus",
    "find_common_answer",
    "make_plan",
    "parse_gpu",
    "parse_python_version",
    "validate_driver",
]

T = TypeVar("T")

_DRIVER_PATTERN = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4}){0,3}")
_MIN_DRIVER_BRANCH = 100
"""The lowest accepted branch. A lower number is probably a CUDA version."""
NIGHTLY_NAMES = frozenset({"nightly", "tf-nightly", "tf-nightly-gpu", "tf_nightly"})
"""What users give as the version to get a nightly build."""
_MAX_MACHINES = 64
"""Limit for the combinations of GPUs that are planned for if GPU names are ambiguous."""
_GPU_SEPARATOR = re.compile(r"[,;+&]|\band\b")
_SMALL_NUMBER = re.compile(r"\s*[+-]?\d{1,2}\s*")
"""A number of cards, their index, or a capability without its point. No card has such a name."""
_MIG_INSTANCE = re.compile(r"(?<=\S)\s+MIG\s+(\d{1,2}g\.\d{1,3}gb(?:\+\S{1,12})?)$", re.IGNORECASE)
"""The profile at the end of a MIG instance's name, as in `NVIDIA A100-SXM4-40GB MIG 3g.20gb`."""
_PYTHON_PATTERN = re.compile(r"[0-9]{1,2}\.[0-9]{1,3}(?:\.[0-9]{1,3})?")


def make_plan(compat: Compat, request: Request, host: Host) -> Recommendation:
    """Return the recommendation for a request on a machine whose GPU names may be ambiguous.

    Raise UsageError if the TensorFlow version is unknown or malformed, or if the recommendation depends on which
    GPU an ambiguous name means.
    """
    try:
        recommendations = [recommend(compat, request, machine) for machine in expand_ambiguous_gpus(host)]
    except UnknownReleaseError as error:
        nearest_versions = ", ".join(error.nearest)
        msg = f"--tf: no TensorFlow {error.version} is known."
        raise UsageError(
            msg, hint=f"The nearest: {nearest_versions}. `tfdoctor matrix` lists every release."
        ) from error
    except versions.VersionSyntaxError as error:
        msg = f"--tf: {error}."
        hint = 'A version (2.15.1), its beginning (2.15) or conditions (">=2.10,<2.13").'
        if request.tensorflow in NIGHTLY_NAMES:
            msg = (
                f"--tf: {request.tensorflow} is a package of its own, tf-nightly, and another one every day: tfdoctor has "
                "no tested packages for it."
            )
            hint = (
                "To try it, in an environment of its own: python -m pip install 'tf-nightly[and-cuda]', then tfdoctor "
                f"check. The newest release that tfdoctor installs is {compat.newest.version}."
            )
        raise UsageError(msg, hint=hint) from error
    if len({_summarize_recommendation(recommendation) for recommendation in recommendations}) > 1:
        raise _make_ambiguity_error(
            compat, host, [_format_recommendation(recommendation) for recommendation in recommendations]
        )
    return dataclasses.replace(recommendations[0], host=host)


def add_machine_arguments(
    recommendation: Recommendation, gpus: Sequence[str], driver: str | None
) -> Recommendation:
    """Add the GPUs and the driver to the commands of a recommendation, so that they work on any machine."""
    arguments = [f"--gpu {shlex.quote(name)}" for name in gpus] + ([f"--driver {driver}"] if driver else [])
    if not arguments:
        return recommendation
    replaced_options = [*(["gpu"] if gpus else []), *(["driver"] if driver else [])]
    pattern = re.compile(rf" --(?:{'|'.join(replaced_options)}) (?:'[^']*'|\S+)")

    def add_arguments(option: Option, arguments: Sequence[str] = arguments) -> Option:
        first_command, *other_commands = option.commands
        first_command = pattern.sub("", first_command)  # `recipes.adapt_to_machine` adds them in other words
        return dataclasses.replace(option, commands=(" ".join([first_command, *arguments]), *other_commands))

    def add_kept_arguments(suggestion: Suggestion) -> Suggestion:
        kept = [
            argument
            for argument in arguments
            if (suggestion.keeps_gpus if argument.startswith("--gpu") else suggestion.keeps_driver)
        ]
        return dataclasses.replace(suggestion, option=add_arguments(suggestion.option, kept))

    conflict = recommendation.conflict
    if conflict is not None:
        suggestions = tuple(map(add_kept_arguments, conflict.suggestions))
        conflict = dataclasses.replace(conflict, suggestions=suggestions)
    return dataclasses.replace(
        recommendation,
        options=tuple(add_arguments(option) for option in recommendation.options),
        conflict=conflict,
    )


def find_common_answer(compat: Compat, host: Host, get_answer: Callable[[Host], T]) -> T:
    """Return the answer that `get_answer` gives for every machine that ambiguous GPU names can mean.

    Raise UsageError if the answers differ, because the user must then name the GPU more precisely.
    """
    answers = [get_answer(machine) for machine in expand_ambiguous_gpus(host)]
    if len(set(answers)) > 1:
        raise _make_ambiguity_error(compat, host, [])
    return answers[0]


def expand_ambiguous_gpus(host: Host) -> tuple[Host, ...]:
    """Return one machine for each combination of GPUs that the host's GPU names can mean."""
    alternatives = [
        [HostGpu(card.name, capability) for capability in (card.capability, *card.other_capabilities)]
        for card in host.cards
    ]
    combinations = itertools.islice(itertools.product(*alternatives), _MAX_MACHINES)
    return tuple(dataclasses.replace(host, cards=cards) for cards in combinations)


def _summarize_recommendation(recommendation: Recommendation) -> tuple[object, ...]:
    """Return the values that must be equal if two machines are to get the same recommendation."""
    best_option = recommendation.options[0] if recommendation.options else None
    if best_option is None:
        conflict = recommendation.conflict
        return () if conflict is None else tuple(suggestion.text for suggestion in conflict.suggestions)
    return best_option.recipe, best_option.tensorflow, best_option.python, best_option.serious_count


def _format_recommendation(recommendation: Recommendation) -> str:
    if recommendation.options:
        return f"TensorFlow {recommendation.options[0].tensorflow}"
    version = recommendation.request.tensorflow
    nearest = next(
        (
            f"; TensorFlow {suggestion.option.tensorflow} works"
            for suggestion in (recommendation.conflict.suggestions if recommendation.conflict else ())
            if suggestion.keeps_gpus and suggestion.keeps_driver
        ),
        "",
    )
    return f"no way{f' for TensorFlow {clean_line(version)}' if version else ''}{nearest}"


def _make_ambiguity_error(compat: Compat, host: Host, outcomes: Sequence[str]) -> UsageError:
    """Return the error that asks which of several GPUs is meant.

    `outcomes` are the recommendations for the machines of `expand_ambiguous_gpus`, as text; [] if they do not matter.
    """
    ambiguous_cards = [card for card in host.cards if card.other_capabilities]
    names = " and ".join(f"`{clean_line(card.name)}`" for card in ambiguous_cards)
    choices = []
    for card in ambiguous_cards:
        match = compat.find_gpus_by_name(card.name)
        for index, capability in enumerate((card.capability, *card.other_capabilities)):
            gpus = [gpu for gpu in match.gpus if gpu.capability == capability] if match is not None else []
            ids = [f"10de:{pci_id}" for gpu in gpus for pci_id in gpu.pci_ids][:2]
            example = f" ({', '.join([gpus[0].name, *ids])})" if gpus else ""
            outcome = f": {outcomes[index]}" if len(ambiguous_cards) == 1 and outcomes else ""
            choices.append(f"--gpu {capability}{example}{outcome}")
    verb = "is the name" if len(ambiguous_cards) == 1 else "are names"
    msg = f"--gpu: {names} {verb} of several cards, and the answer depends on which of them you have."
    return UsageError(
        msg,
        hint=f"Give its compute capability or its PCI id instead: {'; '.join(choices)}. "
        "`nvidia-smi --query-gpu=name,compute_cap --format=csv` and `lspci -nn` show them.",
    )


def parse_python_version(text: str | None) -> str | None:
    """Return the minor version of a Python, such as "3.11" for "3.11.7". None stays None.

    Raise UsageError if `text` is not a Python version.
    """
    if text is None:
        return None
    if not _PYTHON_PATTERN.fullmatch(text):
        msg = f"--python-version: `{text}` is not a Python version."
        raise UsageError(msg, hint="Two numbers, such as --python-version 3.11.")
    return versions.major_minor(text)


def validate_driver(compat: Compat, text: str | None) -> str | None:
    """Return `text` unchanged: a branch ("550"), a full driver version ("550.54.14") or None.

    Raise UsageError if `text` cannot be a version of NVIDIA's driver, or if it is a branch newer than the tables. A
    full version is accepted even if it is newer.
    """
    if text is None:
        return None
    if not _DRIVER_PATTERN.fullmatch(text):
        msg = f"--driver: `{text}` is not a version."
        raise UsageError(
            msg, hint="As nvidia-smi prints it: --driver 550.54.14, or its branch: --driver 550."
        )
    if versions.major(text) < _MIN_DRIVER_BRANCH:
        msg = f"--driver: {text} is not a version of NVIDIA's driver."
        raise UsageError(
            msg,
            hint="It may be a version of CUDA; nvidia-smi prints the driver's as `Driver Version: 550.54.14`.",
        )
    newest = list_known_drivers(compat)[0]
    if "." not in text and versions.major(text) > versions.major(newest):
        msg = f"--driver: no driver of branch {text} is known; the newest is {newest} ({compat.as_of})."
        raise UsageError(msg, hint="If there is one by now, give its full version, as nvidia-smi prints it.")
    return text


def parse_gpu(compat: Compat, text: str, option: str = "--gpu") -> HostGpu:
    """Return the GPU that `text` specifies by a compute capability, a PCI ID or a name.

    If several chips have this name, the result has the capabilities of all of them. `option` is the
    command-line option for error messages. Raise UsageError if no GPU matches.
    """
    if "." in text and text.replace(".", "").isdigit():
        try:
            text = versions.format_capability(versions.parse_capability(text))
        except versions.VersionSyntaxError as error:
            msg = f"{option}: {error}."
            raise UsageError(msg, hint=f"A card's name, or its compute capability: {option} 8.6.") from error
        return HostGpu(f"compute capability {text}", text)
    if _SMALL_NUMBER.fullmatch(text):
        msg = f"{option}: `{text}` is neither the name of a card nor a compute capability."
        hint = f"Give its name, or its compute capability with the point: {option} 8.6. Repeat {option} for several."
        raise UsageError(msg, hint=hint)
    instance = _MIG_INSTANCE.search(text)
    if instance is not None:
        gpu = parse_gpu(compat, text[: instance.start()], option)
        return dataclasses.replace(gpu, name=f"{gpu.name} MIG {instance[1].lower()}")
    gpu_by_id = compat.find_gpu_by_pci_id(text)
    if gpu_by_id is not None:
        return HostGpu(gpu_by_id.name, gpu_by_id.capability)
    match = compat.find_gpus_by_name(text)
    vendor = compat.cards.find_other_vendor(text) if match is None else None
    if vendor is not None and compat.find_gpus_by_name(re.sub(r"(?i)\brx\b", "rtx", text)) is None:
        msg = f"{option}: `{text}` is by {vendor.name}. tfdoctor and TensorFlow's CUDA builds are for NVIDIA GPUs."
        raise UsageError(msg, hint=vendor.advice)
    if match is None:
        nearest_names = compat.find_similar_gpu_names(text)
        advice = f"The nearest: {', '.join(nearest_names)}. " if nearest_names else ""
        msg = f"{option}: no NVIDIA GPU called `{text}` is known."
        if _GPU_SEPARATOR.search(text):
            advice = f"Several cards: {option} once for each. "
        raise UsageError(msg, hint=f"{advice}`tfdoctor matrix --list-gpus` lists every one.")
    names = {gpu.name for gpu in match.gpus}
    capability, *other_capabilities = match.capabilities
    name = match.gpus[0].name if len(names) == 1 or not other_capabilities else text
    return HostGpu(name, capability, tuple(other_capabilities))
