# /// script
# requires-python = ">=3.10"
# dependencies = ["packaging>=22", "tomli>=2; python_version < '3.11'"]
# ///
"""Measure compat/imports: what each TensorFlow takes of other packages while it is imported.

    python scripts/update_imports.py                    # minors that are missing: their newest patch, from its lock
    python scripts/update_imports.py '>=2.16'           # these anew
    python scripts/update_imports.py --environment ENV  # what is installed there, also as newer than the lock
    python scripts/update_imports.py --check            # offline: each minor's newest patch from OLDEST on is there

Each release is installed from its lock (compat/locks) for the newest Python that is here, its TensorFlow is imported,
and the sources of the modules that this loaded are read (update_support/imports_seen.py). The versions of the other
packages, with which that import worked, are kept beside: what is known to be good. Minutes and a gigabyte a release,
one after the other.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from checkout import ROOT
from tfdoctor import versions
from tfdoctor.compat import Compat
from tfdoctor.compat.locks import lock_name, tools_name
from update_support.trials import LOCKS, Bench, TrialError, find_linked, find_python, stand_ins

if TYPE_CHECKING:
    from tfdoctor.compat.releases import Release

FOLDER = ROOT / "compat" / "imports"
CHILD = ROOT / "scripts" / "update_support" / "imports_seen.py"
MARKER = "tfdoctor-imports:"
OLDEST = "1.10"
MINIMUM = 24
"""Minors; fewer than were measured in November 2026 means that something was lost."""
STANDARD = {
    *sys.stdlib_module_names,
    "distutils",
    "imp",
    "asyncore",
    "asynchat",
    "smtpd",
    "uu",
    "cgi",
    "crypt",
    "pipes",
}
"""Of any Python: a module that one has and another has not is nobody else's either."""


def minor(version: str) -> str:
    """`"2.15.1"` → `"2.15"`."""
    return versions.major_minor(version)


def newest_of_minors() -> dict[str, Release]:
    """The newest release of each minor that has a lock."""
    found: dict[str, Release] = {}
    for release in Compat.load().releases:
        if release.package not in ("tensorflow", "tensorflow-gpu") or Version(release.version).is_prerelease:
            continue
        if Version(release.version) < Version(OLDEST) or python_of(release) is None:
            continue
        known = found.get(release.minor)
        if known is None or Version(known.version) < Version(release.version):
            found[release.minor] = release
    return found


def python_of(release: Release) -> str | None:
    """The newest Python that is here and has a lock of this release."""
    for python in sorted(release.linux_pythons, key=Version, reverse=True):
        locked = (LOCKS / lock_name(release.package, release.version, python)).is_file()
        if Version(python) >= Version("3.5") and locked and find_python(python) is not None:
            return python
    return None


def measure(release: Release, cache: Path) -> dict[str, Any]:
    """Install a release from its lock and see it imported. Raises TrialError."""
    python = python_of(release)
    interpreter = find_python(python) if python is not None else None
    if python is None or interpreter is None:
        msg = f"no Python here for {release.version}"
        raise TrialError(msg)
    folder = Path(tempfile.mkdtemp(prefix="tfdoctor-imports-"))
    try:
        bench = Bench(folder, interpreter, python, uv=shutil.which("uv"))
        bench.install(LOCKS / tools_name(python))
        bench.install(LOCKS / lock_name(release.package, release.version, python))
        site = next(iter(sorted(folder.glob("env/lib/python*/site-packages/tensorflow"))))
        wanted = find_linked(site) if Version(release.version) < Version("1.14") else {}
        env = dict(bench.env)
        if wanted:
            env["LD_LIBRARY_PATH"] = str(stand_ins(folder / "lib", cache, wanted))
        return with_family(bench.python, env)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def with_family(python: Path, env: dict[str, str]) -> dict[str, Any]:
    """What the child says, and without what the import fails. Raises TrialError."""
    seen = ask(python, env)
    seen["must"] = [name for name in FAMILY if fails(python, env, name) is not None]
    chains: dict[str, list[str]] = {}
    for module, name, guard in seen["needs"]:
        if guard == "" and (top := module.partition(".")[0]) not in {*STANDARD, *seen["family"], *FAMILY}:
            chains.setdefault(top, []).extend([name] if name or module != top else [])
    seen["spared"] = [top for top in chains if fails(python, env, top) is None]
    for top, names in chains.items():  # a function that the import calls may take something of it, too
        error = fails(python, env, f"hollow:{top}") if not names and top not in seen["spared"] else None
        missed = re.search(r"(?:has no attribute|cannot import name) '([A-Za-z_]\w*)'", error or "")
        if missed is not None:
            seen["needs"].append([top, missed[1], ""])
    return seen


FAMILY = ("keras", "tensorflow_estimator")


def fails(python: Path, env: dict[str, str], without: str) -> str | None:
    """What the import stops with where that is not there; None: it does not."""
    try:
        ask(python, env, without)
    except TrialError as error:
        return str(error)
    return None


