# /// script
# requires-python = ">=3.10"
# dependencies = ["packaging>=22", "tomli>=2; python_version < '3.11'"]
# ///
"""Run TensorFlow's import beside other versions of its companions, and keep the results in compat/imports.

    scripts/update_companions.py 2.15.1 2.21.0        # these releases, on the newest Python here that they have
    scripts/update_companions.py 2.15.1 --package keras --version 3.10.0
    scripts/update_companions.py 2.15.1 --compare     # also ask `tfdoctor check`, and print where it is wrong
    scripts/update_companions.py --check              # offline: the newest patch of each minor in RELEASES has runs

Of each package that TensorFlow's requirements lead to, the oldest version that they allow, the newest version before
that, and the newest version of all are installed (`uv pip`, wheels only), one at a time, beside the newest that pip
chooses for the others. In each environment TensorFlow is imported, and then tf.keras is used. `runs` in
compat/imports/MINOR.json has the last line of the error by package and version, "" if there was none; `keras_runs`
the error of tf.keras where the import works.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from checkout import ROOT
from tfdoctor.compat import Compat
from tfdoctor.core import versions
from update_imports import find_release_python, load_tables, newest_of_minors, write_table
from update_support.trials import TrialError, find_python, run_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.compat.releases import Release

RELEASES = ("2.4", "2.8", "2.10", "2.13", "2.15", "2.16", "2.18", "2.20", "2.21")
KERAS_VERSIONS = (
    "2.6.0",
    "2.9.0",
    "2.11.0",
    "2.12.0",
    "2.14.0",
    "2.15.0",
    "3.0.5",
    "3.3.3",
    "3.6.0",
    "3.10.0",
)
"""Versions of Keras that are tried with every release from 2.6 on, beside the oldest and the newest."""
UNRELATED = re.compile(
    r"nvidia-|tensorflow|tf-nightly|libclang$|pip$|wheel$|tensorboard|google-auth|oauthlib|requests-oauthlib|pyasn1|"
    r"cffi$|cryptography$|pycparser$|markdown$|markupsafe$|werkzeug$|zipp$|importlib-metadata$"
)
"""Distributions that the import does not load: NVIDIA's, and what only the server of TensorBoard needs."""
IMPORT_TIMEOUT_S = 300
IMPORT = """
import os, sys
os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3")
import tensorflow as tf
tf.config.list_physical_devices("GPU")
print("imported", tf.__version__, flush=True)
tf.keras.layers.Dense, tf.keras.Sequential, tf.keras.optimizers.SGD
print("keras", flush=True)
"""


@dataclass(frozen=True)
class Trial:
    """The result of one import."""

    error: str
    """The last line of the error of `import tensorflow`; empty if it works."""
    keras_error: str = ""
    """The last line of the error of tf.keras, if the import works."""


@dataclass
class CompanionEnvironment:
    """An environment with a release, in which one companion at a time is replaced."""

    release: str
    python: Path
    variables: dict[str, str]
    installed: dict[str, str] = field(default_factory=dict)

    def run_uv(self, *arguments: str, text: str = "") -> str:
        """Run `uv pip` and return its output. Raise TrialError."""
        done = subprocess.run(
            [shutil.which("uv") or "uv", "pip", *arguments],
            input=text,
            capture_output=True,
            text=True,
            env=self.variables,
            timeout=900,
            check=False,
        )
        if done.returncode:
            raise TrialError(done.stderr[-800:])
        return done.stdout

    def install(self, *requirements: str, dependencies: bool = True) -> None:
        """Install requirements from wheels. Raise TrialError."""
        options = [] if dependencies else ["--no-deps"]
        self.run_uv(
            "install", "-q", "--python", str(self.python), "--only-binary", ":all:", *options, *requirements
        )

    def list_installed(self) -> dict[str, str]:
        """Return the installed versions by normalized name."""
        entries = json.loads(self.run_uv("list", "--format", "json", "--python", str(self.python)))
        return {versions.normalize_project_name(entry["name"]): entry["version"] for entry in entries}

    def find_version(self, requirements: str, package: str, resolution: str) -> str | None:
        """Return the version of a package that a resolution of requirements (one per line) chooses, or None."""
        arguments = ("compile", "-", "-q", "--no-header", "--no-annotate", "--only-binary", ":all:")
        try:
            text = self.run_uv(
                *arguments, "--python", str(self.python), "--resolution", resolution, text=requirements
            )
        except (TrialError, subprocess.TimeoutExpired):
            return None
        matches = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, re.MULTILINE)
        return next(
            (version for name, version in matches if versions.normalize_project_name(name) == package), None
        )

    def try_import(self) -> Trial:
        """Import TensorFlow, use tf.keras, and return the errors."""
        done = subprocess.run(
            [self.python, "-c", IMPORT],
            capture_output=True,
            text=True,
            errors="replace",
            env=self.variables,
            timeout=IMPORT_TIMEOUT_S,
            cwd=self.python.parent,
            check=False,
        )
        lines = [
            line for line in done.stderr.splitlines() if re.match(r"[A-Za-z_][\w.]*(Error|Exception)\b", line)
        ]
        error = lines[-1] if lines else f"exit {done.returncode}"
        error = re.sub(r" \(/\S+\)", "", error)[:300] if done.returncode else ""
        return Trial("", error) if "imported " in done.stdout else Trial(error)


