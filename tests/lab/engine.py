"""A container engine of the lab's own: a private dockerd with stand-in GPUs, and base images to build on.

It stands beside any engine that already runs and touches nothing of it: its own data, sockets, namespace and bridge,
and no firewall rule, so that a build reaches the network with `--network host` alone. Needs root.

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
"""What is needed → Debian's package of it."""
HOOK = "nvidia-container-runtime-hook"
COUNTS = (0, 1, 2, 4)
"""Numbers of GPUs that there are stand-ins for."""
PREFIX = "tfdoctor-standin"
STARTING = 60
"""Seconds that dockerd may take to answer."""
BASES: dict[str, str] = {
    "bookworm": "python3,python3-venv,python3-pip",
    "bullseye": "python3,python3-venv,python3-pip,python2.7,libgomp1",
}
"""Debian's release → packages beyond the smallest system."""
SPARE = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "var/log",
)
"""What a base does without."""


class Unavailable(Exception):  # noqa: N818 - it is not an error
    """There can be no engine here; why."""


@dataclass
class LabEngine:
    """A private dockerd; see `engine()`."""

    folder: Path
    cache: Path
    options: tuple[str, ...] = ()
    bridge: str = ""
    process: subprocess.Popen[bytes] | None = None
    bases: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """For DOCKER_HOST."""
        return f"unix://{self.folder}/docker.sock"

    def gpus(self, count: int) -> None:
        """How many the containers that start from now on are given."""
        assert count in COUNTS
        (self.folder / "standin" / "gpus").write_text(str(count), encoding="ascii")

    def start(self, *, hook: bool = True) -> None:
        """Start dockerd; without the hook it cannot give GPUs. Raises Unavailable with the end of its log."""
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
                start_new_session=True,  # a Ctrl-C at the tests is not for it
            )
        deadline = time.monotonic() + STARTING
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                said = log.read_text(encoding="utf-8", errors="replace")[-1500:]
                message = f"dockerd does not start here: {said}"
                raise Unavailable(message)
            time.sleep(0.2)

    def _answers(self) -> bool:
        asked = self.docker("version", check=False)
        return asked.returncode == 0

    def docker(
        self, *words: str, check: bool = True, stdin: IO[bytes] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Docker's own client, at this engine."""
        return subprocess.run(
            [_tool("docker"), "--host", self.url, *words],
            stdin=stdin or subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=check,
            timeout=900,
        )

    def stop(self) -> None:
        """End dockerd, and with it its containers."""
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)

    def base(self, release: str) -> str:
        """The name of an image of Debian with its Pythons; made once, kept as a tar in the cache."""
        if release not in self.bases:
            path = debian(release, self.cache)
            name = _name_of(path)
            if self.docker("image", "inspect", name, check=False).returncode:
                with path.open("rb") as archive:
                    self.docker("import", "-", name, stdin=archive)
            self.bases[release] = name
        return self.bases[release]


def cache_folder() -> Path:
    """Where base images are kept between runs: TFDOCTOR_LAB_CACHE, or the user's cache."""
    asked = os.environ.get("TFDOCTOR_LAB_CACHE")
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(asked) if asked else caches / "tfdoctor-lab"


@contextlib.contextmanager
def engine(
    *,
    cache: Path,
    folder: Path | None = None,
    hook: bool = True,
    options: Sequence[str] = ("--max-download-attempts", "1"),
    data: Path | None = None,
) -> Iterator[LabEngine]:
    """A private engine for as long as this lasts. Raises Unavailable where there can be none.

    `cache`: for what is compiled, and for base images; `data`: where its images go, where not in its own folder.
    """
    ensure(("dockerd", "iptables", "ip"))
    with tempfile.TemporaryDirectory(
        prefix="tfdoctor-engine-", dir=folder, ignore_cleanup_errors=True
    ) as place:
        one = LabEngine(Path(place), cache, tuple(options))
        _furnish(one, data)
        try:
            one.bridge = _bridge()
            one.start(hook=hook)
            yield one
        finally:
            one.stop()
            subprocess.run([_tool("ip"), "link", "delete", one.bridge], check=False, capture_output=True)
            _reap(one.folder)
            _unmount(one.folder)


