"""Pages of `bench --html`."""

from __future__ import annotations

import base64
import dataclasses
import sys
from typing import TYPE_CHECKING

import pytest

from extensions.bench.made import make_bench, make_devices_line, make_run_line
from render.test_html import HOSTILE, USER, check_page
from tfdoctor.core.errors import UsageError
from tfdoctor.core.privacy.redactor import Redactor
from tfdoctor.extensions.bench.command import bench
from tfdoctor.extensions.bench.html import make_benchmark_html

if TYPE_CHECKING:
    from pathlib import Path


def bench_page(stopped: str = "", redactor: Redactor | None = None, name: str = "Tesla T4") -> bytes:
    """Return the page of a CPU and a GPU with fictitious times."""
    slow = [make_run_line(1e-3 * size / 256, size=size, gflops=30.0) for size in (256, 1024, 4096)]
    fast = [make_run_line(5e-4, "GPU:0", size=size, gflops=900.0) for size in (256, 1024, 4096)]
    results = make_bench(make_devices_line("CPU:0", "GPU:0"), *slow, *fast)
    devices = tuple(dataclasses.replace(device, name=name) for device in results.devices)
    results = dataclasses.replace(results, stop_reason=stopped, devices=devices)
    return make_benchmark_html(results, redactor or Redactor())


def test_page_is_escaped_and_redacted() -> None:
    page = bench_page(f"/home/{USER}/x: {HOSTILE}", Redactor(users=(USER,)), HOSTILE)
    elements = check_page(page, pictures=1)
    assert USER.encode() not in page
    (picture,) = [attributes["src"] for tag, attributes in elements.found if tag == "img"]
    assert b"<script" not in base64.b64decode((picture or "").partition("base64,")[2])


def test_page_without_times_is_written_once(tmp_path: Path) -> None:
    target = tmp_path / "b.html"
    assert bench(python=sys.executable, duration=1.0, html=target) == 3
    elements = check_page(target.read_bytes())
    assert "Nothing could be timed" in " ".join(elements.texts)
    with pytest.raises(UsageError):
        bench(python=sys.executable, duration=1.0, html=target)
