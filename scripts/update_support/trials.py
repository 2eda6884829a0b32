"""Trials of locks: install them, import TensorFlow, and compute something on the CPU.

A trial creates an environment with that Python, installs the lock of the tools and the lock with `--no-deps
--require-hashes`, runs `pip check`, and runs `CHILD` in it. uv installs if it supports the Python (3.7 and newer; not
with `--pip`), otherwise pip. TensorFlow up to 1.13 links CUDA, so it gets stand-ins.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkout import ROOT
from update_support.files import write_file
from update_support.targets import Target, list_targets, make_filter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

__all__ = ["CHILD", "Result", "find_python", "run_trials", "try_lock"]

LOCKS = ROOT / "compat" / "locks"
TRIED = LOCKS / "tried.json"

CHILD = r"""
from __future__ import print_function
import os, sys, tempfile
import numpy
import tensorflow as tf

if hasattr(tf, "Session"):
    with tf.Session() as session:
        total = session.run(tf.reduce_sum(tf.matmul(tf.ones([3, 4]), tf.ones([4, 5]))))
else:
    total = tf.reduce_sum(tf.matmul(tf.ones([3, 4]), tf.ones([4, 5]))).numpy()
assert total == 60, total
layers = tf.keras.layers
model = tf.keras.models.Sequential([layers.LSTM(2, input_shape=(3, 1)), layers.Dense(1)])
assert model.predict(numpy.zeros((1, 3, 1), "float32")).shape == (1, 1)
try:
    import h5py
except ImportError:
    pass
else:
    path = os.path.join(tempfile.mkdtemp(), "m.weights.h5")
    model.save_weights(path)
    model.load_weights(path)
print("computed", tf.__version__, ".".join(map(str, sys.version_info[:3])))
"""
"""The program of a trial, for Python 2.7 to 3.13.

It multiplies matrices, runs a recurrent layer (NumPy) and saves weights (h5py).
"""


@dataclass(frozen=True)
class Result:
    """The result of one trial."""

    name: str
    python: str
    ok: bool
    seconds: float
    message: str
    """The error; empty if the trial succeeded."""


class TrialError(RuntimeError):
    """A failed step of a trial; the message has the end of its output."""


def find_python(version: str) -> str | None:
    """Return a working interpreter of this minor version, from pyenv or PATH, or None."""
    installed = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for candidate in (*map(str, reversed(installed)), shutil.which(f"python{version}")):
        if candidate is not None:
            command = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0 and done.stdout.strip() == version:
                return candidate
    return None


def run_step(command: Sequence[str | Path], env: Mapping[str, str], cwd: Path) -> str:
    """Run a command and return its output and errors. Raise TrialError."""
    try:
        done = subprocess.run(
            list(map(str, command)),
            env=dict(env),
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=1500,
        )
    except subprocess.TimeoutExpired as error:
        msg = f"{command[0]}: no end after 1500 s"
        raise TrialError(msg) from error
    if done.returncode != 0:
        shown_command = " ".join(str(part) for part in command[:6] if part != CHILD)
        msg = f"{shown_command} …: exit {done.returncode}: {done.stdout[-1800:]}"
        raise TrialError(msg)
    return done.stdout


class TrialEnvironment:
    """One environment, in a temporary folder."""

    def __init__(self, folder: Path, python: str, version: str, *, uv: str | None) -> None:
        self.folder = folder
        self.version = version
        self.uv = uv if tuple(map(int, version.split("."))) >= (3, 7) else None
        kept_variables = ("PATH", "HOME", "LANG", "TMPDIR", "SSL_CERT_FILE", "UV_CACHE_DIR")
        self.env = {
            key: value for key, value in os.environ.items() if key in kept_variables or key.startswith("PIP_")
        }
        self.env |= {
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "CUDA_VISIBLE_DEVICES": "-1",
            "TF_CPP_MIN_LOG_LEVEL": "1",
        }
        if version == "2.7":  # has no venv module; a separate user base serves the same purpose
            self.python = Path(python)
            self.env |= {"PYTHONUSERBASE": str(folder / "user")}
        else:
            run_step(
                [python, "-m", "venv", *(["--without-pip"] if self.uv else []), folder / "env"],
                self.env,
                folder,
            )
            self.python = folder / "env" / "bin" / "python"

    def install(self, lock: Path) -> None:
        """Install a lock without a cache, because TensorFlow's wheels are large and used only once."""
        flags = ["--no-deps", "--require-hashes", "-r", lock]
        if self.uv:
            run_step(
                [
                    self.uv,
                    "pip",
                    "install",
                    "--no-cache",
                    "--python",
                    self.python,
                    "--no-build-isolation",
                    *flags,
                ],
                self.env,
                self.folder,
            )
        else:
            is_tools_lock = lock.name.startswith("tools-")
            flags = [
                *([] if is_tools_lock else ["--no-build-isolation"]),
                *(["--user"] if self.version == "2.7" else []),
                *flags,
            ]
            run_step(
                [self.python, "-m", "pip", "install", "--no-cache-dir", "--no-compile", *flags],
                self.env,
                self.folder,
            )

    def check(self) -> None:
        """Run `pip check`, and ignore missing packages of NVIDIA's."""
        try:
            run_step([self.python, "-m", "pip", "check"], self.env, self.folder)
        except TrialError as error:
            lines = [line for line in str(error).partition("exit 1: ")[2].splitlines() if line.strip()]
            if not lines or any("nvidia" not in line and "DEPRECATION" not in line for line in lines):
                raise

    def compute(self, cache: Path) -> str:
        """Run CHILD and return the version of the Python."""
        env = dict(self.env)
        site = (
            run_step(
                [self.python, "-c", "import imp; print(imp.find_module('tensorflow')[1])"]
                if self.version == "2.7"
                else [
                    self.python,
                    "-c",
                    "import importlib.util as u; print(u.find_spec('tensorflow').submodule_search_locations[0])",
                ],
                env,
                self.folder,
            )
            .strip()
            .splitlines()[-1]
        )
        linked = find_linked(Path(site))
        if linked:
            env["LD_LIBRARY_PATH"] = str(make_stand_ins(self.folder / "lib", cache, linked))
        match = re.search(
            r"^computed (\S+) (\S+)$", run_step([self.python, "-c", CHILD], env, self.folder), re.MULTILINE
        )
        if match is None:
            raise TrialError("it said nothing")
        return match[2]


