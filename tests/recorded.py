"""The recorded machines of tests/hosts; each is examined once per process, whichever tests use it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfdoctor.compat import Compat
from tfdoctor.diagnosis.collect import run_probes
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.system import RecordedSystem

if TYPE_CHECKING:
    from tfdoctor.core.facts import Facts
    from tfdoctor.core.findings import Report

HOSTS = Path(__file__).with_name("hosts")
FOLDERS = sorted(path.parent for path in HOSTS.glob("*/host.json"))


@cache
def load_facts(folder: Path) -> Facts:
    """Return the facts of a recorded machine."""
    return run_probes(RecordedSystem(folder), Compat.load())


@cache
def load_report(folder: Path) -> Report:
    """Return the report about a recorded machine."""
    return diagnose(load_facts(folder), Compat.load())