def ensure(programs: Sequence[str]) -> None:
    """Install what is missing by apt. Raises Unavailable where that cannot be done."""
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
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
        done = subprocess.run(
            [_tool("apt-get"), *words], env=quiet, capture_output=True, text=True, check=False
        )
        if done.returncode:
            message = f"apt-get {words[0]}: {done.stderr[-500:]}"
            raise Unavailable(message)


def _furnish(one: LabEngine, data: Path | None) -> None:
    """The hook, the stand-ins, an empty configuration."""
    (one.folder / "bin").mkdir()
    hook = one.folder / "bin" / HOOK
    text = (Path(__file__).parent / "standin" / "hook.py").read_text(encoding="utf-8")
    hook.write_text(f"#!{sys.executable} -I\n{text}", encoding="utf-8")
    hook.chmod(0o755)
    (one.folder / "daemon.json").write_text("{}", encoding="ascii")
    for count in COUNTS:
        standins.driver(one.folder / "standin" / str(count), one.cache / "compiled", gpus=count)
    one.gpus(1)
    if data is not None:
        (one.folder / "data").symlink_to(data)


def _bridge() -> str:
    """A bridge of its own, which leads nowhere: `--bridge none` would take away the docker0 of another engine."""
    tool = _tool("ip")
    for number in range(255):
        name, address = f"tfd{os.getpid()}n{number}"[-15:], f"198.18.{number}.1/24"
        used = subprocess.run([tool, "-4", "addr"], capture_output=True, text=True, check=True).stdout
        if address in used:
            continue
        made = subprocess.run(
            [tool, "link", "add", name, "type", "bridge"], capture_output=True, text=True, check=False
        )
        if made.returncode:
            message = f"no bridge can be made here: {made.stderr}"
            raise Unavailable(message)
        subprocess.run([tool, "addr", "add", address, "dev", name], check=True)
        subprocess.run([tool, "link", "set", name, "up"], check=True)
        return name
    raise Unavailable("all bridges are taken")


def _reap(folder: Path) -> None:
    """End what a dockerd that was killed left running: the keepers of its containers, and these."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(folder).encode() not in (entry / "cmdline").read_bytes():
                continue
            children = (entry / "task" / entry.name / "children").read_text(encoding="ascii").split()
            for process in (entry.name, *children):
                if int(process) != os.getpid():
                    os.kill(int(process), signal.SIGKILL)


def _unmount(folder: Path) -> None:
    """What a dockerd that was killed left mounted."""
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    for line in reversed(mounts):
        place = line.split()[1]
        if place.startswith(f"{folder}/"):
            subprocess.run([_tool("umount"), "--lazy", place], check=False, capture_output=True)


# ---------------------------------------------------------------- base images


def debian(release: str, cache: Path) -> Path:
    """A tar of a small Debian with the Pythons of BASES; made once. Raises Unavailable."""
    recipe = "".join((BASES[release], *SPARE, *map(inspect.getsource, (debian, _pip_of_python2))))
    archive = cache / f"debian-{release}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}.tar"
    if archive.exists():
        return archive
    ensure(("debootstrap",))
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as work:
        root = Path(work) / "root"
        wanted = f"--include={BASES[release]},ca-certificates"
        try:
            _run("debootstrap", "--variant=minbase", wanted, release, str(root))
        finally:
            _unmount(root)  # its /proc, where it was stopped
        if "python2.7" in BASES[release]:
            _pip_of_python2(root)
        for spare in SPARE:
            shutil.rmtree(root / spare, ignore_errors=True)
            (root / spare).mkdir(parents=True, exist_ok=True)
        for cached in (root / "usr").rglob("__pycache__"):
            shutil.rmtree(cached)
        part = Path(work) / "part.tar"
        _run("tar", "--numeric-owner", "-C", str(root), "-cf", str(part), ".")
        part.replace(archive)
    return archive


def _name_of(archive: Path) -> str:
    """Of the image of a tar of `debian`: another content is another image."""
    return f"{PREFIX}/debian:{archive.stem.removeprefix('debian-')}"


def _pip_of_python2(root: Path) -> None:
    """Debian has no pip for its Python 2.7 any more; the wheels that its virtual environments are made of do."""
    wheels = "/usr/share/python-wheels"
    pip = next((root / wheels.lstrip("/")).glob("pip-*-py2.py3-*.whl")).name
    install = (
        f"python2.7 -m pip install -q --no-index --find-links {wheels} pip pkg_resources setuptools wheel"
    )
    script = f"export PYTHONPATH={wheels}/{pip}; {install} && ln -sf python2.7 /usr/bin/python2"
    _run("chroot", str(root), "sh", "-c", script)


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        message = f"{name} is not installed"
        raise Unavailable(message)
    return found


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
    """A private Podman; see `podman()`."""

    folder: Path
    cache: Path

    @property
    def url(self) -> str:
        """For DOCKER_HOST."""
        return f"unix://{self.folder}/podman.sock"

    @property
    def environment(self) -> dict[str, str]:
        """Of all its processes. What they unpack goes with the folder, whatever ends them."""
        return {
            **os.environ,
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "TMPDIR": str(self.folder / "tmp"),
        }

    def command(self, *words: str) -> list[str]:
        places = ("--root", str(self.folder / "data"), "--runroot", str(self.folder / "run"))
        return [_tool("podman"), *places, "--storage-driver", "overlay", *words]

    def podman(
        self, *words: str, check: bool = True, stdin: IO[bytes] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Podman's own client, at this one's images."""
        return subprocess.run(
            self.command(*words),
            stdin=stdin or subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=check,
            timeout=900,
            env=self.environment,
        )

    def base(self, release: str) -> str:
        """As `LabEngine.base`."""
        path = debian(release, self.cache)
        name = f"localhost/{_name_of(path)}"
        if self.podman("image", "exists", name, check=False).returncode:
            self.podman("import", str(path), name)
        return name


