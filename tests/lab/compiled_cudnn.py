"""Find the cuDNN that a wheel was compiled with, for `[[compiled]]` of compat/registration.toml.

python tests/lab/compiled_cudnn.py VERSION... [--python ENV/bin/python] [--work FOLDER]

Runs a pooling on the software GPU, whose cuDNN claims to be of the major version before. Every TensorFlow refuses it
with "Loaded runtime CuDNN library: 7.0.0 but source was compiled with: 8.1.0". The environments are created with uv
one after the other and removed (two gigabytes each); --python uses an existing one. The rows go to standard output.
If a release prints another message, it goes to standard error, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):  # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab.environments import find_python
from lab.softgpu import build_libraries
from tfdoctor.compat.tables import Compat
from tfdoctor.core import versions

if TYPE_CHECKING:
    from tfdoctor.compat.releases import Release

POOLING_SCRIPT = Path(__file__).with_name("software_pooling.py")
VERSION_MESSAGE = re.compile(
    r"Loaded runtime CuDNN library: \d[\d.]* (?:\(compatibility version \d+\) )?"
    r"but source was compiled with:? (?P<compiled>\d+(?:\.\d+)*)"
)
COMPANIONS = (
    ("<2.4", ("protobuf<3.21", "numpy<1.20", "h5py<3")),
    (">=2.4,<2.12", ("protobuf<3.21", "numpy<1.24")),
    (">=2.12,<2.16", ("numpy<2",)),
)
"""Requirements of the wheels of that time that their metadata does not state."""
TIMEOUT_S = 900


def previous_major(cudnn: str) -> str:
    """Return the first cuDNN of the major version before: "7.0" for "8.1"."""
    return f"{versions.major(cudnn) - 1}.0"


def compiled_with(text: str) -> str | None:
    """Return the cuDNN that TensorFlow says it was compiled with, or None.

    Before 1.9 the message has a number ("7004").
    """
    match = VERSION_MESSAGE.search(text)
    if match is None:
        return None
    version = match["compiled"]
    if "." in version:
        return version
    number = int(version)
    return f"{number // 1000}.{number // 100 % 10}.{number % 100}"


def run_pooling(release: Release, python: Path, work: Path) -> str:
    """Return the output of a pooling on a GPU with a cuDNN of the major version before."""
    assert release.cudnn is not None
    key = "\0".join((*release.required_libraries, str(release.cuda), previous_major(release.cudnn)))
    folder = work / f"software-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    if not (folder / "ptxas").exists():  # the file that is written last
        build_libraries(folder, release.version, cudnn=previous_major(release.cudnn))
    env = {name: text for name, text in os.environ.items() if not name.startswith(("STANDIN_", "TF_"))}
    env |= {
        "LD_LIBRARY_PATH": str(folder),
        "PATH": f"{folder}:{env.get('PATH', os.defpath)}",
        "STANDIN_GPUS": "1",
        "STANDIN_CC": "75",
    }
    done = subprocess.run(
        [python, POOLING_SCRIPT], env=env, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    return done.stdout + done.stderr


def make_environment(release: Release, folder: Path) -> Path:
    """Create an environment with this release and return its interpreter.

    Raise LookupError if this machine has no Python for it.
    """
    bases = (find_python(minor) for minor in reversed(release.linux_pythons))
    base = next((path for path in bases if path), None)
    if base is None:
        message = f"none of Python {', '.join(release.linux_pythons)} is here"
        raise LookupError(message)
    companions = [
        name
        for spec, names in COMPANIONS
        if versions.VersionSpec(spec).select([release.version])
        for name in names
    ]
    uv = shutil.which("uv") or "uv"
    subprocess.run([uv, "venv", "-q", "-p", base, folder], check=True, timeout=TIMEOUT_S)
    python = folder / "bin" / "python"
    requirements = [f"{release.package}=={release.version}", *companions]
    install = [uv, "pip", "install", "-q", "--no-cache", "--python", str(python), *requirements]
    subprocess.run(install, check=True, timeout=TIMEOUT_S)
    return python


def format_row(release: Release, cudnn: str) -> str:
    """Return the row for compat/registration.toml."""
    return f'[[compiled]]\nversion = "{release.version}"\ncudnn = "{cudnn}"\n'


def main() -> int:
    """Measure and print the rows; return 1 if a release failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    parser.add_argument("--python", type=Path, help="the interpreter of an environment with that one VERSION")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "tfdoctor-compiled")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    failed = False
    for version in options.versions:
        release = Compat.load().find_release(version)
        folder = options.work / f"env-{version}"
        try:
            if release is None or release.cudnn is None:
                message = "no release with GPUs that is known"
                raise LookupError(message)  # noqa: TRY301
            output = run_pooling(release, options.python or make_environment(release, folder), options.work)
            cudnn = compiled_with(output)
            if cudnn is None:
                message = f"it does not say it:\n{output[-3000:]}"
                raise LookupError(message)  # noqa: TRY301
            print(format_row(release, cudnn), flush=True)
        except (LookupError, OSError, RuntimeError, subprocess.SubprocessError) as error:
            print(f"{version}: {error}", file=sys.stderr, flush=True)
            failed = True
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
