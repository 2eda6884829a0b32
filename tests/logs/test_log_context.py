"""What a log proves about the release and the GPU, at the edges."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tfdoctor.compat import Compat
from tfdoctor.logs.log_context import LogContext
from tfdoctor.logs.scan import scan
from tfdoctor.logs.signatures import load_signatures

TIME = "2020-05-01 10:00:00.000001: "
VISIBLE = f"{TIME}I tensorflow/core/common_runtime/gpu/gpu_device.cc:1746] Adding visible gpu devices: 0\n"
SKIPPED = "Skipping registering GPU devices...\n"


@pytest.mark.parametrize(
    ("era", "is_at_most", "is_since"),
    [
        ("2.4", True, True),
        ("2.3", True, False),
        ("2.5", False, True),
        ("2.3-2.4", True, False),
        ("2.4-2.5", False, True),
        ("-2.4", True, False),
        ("2.4+", False, True),
        (None, False, False),
    ],
)
def test_era_on_either_side_of_a_release(era: str | None, is_at_most: bool, is_since: bool) -> None:
    context: Any = SimpleNamespace(origin=SimpleNamespace(era=era))
    assert LogContext.is_at_most(context, "2.4") is is_at_most
    assert LogContext._is_since(context, "2.4") is is_since


@pytest.mark.parametrize(
    ("log", "is_usable"),
    [
        (VISIBLE, True),
        (VISIBLE + SKIPPED, False),
        (SKIPPED + VISIBLE, True),
        (VISIBLE + SKIPPED + VISIBLE, True),
        (SKIPPED, False),
    ],
)
def test_gpu_is_usable_if_it_was_selected_last(log: str, is_usable: bool) -> None:
    context = LogContext(scan([log.encode()], load_signatures()), Compat.load())
    assert (context.gpu_ready_order >= 0) is is_usable
