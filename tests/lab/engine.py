"""A container engine for the lab: a private dockerd with stand-in GPUs, and base images to build on.

It runs beside any other engine without touching it. It has its own data, sockets, namespace and bridge, and sets no
firewall rule, so that a build reaches the network only with `--network host`. Requires root.

    PYTHONPATH=tests python -m lab.engine [bookworm] [bullseye]    # one to try things with; ends with Ctrl-C
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from lab import standins

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROGRAMS = {"dockerd": "docker.io", "iptables": "iptables", "ip": "iproute2", "debootstrap": "debootstrap"}
"""The Debian package of each required program."""
HOOK = "nvidia-container-runtime-hook"
GPU_COUNTS = (0, 1, 2, 4)
"""Numbers of GPUs for which there are stand-ins."""
PREFIX = "tfdoctor-standin"
START_TIMEOUT_S = 60
"""Seconds within which dockerd must answer."""
BASES: dict[str, str] = {
    "bookworm": "python3,python3-venv,python3-pip",
    "bullseye": "python3,python3-venv,python3-pip,python2.7,libgomp1",
}
"""Packages beyond the minimal system, by Debian release."""
UNNEEDED_FOLDERS = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "var/log",
)
"""Folders that a base image does not need."""


class Unavailable(Exception):  # noqa: N818 - it is not an error
    """No engine can run here; the message says why."""


@dataclass
class LabEngine:
    """A private dockerd; see `run_engine()`."""

    folder: Path
    cache: Path
    options: tuple[str, ...] = ()
    bridge: str = ""
    process: subprocess.Popen[bytes] | None = None
    bases: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The value for DOCKER_HOST."""
        return f"unix://{self.folder}/docker.sock"

    def set_gpu_count(self, count: int) -> None:
        """Set the number of GPUs for containers that start from now on."""
        assert count in GPU_COUNTS
        (self.folder / "standin" / "gpus").write_text(str(count), encoding="ascii")

    def start(self, *, hook: bool = True) -> None:
        """Start dockerd; without the hook it cannot provide GPUs.

        Raise Unavailable with the end of its log if it does not start.
        """
        assert self.process is None
        private = self.folder / "bin"
        path = [str(private)] if hook else []
        path += ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        log = self.folder / "dockerd.log"
        command = [
            shutil.which("dockerd") or "/usr/sbin/dockerd",
            *("--config-file", str(self.folder / "daemon.json")),
            *("--data-root", str(self.folder / "data")),
            *("--exec-root", str(self.folder / "run")),
            *("--pidfile", str(self.folder / "dockerd.pid")),
            *("--host", self.url),
            *("--containerd-namespace", f"lab-{os.getpid()}"),
            *("--containerd-plugins-namespace", f"lab-plugins-{os.getpid()}"),
            *("--bridge", self.bridge, "--iptables=false", "--ip6tables=false", "--ip-forward=false"),
            *self.options,
        ]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={
                    **os.environ,
                    "PATH": ":".join(path),
                    "TFDOCTOR_STANDIN": str(self.folder / "standin"),
                },
                start_new_session=True,  # so that a Ctrl-C for the tests does not stop it
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                log_end = log.read_text(encoding="utf-8", errors="replace")[-1500:]
                message = f"dockerd does not start here: {log_end}"
                raise Unavailable(message)
            time.sleep(0.2)

    def _is_ready(self) -> bool:
        completed = self.docker("version", check=False)
        return completed.returncode == 0

    def docker(
        self, *arguments: str, check: bool = True, stdin: IO[bytes] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run Docker's own client with this engine."""
        return subprocess.run(
            [_find_tool("docker"), "--host", self.url, *arguments],
            stdin=stdin or subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=check,
            timeout=900,
        )

    def stop(self) -> None:
        """Stop dockerd and its containers."""
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)

    def make_base_image(self, release: str) -> str:
        """Return the name of a Debian image with its Pythons.

        It is created once and kept as a tar in the cache.
        """
        if release not in self.bases:
            path = make_debian_tar(release, self.cache)
            name = _make_image_name(path)
            if self.docker("image", "inspect", name, check=False).returncode:
                with path.open("rb") as archive:
                    self.docker("import", "-", name, stdin=archive)
            self.bases[release] = name
        return self.bases[release]


