# /// script
# requires-python = ">=3.10"
# dependencies = ["packaging>=22", "tomli>=2; python_version < '3.11'"]
# ///
"""Measure compat/imports: what each TensorFlow uses from other packages while it is imported.

    python scripts/update_imports.py                    # minors that are missing: their newest patch, from its lock
    python scripts/update_imports.py '>=2.16'           # these anew
    python scripts/update_imports.py --environment ENV  # what is installed there, also as newer than the lock
    python scripts/update_imports.py --check            # offline: each minor's newest patch from OLDEST on is there

Each release is installed from its lock (compat/locks) for the newest Python on this machine, its TensorFlow is
imported, and the sources of the loaded modules are read (update_support/imports_seen.py). The versions of the other
packages with which the import worked are kept as known to be good. Takes minutes and a gigabyte per release, one
after the other.
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
from tfdoctor.compat import Compat
from tfdoctor.compat.locks import format_lock_name, format_tools_lock_name
from tfdoctor.core import versions
from update_support.files import report_errors, write_file
from update_support.trials import (
    LOCKS,
    TrialEnvironment,
    TrialError,
    find_linked,
    find_python,
    make_stand_ins,
)

if TYPE_CHECKING:
    from tfdoctor.compat.releases import Release

FOLDER = ROOT / "compat" / "imports"
CHILD = ROOT / "scripts" / "update_support" / "imports_seen.py"
MARKER = "tfdoctor-imports:"
OLDEST = "1.10"
MINIMUM = 24
"""Minimum number of minor releases, as measured in November 2026; fewer mean that something was lost."""
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
"""Modules of the standard library of any Python version.

