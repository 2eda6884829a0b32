"""Print verification stages as they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.render.terminal import OUT
from tfdoctor.render.verify import render_stage
from tfdoctor.verification.session import ignore_stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdoctor.core.findings import Stage

__all__ = ["make_stage_printer"]


def make_stage_printer(*, quiet: bool) -> Callable[[Stage], None]:
    """Return a function that prints the line for a finished stage. With `quiet`, it does nothing."""

    def print_stage(stage: Stage) -> None:
        OUT.write(render_stage(stage, **OUT.layout))
        OUT.flush()

    return ignore_stage if quiet else print_stage
