"""`tfdoctor recommend`."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.compat import Compat, UnknownReleaseError
from tfdoctor.errors import ExitCode, UsageError
from tfdoctor.fit import Card, Host, host_of
from tfdoctor.plan import Method, Request, recommend

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tfdoctor.facts import Facts
    from tfdoctor.plan import Recommendation

EXAMPLE = "For example: tfdoctor recommend --tf 2.15 --gpu 'RTX 3060' --driver 550.54.14"
_DRIVER = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4}){0,3}")
_PYTHON = re.compile(r"[0-9]{1,2}\.[0-9]{1,3}(?:\.[0-9]{1,3})?")
LOOKING = 10.0
"""Seconds that looking at this machine may take."""


def show(
    *,
    tf: str | None,
    gpus: Sequence[str],
    driver: str | None,
    python: str | None,
    method: str | None,
    facts: Path | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """Print what fits; 1 where nothing does."""
    compat = Compat.load()
    host = host_for(compat, gpus=gpus, driver=driver, facts=facts)
    request = Request(
        tensorflow=tf,
        python=checked_python(python),
        method=Method(method) if method is not None else None,
    )
    answer = planned(compat, request, host)
    if as_json:
        from tfdoctor.render.json import write_json
        from tfdoctor.render.plan_json import recommendation_json

        write_json(recommendation_json(answer))
    else:
        from tfdoctor.render import terminal
        from tfdoctor.render.plan_console import render_recommendation

        terminal.write(
            render_recommendation(answer, verbose=verbose, width=terminal.width(), colour=terminal.colour())
        )
    return ExitCode.FOUND if answer.conflict is not None else ExitCode.OK


def planned(compat: Compat, request: Request, host: Host) -> Recommendation:
    """`recommend`, with what is wrong with the request told as such. Raises UsageError."""
    try:
        return recommend(compat, request, host)
    except UnknownReleaseError as error:
        nearest = ", ".join(error.nearest)
        msg = f"--tf: no TensorFlow {error.version} is known."
        raise UsageError(
            msg, hint=f"The nearest: {nearest}. `tfdoctor matrix` lists every release."
        ) from error
    except versions.VersionSyntaxError as error:
        msg = f"--tf: {error}."
        raise UsageError(
            msg, hint='A version (2.15.1), its beginning (2.15) or conditions (">=2.10,<2.13").'
        ) from error


def checked_python(text: str | None) -> str | None:
    """`3.11` or `3.11.7` → `3.11`. Raises UsageError."""
    if text is None:
        return None
    if not _PYTHON.fullmatch(text):
        msg = f"--python: `{text}` is not a Python version."
        raise UsageError(msg, hint="Two numbers, such as --python 3.11.")
    return versions.major_minor(text)


def checked_driver(text: str | None) -> str | None:
    """`550` or `550.54.14`. Raises UsageError."""
    if text is not None and not _DRIVER.fullmatch(text):
        msg = f"--driver: `{text}` is not a version."
        raise UsageError(
            msg, hint="As nvidia-smi prints it: --driver 550.54.14, or its branch: --driver 550."
        )
    return text


def host_for(compat: Compat, *, gpus: Sequence[str], driver: str | None, facts: Path | None) -> Host:
    """The machine that is meant: the cards that are named, a recorded machine, or this one. Raises UsageError."""
    if gpus and facts is not None:
        raise UsageError("--gpu names cards, --facts a recorded machine that has its own; give one of them.")
    driver = checked_driver(driver)
    if gpus:
        cards = tuple(card for name in gpus for card in named_cards(compat, name))
        return Host(cards=cards, driver=driver)
    host = host_of(_survey(compat, facts), compat)
    return dataclasses.replace(host, driver=driver) if driver is not None else host


def _survey(compat: Compat, facts: Path | None) -> Facts:
    from tfdoctor.examine import look
    from tfdoctor.system import LiveSystem, RecordedSystem

    system = LiveSystem() if facts is None else RecordedSystem(facts)
    return look(system, compat, timeout=LOOKING)


def named_cards(compat: Compat, text: str) -> tuple[Card, ...]:
    """What `--gpu` names: a compute capability, a PCI id or a card; a name of several chips gives each of them.

    Raises UsageError.
    """
    if "." in text and text.replace(".", "").isdigit():
        try:
            text = versions.format_capability(versions.parse_capability(text))
        except versions.VersionSyntaxError as error:
            msg = f"--gpu: {error}."
            raise UsageError(msg, hint="A card's name, or its compute capability: --gpu 8.6.") from error
        return (Card(f"compute capability {text}", text),)
    one = compat.gpu_by_pci_id(text)
    if one is not None:
        return (Card(one.name, one.capability),)
    match = compat.gpus_named(text)
    if match is None:
        nearest = compat.nearest_gpu_names(text)
        found = f"The nearest: {', '.join(nearest)}. " if nearest else ""
        msg = f"--gpu: no NVIDIA GPU called `{text}` is known."
        raise UsageError(msg, hint=f"{found}`tfdoctor matrix --list-gpus` lists every one.")
    names = {gpu.capability: gpu.name for gpu in reversed(match.gpus)}
    return tuple(Card(names[capability], capability) for capability in match.capabilities)


__all__ = ["checked_driver", "checked_python", "host_for", "named_cards", "planned", "show"]
