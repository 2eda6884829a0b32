"""Distributions and shared files for the tests of rules about file owners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rules.make_facts import SITE, with_python
from tfdoctor.core.facts import Distribution, value_of
from tfdoctor.core.facts.files import SharedFile

if TYPE_CHECKING:
    from tfdoctor.core.facts import Facts


def _make_cudnn(version: str, **more: Any) -> Distribution:
    return Distribution("nvidia-cudnn-cu12", version, SITE, "pip", **more)


def _make_shared(path: str, *owners: tuple[str, str], now: tuple[str, str] | None = None) -> SharedFile:
    return SharedFile(path, SITE, owners, now)


CU12, CU13 = ("nvidia-cudnn-cu12", "9.3.0.75"), ("nvidia-cudnn-cu13", "9.13.0.50")


CUDNN = "nvidia/cudnn/lib/libcudnn.so.9"


def _add_distributions(facts: Facts, *distributions: Distribution, **more: Any) -> Facts:
    python = value_of(facts.python)
    assert python is not None
    return with_python(facts, distributions=(*python.distributions, *distributions), **more)
