"""Install locks and import TensorFlow from them, one lock for each available Python.

Opt-in like the rest of the lab (TFDOCTOR_LAB=1; always on in CI). TFDOCTOR_LAB_LOCKS="tensorflow-2.6.5-cp38.txt …"
tests other locks. `scripts/update_locks.py --try` does this for all and records the results in
compat/locks/tried.json.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from lab import environments

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
try:
    import update_locks as script
    from update_support import trials
finally:
    sys.path.remove(str(SCRIPTS))

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        not (os.environ.get("TFDOCTOR_LAB") or os.environ.get("TFDOCTOR_LAB_LOCKS")),
        reason="set TFDOCTOR_LAB=1 to install locks (gigabytes, minutes)",
    ),
]

CHOSEN = ("tensorflow-gpu-1.4.1-cp27.txt", "tensorflow-gpu-1.13.2-cp36.txt")
"""Small locks of different kinds: with linked CUDA, and with source archives to build.

test_install_lab.py installs the releases from 2.12 on.
"""
if environments.is_full_run():
    CHOSEN += ("tensorflow-gpu-1.15.5-cp37.txt", "tensorflow-2.10.1-cp310.txt")
TARGETS = {target.name: target for target in script.list_targets()}


@pytest.mark.parametrize("name", os.environ.get("TFDOCTOR_LAB_LOCKS", "").split() or CHOSEN)
def test_lock_installs_and_tensorflow_computes(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    target = TARGETS[name]
    python = trials.find_python(target.python)
    if python is None:
        pytest.skip(f"no Python {target.python} here")
    cache = tmp_path_factory.getbasetemp() / "standins"
    result = trials.try_lock(target, python, cache, uv=shutil.which("uv"))
    assert result.ok, result.message