@contextlib.contextmanager
def podman(*, cache: Path, gpus: int) -> Iterator[LabPodman]:
    """A private Podman that gives stand-in GPUs through CDI. Raises Unavailable."""
    if shutil.which("podman") is None or shutil.which("runc") is None:
        raise Unavailable("podman and runc are not installed")
    if os.geteuid() != 0:
        raise Unavailable("the lab's Podman needs root")
    if CDI_SPEC.parent.is_dir() and any(CDI_SPEC.parent.iterdir()):
        message = f"{CDI_SPEC.parent} has specifications of its own"
        raise Unavailable(message)
    with tempfile.TemporaryDirectory(prefix="tfdoctor-podman-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        one = LabPodman(folder, cache)
        (folder / "tmp").mkdir()
        libraries = standins.driver(folder / "standin", cache / "compiled", gpus=gpus)
        own = not CDI_SPEC.parent.exists()
        CDI_SPEC.parent.mkdir(exist_ok=True)
        CDI_SPEC.write_text(json.dumps(_cdi(libraries)), encoding="ascii")
        (folder / "containers.conf").write_text(CONTAINERS, encoding="ascii")
        with (
            (folder / "podman.log").open("wb") as log,
            subprocess.Popen(
                one.command("system", "service", "--time=0", one.url),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=one.environment,
                start_new_session=True,
            ) as process,
        ):
            try:
                deadline = time.monotonic() + STARTING
                while not (folder / "podman.sock").exists():
                    if process.poll() is not None or time.monotonic() > deadline:
                        said = (folder / "podman.log").read_text(encoding="utf-8", errors="replace")
                        message = f"podman does not start here: {said[-1000:]}"
                        raise Unavailable(message)
                    time.sleep(0.1)
                yield one
            finally:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()
                _unmount(folder)
                CDI_SPEC.unlink(missing_ok=True)
                if own:
                    CDI_SPEC.parent.rmdir()


def _cdi(libraries: Path) -> dict[str, object]:
    """One device, "all": the libraries bound into the container, and its loader's cache made anew."""
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
    with engine(cache=cache_folder()) as one:
        for release in releases:
            sys.stdout.write(f"{one.base(release)}\n")
        sys.stdout.write(f"export DOCKER_HOST={one.url}\nGPUs: {one.folder}/standin/gpus\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
    ):  # a shell has its background jobs ignore SIGINT
        signal.signal(number, signal.default_int_handler)
    main(sys.argv[1:])