def find_linked(package: Path) -> dict[str, list[Path]]:
    """Return the TensorFlow objects that link each CUDA soname; empty from 1.14 on."""
    from lab import standins

    objects_by_soname: dict[str, list[Path]] = {}
    for path in sorted(package.rglob("*.so*")):
        output = subprocess.run(
            [standins.find_tool("readelf"), "-dW", str(path)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for name in re.findall(r"\(NEEDED\).*\[(lib(?:cu|nvrtc|nccl)[^\]]*)\]", output):
            objects_by_soname.setdefault(name, []).append(path)
    return objects_by_soname


def make_stand_ins(folder: Path, cache: Path, linked: Mapping[str, Sequence[Path]]) -> Path:
    """Create stand-ins of the linked libraries with all imported symbols; return the driver's folder."""
    from lab import standins

    symbols = standins.find_imported_symbols({path for paths in linked.values() for path in paths})
    for name in linked:
        own_symbols = symbols.get(name.partition(".so")[0], ())
        standins.write_library(folder / name, cache, symbols=own_symbols)
    return standins.write_driver(folder, cache)


def try_lock(target: Target, python: str, cache: Path, *, uv: str | None) -> Result:
    """Create an environment, install a lock, check and compute, and remove the environment."""
    from tfdoctor.compat.locks import format_tools_lock_name

    started = dt.datetime.now(tz=dt.timezone.utc)
    python_version, message = target.python, ""
    folder = Path(tempfile.mkdtemp(prefix="tfdoctor-lock-"))
    try:
        bench = TrialEnvironment(folder, python, target.python, uv=uv)
        bench.install(LOCKS / format_tools_lock_name(target.python))
        bench.install(LOCKS / target.name)
        bench.check()
        python_version = bench.compute(cache)
    except TrialError as error:
        message = str(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = (dt.datetime.now(tz=dt.timezone.utc) - started).total_seconds()
    return Result(target.name, python_version, not message, seconds, message)


# --- record ---------------------------------------------------------------------------------------------


def load_digest(name: str) -> str:
    """Return the digest of the present lock; empty if it does not exist."""
    from tfdoctor.compat.locks import read_lock

    return read_lock(LOCKS / name).digest if (LOCKS / name).is_file() else ""


def load_record() -> dict[str, Any]:
    if not TRIED.is_file():
        return {}
    return dict(json.loads(TRIED.read_text(encoding="utf-8"))["locks"])


def write_record(locks: Mapping[str, Any], as_of: str) -> None:
    """Write the record, one lock per line, sorted by name."""
    rows = ",\n".join(f"{json.dumps(name)}:{json.dumps(locks[name])}" for name in sorted(locks))
    write_file(TRIED, f'{{"schema_version":1,"as_of":"{as_of}","locks":{{\n{rows}\n}}}}\n')


def run_trials(options: argparse.Namespace, specs: Sequence[str]) -> int:
    """Try the chosen locks for `scripts/update_locks.py --try`; return 1 if one failed."""
    filters = [make_filter(spec) for spec in specs]
    chosen = [
        target
        for target in list_targets()
        if (not filters or any(matches(target.release.version) for matches in filters))
        and options.python in (None, target.python)
    ]
    if options.last:
        newest = {
            (target.release.package, target.release.minor): target.release.version
            for target in list_targets()
        }
        chosen = [
            entry
            for entry in chosen
            if newest[entry.release.package, entry.release.minor] == entry.release.version
        ]
    chosen.sort(
        key=lambda entry: len(entry.release.linux_pythons) - entry.release.linux_pythons.index(entry.python)
    )
    record = load_record()
    if options.missing:
        chosen = [
            candidate
            for candidate in chosen
            if record.get(candidate.name, {}).get("lock") != load_digest(candidate.name)
            or not record[candidate.name]["ok"]
        ]
    pythons = {version: find_python(version) for version in {target.python for target in chosen}}
    for version in sorted(version for version, path in pythons.items() if path is None):
        print(f"no Python {version} here: its locks are not tried", file=sys.stderr)
    uv = None if options.pip else shutil.which("uv")
    cache = options.cache / "standins"
    cache.mkdir(parents=True, exist_ok=True)
    lock = threading.Lock()
    failed = 0

    def try_target(target: Target) -> None:
        nonlocal failed
        python = pythons[target.python]
        if python is None or not load_digest(target.name):
            return
        result = try_lock(target, python, cache, uv=uv)
        with lock:
            failed += not result.ok
            outcome = "ok" if result.ok else "FAILED"
            print(f"{result.name}: {outcome} on {result.python}, {result.seconds:.0f} s", flush=True)
            if not result.ok:
                print(result.message, flush=True)
            entry = {
                "date": options.as_of,
                "python": result.python,
                "lock": load_digest(target.name),
                "ok": result.ok,
            }
            with (options.cache / "tried.lock").open(
                "w"
            ) as file:  # another process may try other locks at the same time
                fcntl.flock(file, fcntl.LOCK_EX)
                write_record({**load_record(), target.name: entry}, options.as_of)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(try_target, chosen))
    return 1 if failed else 0
