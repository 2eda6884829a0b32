"""What options say of a plan, checked: releases, Pythons, drivers and cards as people write them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.compat import UnknownReleaseError
from tfdoctor.errors import UsageError
from tfdoctor.fit import Card
from tfdoctor.plan import recommend

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.fit import Host
    from tfdoctor.plan import Recommendation, Request

__all__ = ["checked_driver", "checked_python", "named_cards", "planned"]

_DRIVER = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4}){0,3}")
_PYTHON = re.compile(r"[0-9]{1,2}\.[0-9]{1,3}(?:\.[0-9]{1,3})?")


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
