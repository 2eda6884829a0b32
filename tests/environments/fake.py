"""A small environment that `tfdoctor check` accepts as one with TensorFlow and NVIDIA's wheels.

The parts that tfdoctor reads are real: the libraries are compiled with the RUNPATH of the release, and each
distribution has a RECORD, so that pip and uv can handle it. Everything else is left out. Building the
environment takes half a second.
"""

from __future__ import annotations

import base64
import compileall
import contextlib
import functools
import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from lab import standins
from tfdoctor.cli.startup import run
from tfdoctor.compat import Compat

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[2]
UV = shutil.which("uv")
GPUS = 2
SCHEMA = json.loads((ROOT / "docs/schemas/fix.schema.json").read_text(encoding="utf-8"))
ERROR_SCHEMA = json.loads((ROOT / "docs/schemas/error.schema.json").read_text(encoding="utf-8"))
CHECK_SCHEMA = json.loads((ROOT / "docs/schemas/check.schema.json").read_text(encoding="utf-8"))

CUDA_12 = {
    "nvidia-cublas-cu12": ("12.5.3.2", "cublas", ("libcublas.so.12", "libcublasLt.so.12")),
    "nvidia-cuda-runtime-cu12": ("12.5.82", "cuda_runtime", ("libcudart.so.12",)),
    "nvidia-cudnn-cu12": (
        "9.3.0.75",
        "cudnn",
        ("libcudnn.so.9", "libcudnn_ops.so.9", "libcudnn_cnn.so.9", "libcudnn_graph.so.9"),
    ),
    "nvidia-cufft-cu12": ("11.2.3.61", "cufft", ("libcufft.so.11",)),
    "nvidia-cusolver-cu12": ("11.6.3.83", "cusolver", ("libcusolver.so.11",)),
    "nvidia-cusparse-cu12": ("12.5.1.3", "cusparse", ("libcusparse.so.12",)),
    "nvidia-nvjitlink-cu12": ("12.5.82", "nvjitlink", ("libnvJitLink.so.12",)),
}
CUDA_11 = {
    "nvidia-cublas-cu11": ("11.11.3.6", "cublas", ("libcublas.so.11", "libcublasLt.so.11")),
    "nvidia-cuda-runtime-cu11": ("11.8.89", "cuda_runtime", ("libcudart.so.11.0",)),
    "nvidia-cudnn-cu11": ("8.6.0.163", "cudnn", ("libcudnn.so.8", "libcudnn_ops_infer.so.8")),
    "nvidia-cufft-cu11": ("10.9.0.58", "cufft", ("libcufft.so.10",)),
    "nvidia-curand-cu11": ("10.3.0.86", "curand", ("libcurand.so.10",)),
    "nvidia-cusolver-cu11": ("11.4.1.48", "cusolver", ("libcusolver.so.11",)),
    "nvidia-cusparse-cu11": ("11.7.5.86", "cusparse", ("libcusparse.so.11",)),
}
"""Version, folder below nvidia/ and libraries, by project."""
COMPANIONS = {"numpy": "1.26.4", "keras": "3.12.0", "h5py": "3.14.0", "protobuf": "6.31.1"}
COMPANIONS_2_10 = {"numpy": "1.23.5", "keras": "2.10.0", "h5py": "3.8.0", "protobuf": "3.19.6"}
MODULES = ("absl-py", "wrapt", "six", "gast", "flatbuffers", "opt-einsum", "ml-dtypes", "typing-extensions")
KERAS_MODULES = ("keras.optimizers", "keras.src.optimizers", "keras.api._v2.keras", "keras._tf_keras.keras")
"""Modules of Keras that some release of TensorFlow imports."""
PACKAGES = {"protobuf": "google/protobuf", "absl-py": "absl"}
"""Folders of packages, by project, if they differ from the project's name."""

needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CC") or "cc") is None, reason="no C compiler"
)
needs_uv = pytest.mark.skipif(UV is None, reason="there is no uv")


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of a path: kind, mode, and content (SHA-256) and mtime of a file or target of a link."""

    kind: str
    mode: int
    content: str
    mtime_ns: int


def list_tree(root: Path) -> dict[str, FileState]:
    """Return the state of everything below a folder, except bytecode."""
    states = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in (*folders, *files):
            path = Path(folder, name)
            info = path.lstat()
            mode = stat.S_IMODE(info.st_mode)
            if path.is_symlink():
                state = FileState("link", 0, str(path.readlink()), 0)
            elif path.is_dir():
                state = FileState("dir", mode, "", 0)
            else:
                state = FileState(
                    "file", mode, hashlib.sha256(path.read_bytes()).hexdigest(), info.st_mtime_ns
                )
            states[str(path.relative_to(root))] = state
    return states


def difference(
    before: Mapping[str, FileState], after: Mapping[str, FileState]
) -> dict[str, tuple[FileState | None, FileState | None]]:
    """Return the differing paths with both states, for readable assertion errors."""
    paths = sorted(before.keys() | after.keys())
    return {
        path: (before.get(path), after.get(path)) for path in paths if before.get(path) != after.get(path)
    }


@dataclass(frozen=True, slots=True)
class Run:
    """Exit status and output of a run of tfdoctor."""

    status: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """Return standard output as JSON, validated against its schema."""
        answer = json.loads(self.out)
        schema = ERROR_SCHEMA if "error" in answer else SCHEMA
        jsonschema.Draft202012Validator(schema).validate(answer)
        if answer.get("check"):
            jsonschema.Draft202012Validator(CHECK_SCHEMA).validate(answer["check"])
        return dict(answer)

    @property
    def flat_output(self) -> str:
        """Standard output on one line, because line breaks depend on the lengths of paths."""
        return " ".join(self.out.split())

    def __str__(self) -> str:
        return f"status {self.status}\n{self.out}\n{self.err}"


@dataclass(slots=True)
class Fake:
    """The environment, and the shell of its owner."""

    root: Path
    work: Path
    """A folder outside the environment."""
    cache: Path
    """Folder for compiled stand-ins."""
    version: str
    variables: dict[str, str] = field(default_factory=dict)
    """Variables of the owner's shell; "" removes a variable."""
    driver: bool = True
    """Whether the machine has a driver."""

    @property
    def python(self) -> Path:
        return self.root / "bin/python"

    @property
    def site(self) -> Path:
        return next(iter(self.root.glob("lib/python*/site-packages")))

    @property
    def activate(self) -> Path:
        return self.root / "bin/activate"

    @property
    def index(self) -> Path:
        """The folder of wheels, the only package index of the installers."""
        folder = self.work / "wheels"
        folder.mkdir(exist_ok=True)
        return folder

    # --- content

    def make_files(self, name: str, version: str) -> dict[str, bytes]:
        """Return the files of a distribution: NVIDIA's libraries, or a package with its version."""
        for wheels in (CUDA_12, CUDA_11):
            if name in wheels:
                _, folder, libraries = wheels[name]
                return {
                    f"nvidia/{folder}/lib/{library}": self.make_library(library).read_bytes()
                    for library in libraries
                }
        package = PACKAGES.get(name, name.replace("-", "_"))
        return {f"{package}/__init__.py": STUB + f"__version__ = {version!r}\n".encode()}

    def make_library(self, soname: str, **options: Any) -> Path:
        """Return a stand-in library, compiled only once."""
        key = hashlib.sha256(repr((soname, sorted(options.items()))).encode()).hexdigest()[:12]
        path = self.cache / "libraries" / key / soname
        if not path.exists():
            standins.write_library(path, self.cache, **options)
        return path

    def install(
        self, name: str, version: str, files: Mapping[str, bytes] | None = None, more: str = ""
    ) -> None:
        """Install a distribution as pip does; `more` is added to METADATA."""
        files = files if files is not None else self.make_files(name, version)
        for path, content in {**files, **_metadata_files(name, version, files, more, installer=True)}.items():
            target = self.site / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    def add_wheel(
        self, name: str, version: str, files: Mapping[str, bytes] | None = None, more: str = ""
    ) -> Path:
        """Add a wheel to the package index."""
        files = files if files is not None else self.make_files(name, version)
        path = self.index / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for inner, content in {
                **files,
                **_metadata_files(name, version, files, more, installer=False),
            }.items():
                info = zipfile.ZipInfo(inner, (2026, 1, 1, 0, 0, 0))
                info.external_attr = 0o100644 << 16
                archive.writestr(info, content)
        return path

    def remove(self, name: str) -> None:
        """Remove a distribution with all its files."""
        (info,) = self.site.glob(f"{name.replace('-', '_')}-*.dist-info")
        for line in (info / "RECORD").read_text(encoding="utf-8").splitlines():
            (self.site / line.split(",")[0]).unlink()
        info.rmdir()

    def nvidia_path(self, path: str) -> Path:
        """Return a path below nvidia/."""
        return self.site / "nvidia" / path

    def add_pip(self) -> None:
        """Install pip from the wheel bundled with Python; its bytecode is cached, because compiling takes seconds."""
        cached = self.cache / "pip"
        if not cached.exists():
            import ensurepip

            bundled = sorted(Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl"))
            if not bundled:
                pytest.skip("this Python brings no pip")
            with zipfile.ZipFile(bundled[-1]) as archive:
                archive.extractall(cached)
            compileall.compile_dir(cached, quiet=2)
        shutil.copytree(cached, self.site, dirs_exist_ok=True)

    # --- use

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables of the owner's shell; `more` adds variables."""
        keep = ("HOME", "LANG", "PATH", "PYENV_ROOT", "TMPDIR")
        env = {
            **{name: os.environ[name] for name in keep if name in os.environ},
            "COLUMNS": "100",
            "LD_LIBRARY_PATH": str(driver_folder(self.cache)) if self.driver else "",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_FIND_LINKS": str(self.index),
            "PIP_NO_INDEX": "1",
            "PIP_NO_CACHE_DIR": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "STANDIN_CC": "80",
            "STANDIN_GPUS": str(GPUS),
            "UV_CACHE_DIR": str(self.work / "uv-cache"),
            "UV_PYTHON_DOWNLOADS": "never",
        }
        if "LD_LIBRARY_PATH" in self.variables:
            env["LD_LIBRARY_PATH"] = f"{self.variables['LD_LIBRARY_PATH']}:{env['LD_LIBRARY_PATH']}".strip(
                ":"
            )
        env |= {name: text for name, text in self.variables.items() if name != "LD_LIBRARY_PATH"}
        return {name: text for name, text in (env | more).items() if text}

    def command(self, *arguments: str) -> list[str]:
        """Return the command `tfdoctor …` for this environment."""
        return [sys.executable, "-m", "tfdoctor", *arguments, "--python", str(self.root)]

    def run(self, *arguments: str, **more: str) -> Run:
        """Run tfdoctor to its end in this process, which saves a second; `more` adds variables."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        before = dict(os.environ), Path.cwd(), sys.argv
        streams = sys.stdin, sys.stdout, sys.stderr
        status, variables = 0, self.environment(**more)
        try:
            os.environ.clear()
            os.environ.update(variables)
            os.chdir(self.work)
            sys.argv = ["tfdoctor", *self.command(*arguments)[3:]]
            sys.stdin, sys.stdout, sys.stderr = io.StringIO(), out, err
            try:
                run()
            except SystemExit as end:
                status = int(end.code or 0)
        finally:
            sys.stdin, sys.stdout, sys.stderr = streams
            os.environ.clear()
            os.environ.update(before[0])
            os.chdir(before[1])
            sys.argv = before[2]
        texts = []
        for stream in (out, err):
            stream.flush()
            texts.append(stream.detach().getvalue().decode())
        return Run(status, *texts)

    def fix(self, *arguments: str) -> Run:
        """Run `tfdoctor fix --yes --no-deep …`; --no-deep because this TensorFlow cannot be run."""
        return self.run("fix", "--yes", "--no-deep", *arguments)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start tfdoctor in a process group of its own and return the process."""
        return subprocess.Popen(
            self.command(*arguments),
            env=self.environment(),
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def list_codes(self) -> list[str]:
        """Return the codes that `check` reports as warnings or errors."""
        return [
            finding["code"]
            for finding in json.loads(self.run("check", "--json").out)["findings"]
            if finding["severity"] != "info"
        ]

    def list_files(self) -> dict[str, FileState]:
        return list_tree(self.root)

    def append_to_activate(self, *lines: str) -> None:
        """Append lines to bin/activate."""
        with self.activate.open("a", encoding="utf-8") as stream:
            stream.write("".join(f"{line}\n" for line in lines))

    def make_folder(self, name: str) -> Path:
        """Create and return a folder outside the environment."""
        path = self.work / name
        path.mkdir(parents=True, exist_ok=True)
        return path


def driver_folder(cache: Path) -> Path:
    """Return the folder of the stand-in driver."""
    folder = cache / "driver"
    if not (folder / standins.NVML).exists():
        standins.write_driver(folder, cache, gpus=GPUS)
    return folder


def make(
    folder: Path, cache: Path, version: str = "2.21.0", *, package: str = "tensorflow", name: str = "env"
) -> Fake:
    """Create an environment with this release and everything that it needs.

    Like the real 2.21.0, that release does not find cuSOLVER.
    """
    if _has_cached_cuda():
        pytest.skip(
            "the loader of this machine knows CUDA libraries: what is missing here would be found there"
        )
    root, work = folder / name, folder / "work"
    work.mkdir(parents=True)
    venv.create(root, with_pip=False, symlinks=True)
    env = Fake(root, work, cache, version)
    old = version.startswith("2.10")
    env.install(package, version, tensorflow_files(env, version), more=_requires(version))
    for project, (wheel, _, _) in (CUDA_11 if old else CUDA_12).items():
        env.install(project, wheel)
    for project, wheel in (COMPANIONS_2_10 if old else COMPANIONS).items():
        env.install(project, wheel)
    for project in MODULES:
        env.install(project, "1.16.0" if project == "six" else "1.0")
    add_importable_modules(env, version)
    return env


STUB = b"""\
class Anything:
    def __getattr__(self, name):
        return self
    def __call__(self, *words, **named):
        return self
anything = Anything()
__version__ = "1.0"
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return anything
"""


def add_importable_modules(env: Fake, version: str) -> None:
    """Add stub modules with every attribute for the modules that TensorFlow imports."""
    table = Compat.load().find_import_needs(version)
    assert table is not None
    for module in (*table.attributes_by_module, *KERAS_MODULES):
        folder = env.site
        for part in module.split("."):
            folder /= part
            folder.mkdir(exist_ok=True)
            if not (folder / "__init__.py").exists():
                (folder / "__init__.py").write_bytes(STUB)


@functools.cache
def _has_cached_cuda() -> bool:
    """Return whether the loader's cache has CUDA libraries."""
    ldconfig = shutil.which("ldconfig", path="/sbin:/usr/sbin") or "ldconfig"
    try:
        done = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False, timeout=20)
    except OSError:
        return False
    return any(name in done.stdout for name in ("libcufft.so", "libcusolver.so", "libcudnn.so"))


def tensorflow_files(env: Fake, version: str, *, gpu: bool = True) -> dict[str, bytes]:
    """Return the files of TensorFlow that tfdoctor reads."""
    nearest = Compat.load().find_nearest(version, "tensorflow")
    assert nearest is not None
    release = nearest.release
    folders = next((names for name, names in release.runpath.items() if "framework" in name), ())
    runpath = ":".join([*(f"$ORIGIN/../nvidia/{folder}/lib" for folder in folders), "$ORIGIN/"])
    defines = {f"TF_{name}_VERSION": text for name, text in release.defines.items()}
    numbers = version.split(".")
    header = "".join(
        f"#define TF_{part}_VERSION {number}\n"
        for part, number in zip(("MAJOR", "MINOR", "PATCH"), numbers, strict=True)
    )
    framework = env.make_library("libtensorflow_framework.so.2", runpath=runpath)
    pywrap = env.make_library(
        "_pywrap_tensorflow_internal.so",
        runpath="$ORIGIN/:$ORIGIN/..:" + runpath.replace("$ORIGIN/../", "$ORIGIN/../../"),
    )
    config = "".join(f'#define {name} "{text}"\n' for name, text in defines.items())
    info = {
        "is_cuda_build": gpu,
        "is_rocm_build": False,
        "cuda_version": release.cuda,
        "cudnn_version": release.cudnn,
    }
    files = {
        "tensorflow/__init__.py": f"__version__ = {version!r}\n".encode(),
        "tensorflow/libtensorflow_framework.so.2": framework.read_bytes(),
        "tensorflow/python/__init__.py": b"",
        "tensorflow/python/_pywrap_tensorflow_internal.so": pywrap.read_bytes(),
        "tensorflow/python/platform/build_info.py": (
            "import collections\nbuild_info = collections.OrderedDict("
            f"{[(key, value) for key, value in info.items() if gpu or not key.startswith('cud')]!r})\n"
        ).encode(),
        "tensorflow/include/tensorflow/core/public/release_version.h": header.encode(),
    }
    if gpu:
        files["tensorflow/include/third_party/gpus/cuda/cuda_config.h"] = config.encode()
    return files


def _requires(version: str) -> str:
    """Return the Requires-Dist lines of the release."""
    nearest = Compat.load().find_nearest(version, "tensorflow")
    assert nearest is not None
    return "".join(f"Requires-Dist: {requirement}\n" for requirement in nearest.release.requirements)


def _metadata_files(
    name: str, version: str, files: Mapping[str, bytes], more: str, *, installer: bool
) -> dict[str, bytes]:
    """Return the files in the distribution's .dist-info folder."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    inside = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if installer:
        inside[f"{info}/INSTALLER"] = b"pip\n"
    lines = [
        f"{path},sha256={_digest(content)},{len(content)}" for path, content in {**files, **inside}.items()
    ]
    return {
        **inside,
        f"{info}/RECORD": "".join(f"{line}\n" for line in (*lines, f"{info}/RECORD,,")).encode(),
    }


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def send_signal(process: subprocess.Popen[str], number: int) -> None:
    """Send a signal to one process only."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)