def cache_folder() -> Path:
    """Return the folder for base images: TFDOCTOR_LAB_CACHE, or one in the user's cache."""
    setting = os.environ.get("TFDOCTOR_LAB_CACHE")
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(setting) if setting else caches / "tfdoctor-lab"


@contextlib.contextmanager
def run_engine(
    *,
    cache: Path,
    folder: Path | None = None,
    hook: bool = True,
    options: Sequence[str] = ("--max-download-attempts", "1"),
    data: Path | None = None,
) -> Iterator[LabEngine]:
    """Run a private engine while the block runs. Raise Unavailable if that is not possible.

    cache: for compiled stand-ins and base images. data: where images are stored; None for the engine's
    folder.
    """
    install_programs(("dockerd", "iptables", "ip"))
    with tempfile.TemporaryDirectory(
        prefix="tfdoctor-engine-", dir=folder, ignore_cleanup_errors=True
    ) as temporary:
        lab = LabEngine(Path(temporary), cache, tuple(options))
        _prepare_folder(lab, data)
        try:
            lab.bridge = _create_bridge()
            lab.start(hook=hook)
            yield lab
        finally:
            lab.stop()
            subprocess.run([_find_tool("ip"), "link", "delete", lab.bridge], check=False, capture_output=True)
            _kill_leftover_processes(lab.folder)
            _unmount(lab.folder)