No other package owns a name that one version has and another has not.
"""


def minor(version: str) -> str:
    """Return the minor release of a version: "2.15" for "2.15.1"."""
    return versions.major_minor(version)


def newest_of_minors() -> dict[str, Release]:
    """Return the newest release with a lock for each minor release."""
    newest: dict[str, Release] = {}
    for release in Compat.load().releases:
        if release.package not in ("tensorflow", "tensorflow-gpu") or Version(release.version).is_prerelease:
            continue
        if Version(release.version) < Version(OLDEST) or find_release_python(release) is None:
            continue
        present = newest.get(release.minor)
        if present is None or Version(present.version) < Version(release.version):
            newest[release.minor] = release
    return newest


def find_release_python(release: Release) -> str | None:
    """Return the newest Python on this machine for which the release has a lock, or None."""
    for python in sorted(release.linux_pythons, key=Version, reverse=True):
        locked = (LOCKS / format_lock_name(release.package, release.version, python)).is_file()
        if Version(python) >= Version("3.5") and locked and find_python(python) is not None:
            return python
    return None


def measure(release: Release, cache: Path) -> dict[str, Any]:
    """Install a release from its lock and observe its import. Raise TrialError if that fails."""
    python = find_release_python(release)
    interpreter = find_python(python) if python is not None else None
    if python is None or interpreter is None:
        msg = f"no Python here for {release.version}"
        raise TrialError(msg)
    folder = Path(tempfile.mkdtemp(prefix="tfdoctor-imports-"))
    try:
        bench = TrialEnvironment(folder, interpreter, python, uv=shutil.which("uv"))
        bench.install(LOCKS / format_tools_lock_name(python))
        bench.install(LOCKS / format_lock_name(release.package, release.version, python))
        site = next(iter(sorted(folder.glob("env/lib/python*/site-packages/tensorflow"))))
        linked = find_linked(site) if Version(release.version) < Version("1.14") else {}
        env = dict(bench.env)
        if linked:
            env["LD_LIBRARY_PATH"] = str(make_stand_ins(folder / "lib", cache, linked))
        return examine_import(bench.python, env)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def examine_import(python: Path, env: dict[str, str]) -> dict[str, Any]:
    """Return the answer of the child, extended by what the import cannot do without.

    Raise TrialError if the import fails.
    """
    answer = run_child(python, env)
    answer["must"] = [name for name in FAMILY if find_import_error(python, env, name) is not None]
    names_by_package: dict[str, list[str]] = {}
    for module, name, guard in answer["needs"]:
        if guard == "" and (package := module.partition(".")[0]) not in {
            *STANDARD,
            *answer["family"],
            *FAMILY,
        }:
            names_by_package.setdefault(package, []).extend([name] if name or module != package else [])
    answer["spared"] = [
        package for package in names_by_package if find_import_error(python, env, package) is None
    ]
    for (
        package,
        names,
    ) in names_by_package.items():  # a function that the import calls may use one of its names, too
        error = (
            find_import_error(python, env, f"hollow:{package}")
            if not names and package not in answer["spared"]
            else None
        )
        match = re.search(r"(?:has no attribute|cannot import name) '([A-Za-z_]\w*)'", error or "")
        if match is not None:
            answer["needs"].append([package, match[1], ""])
    return answer


FAMILY = ("keras", "tensorflow_estimator")


def find_import_error(python: Path, env: dict[str, str], without: str) -> str | None:
    """Return the error of the import if the module `without` is missing, or None if it succeeds."""
    try:
        run_child(python, env, without)
    except TrialError as error:
        return str(error)
    return None


def run_child(python: Path, env: dict[str, str], *without: str) -> dict[str, Any]:
    """Run the child and return its answer. Raise TrialError if it gives none."""
    done = subprocess.run(
        [python, CHILD, *without],
        env=env,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=600,
        check=False,
    )
    answer_line = next((line for line in done.stdout.splitlines() if line.startswith(MARKER)), None)
    if answer_line is None:
        msg = f"the import said nothing, exit {done.returncode}: {done.stderr[-1500:]}"
        raise TrialError(msg)
    return dict(json.loads(answer_line[len(MARKER) :]))


def make_row(answer: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """Return a row of the table.

    before: the present row of this minor release, whose known good versions are kept, or None.
    """
    needs: dict[str, list[str]] = {}
    optional: list[str] = []
    standard: dict[str, list[str]] = {}
    for module, name, guard in answer["needs"]:
        top = module.partition(".")[0]
        if top.startswith("_") or top in answer["family"] or top in FAMILY:
            continue
        spared = top in answer["spared"]  # it is imported only below modules that are optional themselves
        if guard == "" and top in STANDARD:
            names = standard.setdefault(module, [])
            names += [name] if name and name not in names else []
        elif guard == "" and not spared:
            names = needs.setdefault(module, [])
            names += [name] if name and name not in names else []
        elif (guard == "try" or spared) and module not in optional:
            optional.append(module)
    # An import in a `try` block counts as optional, unless another import of the module is not guarded.
    optional = [
        module for module in optional if module not in needs and module.partition(".")[0] not in STANDARD
    ]
    family: dict[str, list[str]] = {}
    for member, imports in answer["family"].items():
        modules = dict.fromkeys(
            module
            for module, _, guard in imports
            if guard != "if" or module.partition(".")[0] in answer["loaded"]
        )
        family[member] = [
            module
            for module in modules
            if module.partition(".")[0]
            not in {*STANDARD, "tensorflow", "tensorflow_io", "torch", *answer["family"]}
            and not module.startswith("_")
        ]
    good_sets: list[dict[str, str]] = list((before or {}).get("sets", []))
    current_set = {
        re.sub(r"[-_.]+", "-", name).lower(): version
        for name, version in sorted(answer["versions"].items())
        if not name.startswith("nvidia")
    }
    if current_set not in good_sets:
        good_sets.append(current_set)
    return {
        "schema_version": 1,
        "as_of": dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
        "tensorflow": answer["tensorflow"],
        "python": answer["python"],
        "needs": needs,
        "tried": optional,
        "must": answer["must"],
        "family": family,
        "standard": standard,
        "shadowable": [name for name in answer["standard"] if name in STANDARD and not name.startswith("_")],
        "idle": answer["idle"],
        "sets": good_sets,
    }


def load_tables() -> dict[str, dict[str, Any]]:
    """Return the present tables by minor release."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}


def write_table(table: dict[str, Any]) -> None:
    """Write the file of a minor release, one key per line."""
    lines = ",\n".join(
        f"{json.dumps(key)}:{json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
        for key, value in table.items()
    )
    FOLDER.mkdir(exist_ok=True)
    write_file(FOLDER / f"{minor(table['tensorflow'])}.json", f"{{{lines}}}\n")


def main() -> int:
    """Measure or check the imports and return the exit status."""
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
    rows = load_tables()
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
    for environment in options.environment:
        answer = examine_import(environment / "bin" / "python", env | {"CUDA_VISIBLE_DEVICES": "-1"})
        name = minor(answer["tensorflow"])
        rows[name] = make_row(answer, rows.get(name))
        write_table(rows[name])
        print(f"{environment}: {answer['tensorflow']}, {len(rows[name]['needs'])} modules", flush=True)
    if options.environment:
        return 0
    failed = 0
    specifier = SpecifierSet(options.spec) if options.spec else None
    for name, release in newest_of_minors().items():
        if (name in rows and specifier is None) or (
            specifier is not None and not specifier.contains(release.version)
        ):
            continue
        try:
            answer = measure(release, options.cache)
        except (TrialError, subprocess.TimeoutExpired) as error:
            print(f"{release.version}: {error}", flush=True)
            failed += 1
            continue
        rows[name] = make_row(answer, rows.get(name))
        write_table(rows[name])
        print(f"{release.version} on {answer['python']}: {len(rows[name]['needs'])} modules", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(report_errors(main))
