# The types of what is loaded when it is asked for; a test holds them and tfdoctor/api/calls.py together. This file
# imports no more than the shapes: nearly every module imports this one.
import os
from collections.abc import Sequence
from typing import Any

from tfdoctor.api.shapes import Check, Diagnosis, Recommendation
from tfdoctor.core.errors import Error as Error

__version__: str

def check(
    python: str | None = None,
    *,
    deep: bool = False,
    recording: str | os.PathLike[str] | None = None,
    timeout: float = 10.0,
) -> Check: ...
def diagnose(text: str | bytes) -> Diagnosis: ...
def recommend(
    tf: str | None = None,
    *,
    gpu: str | Sequence[str] = (),
    driver: str | None = None,
    python_version: str | None = None,
    method: str | None = None,
    recording: str | os.PathLike[str] | None = None,
) -> Recommendation: ...
def load_ipython_extension(ipython: Any) -> None: ...