def install_programs(programs: Sequence[str]) -> None:
    """Install missing programs with apt. Raise Unavailable if that is not possible."""
    if os.uname().machine != "x86_64" or sys.platform != "linux":
        raise Unavailable("the lab's engine is for Linux on x86-64")
    if os.geteuid() != 0:
        raise Unavailable("an engine of one's own needs root")
    missing = [PROGRAMS[name] for name in programs if shutil.which(name) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        message = f"{', '.join(missing)}: not installed, and there is no apt-get"
        raise Unavailable(message)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
        done = subprocess.run(
            [_find_tool("apt-get"), *arguments], env=env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            message = f"apt-get {arguments[0]}: {done.stderr[-500:]}"
            raise Unavailable(message)


def _prepare_folder(lab: LabEngine, data: Path | None) -> None:
    """Write the hook, the stand-ins and an empty configuration."""
    (lab.folder / "bin").mkdir()
    hook = lab.folder / "bin" / HOOK
    text = (Path(__file__).parent / "standin" / "hook.py").read_text(encoding="utf-8")
    hook.write_text(f"#!{sys.executable} -I\n{text}", encoding="utf-8")
    hook.chmod(0o755)
    (lab.folder / "daemon.json").write_text("{}", encoding="ascii")
    for count in GPU_COUNTS:
        standins.write_driver(lab.folder / "standin" / str(count), lab.cache / "compiled", gpus=count)
    lab.set_gpu_count(1)
    if data is not None:
        (lab.folder / "data").symlink_to(data)


def _create_bridge() -> str:
    """Create a bridge without a route and return its name.

    `--bridge none` would remove the docker0 of another engine.
    """
    tool = _find_tool("ip")
    for number in range(255):
        name, address = f"tfd{os.getpid()}n{number}"[-15:], f"198.18.{number}.1/24"
        used = subprocess.run([tool, "-4", "addr"], capture_output=True, text=True, check=True).stdout
        if address in used:
            continue
        added = subprocess.run(
            [tool, "link", "add", name, "type", "bridge"], capture_output=True, text=True, check=False
        )
        if added.returncode:
            message = f"no bridge can be made here: {added.stderr}"
            raise Unavailable(message)
        subprocess.run([tool, "addr", "add", address, "dev", name], check=True)
        subprocess.run([tool, "link", "set", name, "up"], check=True)
        return name
    raise Unavailable("all bridges are taken")


def _kill_leftover_processes(folder: Path) -> None:
    """Kill the container shims that a killed dockerd left running, and their containers."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(folder).encode() not in (entry / "cmdline").read_bytes():
                continue
            children = (entry / "task" / entry.name / "children").read_text(encoding="ascii").split()
            for process in (entry.name, *children):
                if int(process) != os.getpid():
                    os.kill(int(process), signal.SIGKILL)


def _unmount(folder: Path) -> None:
    """Unmount what a killed dockerd left mounted."""
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    for line in reversed(mounts):
        mount_point = line.split()[1]
        if mount_point.startswith(f"{folder}/"):
            subprocess.run([_find_tool("umount"), "--lazy", mount_point], check=False, capture_output=True)


# ---------------------------------------------------------------- base images


def make_debian_tar(release: str, cache: Path) -> Path:
    """Return a tar of a small Debian with the Pythons of BASES; create it once. Raise Unavailable."""
    recipe = "".join(
        (BASES[release], *UNNEEDED_FOLDERS, *map(inspect.getsource, (make_debian_tar, _install_python2_pip)))
    )
    archive = cache / f"debian-{release}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}.tar"
    if archive.exists():
        return archive
    install_programs(("debootstrap",))
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as work:
        root = Path(work) / "root"
        include = f"--include={BASES[release]},ca-certificates"
        try:
            _run("debootstrap", "--variant=minbase", include, release, str(root))
        finally:
            _unmount(root)  # debootstrap leaves /proc mounted if it was stopped
        if "python2.7" in BASES[release]:
            _install_python2_pip(root)
        for unneeded in UNNEEDED_FOLDERS:
            shutil.rmtree(root / unneeded, ignore_errors=True)
            (root / unneeded).mkdir(parents=True, exist_ok=True)
        for bytecode in (root / "usr").rglob("__pycache__"):
            shutil.rmtree(bytecode)
        part = Path(work) / "part.tar"
        _run("tar", "--numeric-owner", "-C", str(root), "-cf", str(part), ".")
        part.replace(archive)
    return archive


def _make_image_name(archive: Path) -> str:
    """Return the image name for a tar of `make_debian_tar`; other content gets another name."""
    return f"{PREFIX}/debian:{archive.stem.removeprefix('debian-')}"


def _install_python2_pip(root: Path) -> None:
    """Install pip for Debian's Python 2.7.

    Debian has no such package any more, but the wheels for its virtual environments include pip.
    """
    wheels = "/usr/share/python-wheels"
    pip = next((root / wheels.lstrip("/")).glob("pip-*-py2.py3-*.whl")).name
    install = (
        f"python2.7 -m pip install -q --no-index --find-links {wheels} pip pkg_resources setuptools wheel"
    )
    script = f"export PYTHONPATH={wheels}/{pip}; {install} && ln -sf python2.7 /usr/bin/python2"
    _run("chroot", str(root), "sh", "-c", script)


def _find_tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        message = f"{name} is not installed"
        raise Unavailable(message)
    return path


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode:
        message = f"{' '.join(command[:2])}: {done.stdout[-800:]}{done.stderr[-800:]}"
        raise Unavailable(message)


# ---------------------------------------------------------------- Podman

CDI_SPEC = Path("/etc/cdi/tfdoctor-standin.json")
CONTAINERS = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
cgroups = "enabled"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


@dataclass
class LabPodman:
    """A private Podman; see `run_podman()`."""

    folder: Path
    cache: Path

    @property
    def url(self) -> str:
        """The value for DOCKER_HOST."""
        return f"unix://{self.folder}/podman.sock"

    @property
    def environment(self) -> dict[str, str]:
        """Variables of all its processes. Temporary files are in its folder, so that they are removed."""
        return {
            **os.environ,
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "TMPDIR": str(self.folder / "tmp"),
        }

    def command(self, *arguments: str) -> list[str]:
        folders = ("--root", str(self.folder / "data"), "--runroot", str(self.folder / "run"))
        return [_find_tool("podman"), *folders, "--storage-driver", "overlay", *arguments]

    def podman(
        self, *arguments: str, check: bool = True, stdin: IO[bytes] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run Podman's own client with the images of this instance."""
        return subprocess.run(
            self.command(*arguments),
            stdin=stdin or subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=check,
            timeout=900,
            env=self.environment,
        )

    def base(self, release: str) -> str:
        """Return the name of a Debian image; see `LabEngine.base`."""
        path = make_debian_tar(release, self.cache)
        name = f"localhost/{_make_image_name(path)}"
        if self.podman("image", "exists", name, check=False).returncode:
            self.podman("import", str(path), name)
        return name


@contextlib.contextmanager
def run_podman(*, cache: Path, gpus: int) -> Iterator[LabPodman]:
    """Run a private Podman that provides stand-in GPUs through CDI. Raise Unavailable."""
    if shutil.which("podman") is None or shutil.which("runc") is None:
        raise Unavailable("podman and runc are not installed")
    if os.geteuid() != 0:
        raise Unavailable("the lab's Podman needs root")
    if CDI_SPEC.parent.is_dir() and any(CDI_SPEC.parent.iterdir()):
        message = f"{CDI_SPEC.parent} has specifications of its own"
        raise Unavailable(message)
    with tempfile.TemporaryDirectory(prefix="tfdoctor-podman-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        lab = LabPodman(folder, cache)
        (folder / "tmp").mkdir()
        libraries = standins.write_driver(folder / "standin", cache / "compiled", gpus=gpus)
        is_new = not CDI_SPEC.parent.exists()
        CDI_SPEC.parent.mkdir(exist_ok=True)
        CDI_SPEC.write_text(json.dumps(_make_cdi_spec(libraries)), encoding="ascii")
        (folder / "containers.conf").write_text(CONTAINERS, encoding="ascii")
        with (
            (folder / "podman.log").open("wb") as log,
            subprocess.Popen(
                lab.command("system", "service", "--time=0", lab.url),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=lab.environment,
                start_new_session=True,
            ) as process,
        ):
            try:
                deadline = time.monotonic() + START_TIMEOUT_S
                while not (folder / "podman.sock").exists():
                    if process.poll() is not None or time.monotonic() > deadline:
                        log_text = (folder / "podman.log").read_text(encoding="utf-8", errors="replace")
                        message = f"podman does not start here: {log_text[-1000:]}"
                        raise Unavailable(message)
                    time.sleep(0.1)
                yield lab
            finally:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()
                _unmount(folder)
                CDI_SPEC.unlink(missing_ok=True)
                if is_new:
                    CDI_SPEC.parent.rmdir()


def _make_cdi_spec(libraries: Path) -> dict[str, object]:
    """Return the CDI specification of the device "all", which mounts the libraries into the container."""
    inside = Path("/usr/lib/x86_64-linux-gnu")
    mounts = [
        {"hostPath": str(path), "containerPath": str(inside / path.name), "options": ["ro", "bind"]}
        for path in sorted(libraries.iterdir())
    ]
    return {
        "cdiVersion": "0.3.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "all", "containerEdits": {"mounts": mounts}}],
    }


def main(releases: Sequence[str]) -> None:
    with run_engine(cache=cache_folder()) as lab:
        for release in releases:
            sys.stdout.write(f"{lab.make_base_image(release)}\n")
        sys.stdout.write(f"export DOCKER_HOST={lab.url}\nGPUs: {lab.folder}/standin/gpus\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
    ):  # the background jobs of a shell ignore SIGINT
        signal.signal(number, signal.default_int_handler)
    main(sys.argv[1:])