def create_environment(release: Release, folder: Path, variables: dict[str, str]) -> CompanionEnvironment:
    """Create the environment of a release with the newest companions that work. Raise TrialError."""
    version = find_release_python(release)
    interpreter = find_python(version) if version is not None else None
    if interpreter is None:
        msg = f"no Python here for {release.version}"
        raise TrialError(msg)
    run_step(["uv", "venv", "-q", "--python", interpreter, folder / "env"], variables, folder)
    environment = CompanionEnvironment(release.version, folder / "env" / "bin" / "python", variables)
    limits = Compat.load().list_companion_limits(release.version)
    environment.install(f"{release.package}=={release.version}", *limits.values())
    environment.installed = environment.list_installed()
    return environment


def list_versions(environment: CompanionEnvironment, release: Release, package: str) -> Iterator[str]:
    """Yield the versions of a package to try: the oldest allowed, the one before it, and the newest of all."""
    requirement = f"{release.package}=={release.version}"
    oldest = environment.find_version(f"{requirement}\n{package}\n", package, "lowest-direct")
    candidates = [oldest]
    if oldest is not None:
        candidates.append(environment.find_version(f"{package}<{oldest}\n", package, "highest"))
    candidates.append(environment.find_version(f"{package}\n", package, "highest"))
    if package == "keras":
        candidates += KERAS_VERSIONS
    installed = environment.installed.get(package)
    yield from dict.fromkeys(version for version in candidates if version and version != installed)


def predict_import(tool: Path, python: Path, variables: dict[str, str]) -> bool | None:
    """Return what `tfdoctor check` predicts of the import."""
    done = subprocess.run(
        [tool, "-m", "tfdoctor", "check", "--json", "--python", python],
        capture_output=True,
        text=True,
        env=variables,
        cwd=ROOT,
        timeout=300,
        check=False,
    )
    return json.loads(done.stdout)["prediction"]["import_ok"]


def try_release(release: Release, options: argparse.Namespace, rows: dict[str, dict[str, Any]]) -> int:
    """Run all trials of a release, and write its table after each package. Return how many predictions were wrong."""
    folder = Path(tempfile.mkdtemp(prefix="tfdoctor-companions-", dir=options.folder))
    removed = ("TF_", "PYTHON", "CUDA", "LD_", "VIRTUAL_ENV", "KERAS_")
    variables = {key: text for key, text in os.environ.items() if not key.startswith(removed)}
    row = rows[release.minor]
    wrong = count = 0
    try:
        environment = create_environment(release, folder, variables)
        baseline = environment.try_import()
        if baseline.error or baseline.keras_error:
            msg = f"{release.version}: the import fails with the newest companions: {baseline}"
            raise TrialError(msg)
        packages = options.package or [name for name in environment.installed if not UNRELATED.match(name)]
        if (
            "keras" not in packages
            and options.package is None
            and versions.is_at_least(release.version, "2.6")
        ):
            packages.append("keras")
        for package in packages:
            runs = row.setdefault("runs", {}).setdefault(package, {})
            before = environment.installed.get(package)
            if before is not None:
                runs[before] = ""
            for version in options.version or list_versions(environment, release, package):
                try:
                    # Keras 3 has requirements that Keras 2 does not have.
                    environment.install(f"{package}=={version}", dependencies=package == "keras")
                except (TrialError, subprocess.TimeoutExpired):
                    continue
                trial = environment.try_import()
                count += 1
                runs[version] = trial.error
                keras_runs = row.setdefault("keras_runs", {}).setdefault(package, {})
                keras_runs.pop(version, None)
                if trial.keras_error:
                    keras_runs[version] = trial.keras_error
                note = ""
                if options.compare:
                    predicted = predict_import(options.compare, environment.python, variables)
                    wrong += predicted is not (not trial.error)
                    note = f" predicted {predicted}{'' if predicted is (not trial.error) else ' WRONG'}"
                print(
                    f"{release.version} {package} {version}: {trial.error or trial.keras_error or 'works'}{note}",
                    flush=True,
                )
            if before is None:
                environment.run_uv("uninstall", "-q", "--python", str(environment.python), package)
            environment.install(
                *(f"{name}=={version}" for name, version in environment.installed.items()), dependencies=False
            )
            runs_sorted = dict(sorted(runs.items(), key=lambda item: Version(item[0])))
            row["runs"][package] = runs_sorted
            row["keras_runs"] = {name: errors for name, errors in row.get("keras_runs", {}).items() if errors}
            if not options.dry_run:
                write_table(row)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{release.version}: {count} combinations, {wrong} predicted wrongly", flush=True)
    return wrong


def main() -> int:
    """Run or check the trials and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("release", nargs="*", help="a version, such as 2.15.1")
    parser.add_argument("--package", action="append", help="only this companion")
    parser.add_argument("--version", action="append", help="only this version of it")
    parser.add_argument("--folder", type=Path, help="where the environments are made")
    parser.add_argument(
        "--compare", type=Path, metavar="PYTHON", help="a Python with tfdoctor, which predicts"
    )
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    rows = load_tables()
    if options.check:
        missing = [minor for minor in RELEASES if not rows.get(minor, {}).get("runs")]
        print(f"missing: {', '.join(missing) or 'none'}")
        return 1 if missing else 0
    releases = newest_of_minors()
    chosen = [release for release in releases.values() if release.version in options.release]
    wrong = 0
    for release in chosen or [releases[minor] for minor in RELEASES]:
        try:
            wrong += try_release(release, options, rows)
        except (TrialError, subprocess.TimeoutExpired) as error:
            print(error, file=sys.stderr)
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