def ask(python: Path, env: dict[str, str], *without: str) -> dict[str, Any]:
    """What the child says. Raises TrialError."""
    done = subprocess.run(
        [python, CHILD, *without],
        env=env,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=600,
        check=False,
    )
    line = next((text for text in done.stdout.splitlines() if text.startswith(MARKER)), None)
    if line is None:
        msg = f"the import said nothing, exit {done.returncode}: {done.stderr[-1500:]}"
        raise TrialError(msg)
    return dict(json.loads(line[len(MARKER) :]))


def row(seen: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """A row of the table; `before` is this minor's as it was, whose good versions stay."""
    needs: dict[str, list[str]] = {}
    tried: list[str] = []
    standard: dict[str, list[str]] = {}
    for module, name, guard in seen["needs"]:
        top = module.partition(".")[0]
        if top.startswith("_") or top in seen["family"] or top in FAMILY:
            continue
        spared = top in seen["spared"]  # it stands below modules that are themselves tried
        if guard == "" and top in STANDARD:
            names = standard.setdefault(module, [])
            names += [name] if name and name not in names else []
        elif guard == "" and not spared:
            names = needs.setdefault(module, [])
            names += [name] if name and name not in names else []
        elif (guard == "try" or spared) and module not in tried:
            tried.append(module)
    # What is taken only where it is there counts as tried, unless it is taken elsewhere without a net.
    tried = [module for module in tried if module not in needs and module.partition(".")[0] not in STANDARD]
    family: dict[str, list[str]] = {}
    for member, entries in seen["family"].items():
        modules = dict.fromkeys(
            module
            for module, _, guard in entries
            if guard != "if" or module.partition(".")[0] in seen["loaded"]
        )
        family[member] = [
            module
            for module in modules
            if module.partition(".")[0]
            not in {*STANDARD, "tensorflow", "tensorflow_io", "torch", *seen["family"]}
            and not module.startswith("_")
        ]
    sets: list[dict[str, str]] = list((before or {}).get("sets", []))
    now = {
        re.sub(r"[-_.]+", "-", name).lower(): version
        for name, version in sorted(seen["versions"].items())
        if not name.startswith("nvidia")
    }
    if now not in sets:
        sets.append(now)
    return {
        "schema_version": 1,
        "as_of": dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
        "tensorflow": seen["tensorflow"],
        "python": seen["python"],
        "needs": needs,
        "tried": tried,
        "must": seen["must"],
        "family": family,
        "standard": standard,
        "shadowable": [name for name in seen["standard"] if name in STANDARD and not name.startswith("_")],
        "idle": seen["idle"],
        "sets": sets,
    }


def read() -> dict[str, dict[str, Any]]:
    """The tables as they are: minor → table."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}


def write(table: dict[str, Any]) -> None:
    """A minor's file: one key a line."""
    lines = ",\n".join(
        f"{json.dumps(key)}:{json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
        for key, value in table.items()
    )
    path = FOLDER / f"{minor(table['tensorflow'])}.json"
    FOLDER.mkdir(exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(f"{{{lines}}}\n", encoding="utf-8")
    part.replace(path)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("spec", nargs="?", default="", help="measure these anew")
    parser.add_argument(
        "--environment", type=Path, action="append", default=[], help="of a virtual environment"
    )
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "tfdoctor-imports-standins"
    )
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    rows = read()
    if options.check:
        missing = [
            release.version
            for name, release in newest_of_minors().items()
            if rows.get(name, {}).get("tensorflow") != release.version
        ]
        print(f"{len(rows)} minors; missing: {', '.join(missing) or 'none'}")
        return 1 if missing or len(rows) < MINIMUM else 0
    options.cache.mkdir(parents=True, exist_ok=True)
    env = {
        key: text for key, text in os.environ.items() if not key.startswith(("TF_", "PYTHON", "CUDA", "LD_"))
    }
    for place in options.environment:
        seen = with_family(place / "bin" / "python", env | {"CUDA_VISIBLE_DEVICES": "-1"})
        name = minor(seen["tensorflow"])
        rows[name] = row(seen, rows.get(name))
        write(rows[name])
        print(f"{place}: {seen['tensorflow']}, {len(rows[name]['needs'])} modules", flush=True)
    if options.environment:
        return 0
    failed = 0
    chosen = SpecifierSet(options.spec) if options.spec else None
    for name, release in newest_of_minors().items():
        if (name in rows and chosen is None) or (chosen is not None and not chosen.contains(release.version)):
            continue
        try:
            seen = measure(release, options.cache)
        except (TrialError, subprocess.TimeoutExpired) as error:
            print(f"{release.version}: {error}", flush=True)
            failed += 1
            continue
        rows[name] = row(seen, rows.get(name))
        write(rows[name])
        print(f"{release.version} on {seen['python']}: {len(rows[name]['needs'])} modules", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
