"""Connect to a container engine, or raise an error that explains why none is reachable."""

from __future__ import annotations

import errno
import getpass
import os
import re
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound
from docker.tls import TLSConfig
from requests.exceptions import RequestException

from tfdoctor.core.errors import Error, UsageError
from tfdoctor.core.text import clean_line
from tfdoctor.remedies.pip import quote
from tfdoctor.system import LiveSystem
from tfdoctor.system.contexts import find_endpoint, get_docker_settings_folder, hash_context_name

if TYPE_CHECKING:
    from docker import DockerClient
    from requests import PreparedRequest, Response

    from tfdoctor.system import System

__all__ = ["ContainerEngine", "EngineError", "Image", "connect", "make_engine_error"]

CONNECT_TIMEOUT_S = 20
"""Seconds to wait for the first response."""
RESPONSE_TIMEOUT_S = 180
"""Seconds to wait for later responses. An engine that writes gigabytes is slow to respond."""
MAX_RESPONSE_BYTES = 64 << 20
"""The largest answer that is read. What answers at an address may be no engine."""
DOCKER_SOCKET = "/var/run/docker.sock"
SCHEMES = ("unix://", "tcp://", "http://", "https://", "npipe://", "ssh://")
FIRST_CDI_API = (1, 44)
"""The first Docker API version that accepts CDI devices (engine 25)."""
_DESKTOP_SOCKET = re.compile(r".*/\.docker/(?:desktop|run)/docker\.sock")
"""The path of Docker Desktop's socket."""
_USER_RUNTIME_FOLDER = re.compile(r"/run/user/\d{1,10}/")
"""The beginning of a path in a user's runtime folder."""
_SSH_HOST = re.compile(r"(?P<host>.*?)(?::(?P<port>\d{1,5}))?")
"""The host in an ssh:// address: HOST or HOST:PORT."""


class EngineError(Error):
    """The engine cannot be reached, or it refuses a request. The message is for the user."""

    kind = "engine"


@dataclass(frozen=True, slots=True)
class Image:
    """An image in the engine's local store."""

    id: str
    tags: tuple[str, ...]
    """Its names, such as `python:3.12`."""
    size_bytes: int
    """The total size of all layers in bytes."""
    digests: tuple[str, ...]
    """Digests in registries, such as `python@sha256:…`."""
    environment: dict[str, str]
    """Its environment variables, by name."""
    labels: dict[str, str]
    os: str
    architecture: str
    user: str
    entrypoint: tuple[str, ...] = ()
    """The words of its ENTRYPOINT."""
    layers: tuple[str, ...] = ()
    """Digests of the layers, from the base up."""


@dataclass(frozen=True, slots=True)
class ContainerEngine:
    """A reachable container engine."""

    client: DockerClient = field(repr=False)
    url: str
    name: str
    """`docker` or `podman`."""
    version: str
    api_version: tuple[int, int]
    """The newest version of Docker's API that the engine supports, as (major, minor)."""
    runtimes: tuple[str, ...]
    """Names of the OCI runtimes, such as `nvidia`."""
    default_runtime: str
    is_rootless: bool
    """Whether the engine runs without root."""
    supports_cdi: bool
    architecture: str = ""
    """The architecture of its machine as images name it, such as `amd64`; empty if unknown."""
    """Whether the engine accepts CDI devices, as far as it reports that."""

    def find_image(self, reference: str) -> Image | None:
        """Return the local image with this name, or None. Raise EngineError if the engine fails."""
        try:
            response = self.client.api.inspect_image(reference)  # type: ignore[no-untyped-call]
        except ImageNotFound:
            return None
        except (APIError, RequestException, DockerException) as error:
            raise make_engine_error(error, f"looking for the image {reference}") from error
        return _parse_image(response)

    def remove_image(self, reference: str, *, force: bool = False) -> bool:
        """Remove an image, and return whether it existed. Raise EngineError if the engine refuses."""
        try:
            self.client.api.remove_image(reference, force=force)
        except ImageNotFound:
            return False
        except (APIError, RequestException) as error:
            raise make_engine_error(error, f"removing the image {reference}") from error
        return True


def connect(url: str | None = None) -> ContainerEngine:
    """Connect to an engine.

    The address is `url`, or else DOCKER_HOST, or else that of the current Docker context. If none is set, the default
    sockets of Docker and Podman are tried in order. Raise UsageError if the address is invalid, and EngineError if no
    engine responds. The error says what is wrong and how to fix it.
    """
    system = LiveSystem()
    address, context = (url, None) if url is not None else find_endpoint(system)
    if context is not None:
        return _connect_context(system, context, address)
    requested = url or system.env.get("DOCKER_HOST") or None
    if requested is not None and not requested.startswith(SCHEMES):
        msg = f"`{clean_line(requested)}` is not the address of an engine."
        raise UsageError(msg, hint="It looks like unix:///var/run/docker.sock or tcp://HOST:PORT.")
    if requested is not None:
        return _open_client(requested, _load_tls_from_env(system) if requested.startswith("tcp://") else None)
    failures: list[EngineError] = []
    for address in _list_default_addresses():
        try:
            return _open_client(address)
        except EngineError as error:
            failures.append(error)
    raise _choose_failure(failures)


def _connect_context(system: System, context: str, address: str) -> ContainerEngine:
    """Connect to the engine of the Docker context that `docker context use` or DOCKER_CONTEXT selected.

    The TLS keys are loaded from the folder in which Docker's own client stores them. Raise EngineError if the context
    is invalid or its engine does not respond.
    """
    name = clean_line(context, limit=100)
    if not address.startswith(SCHEMES):
        failure = EngineError(
            f"Docker's context {name} is not there, or names no engine.",
            hint="docker context ls   shows which there are; docker context use default   chooses the usual one.",
        )
        failure.kind = "engine-context"
        raise failure
    key_folder = (
        Path(get_docker_settings_folder(system)) / "contexts" / "tls" / hash_context_name(context) / "docker"
    )
    try:
        return _open_client(address, _load_tls(key_folder) if key_folder.is_dir() else None)
    except EngineError as error:
        error.message = f"{error.message} (Docker's context {name})"
        raise


def _load_tls_from_env(system: System) -> TLSConfig | None:
    """Return the TLS settings from DOCKER_TLS_VERIFY and DOCKER_CERT_PATH, as Docker's client reads them.

    Return None if neither is set. Raise EngineError if the keys are unusable.
    """
    verify, key_folder = system.env.get("DOCKER_TLS_VERIFY"), system.env.get("DOCKER_CERT_PATH")
    if not verify and not key_folder:
        return None
    return _load_tls(Path(key_folder or f"{system.env.get('HOME', '')}/.docker"), verify=bool(verify))


def _load_tls(key_folder: Path, *, verify: bool = True) -> TLSConfig:
    """Return the TLS settings for a folder with keys. Raise EngineError if the keys are unusable."""
    client_pair = (str(key_folder / "cert.pem"), str(key_folder / "key.pem"))
    authority = key_folder / "ca.pem"
    try:
        return TLSConfig(
            client_cert=client_pair if Path(client_pair[0]).is_file() else None,
            ca_cert=str(authority) if authority.is_file() else None,
            verify=verify,
        )
    except DockerException as error:
        msg = f"the keys in {clean_line(str(key_folder))} cannot be used: {clean_line(str(error), limit=200)}"
        raise EngineError(msg) from error


def _list_default_addresses() -> list[str]:
    """Return the addresses of the default sockets that may exist, or of Docker's own socket if none does.

    The sockets are those of Docker, rootless Docker, Docker Desktop and Podman.
    """
    paths = [DOCKER_SOCKET]
    uid = os.getuid() if hasattr(os, "getuid") else 0
    runtime_folder = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    desktop_folder = Path.home() / ".docker"
    paths += [
        f"{runtime_folder}/docker.sock",
        *(f"{desktop_folder}/{path}/docker.sock" for path in ("run", "desktop")),
        f"{runtime_folder}/podman/podman.sock",
        "/run/podman/podman.sock",
    ]
    candidates = [path for path in paths if _may_exist(path)]
    return [f"unix://{path}" for path in (candidates or paths[:1])]


def _may_exist(path: str) -> bool:
    """Return whether a path exists, or cannot be checked for lack of permission."""
    try:
        os.stat(path)  # noqa: PTH116 - Path.exists() raises, or from Python 3.14 on hides, a PermissionError
    except PermissionError:
        return True
    except OSError:
        return False
    return True


class _LimitedApi(docker.APIClient):
    """The SDK's API whose answers have a limited size. Streams, such as logs and archives, have none."""

    def send(self, request: PreparedRequest, **options: Any) -> Response:
        if options.get("stream"):
            return super().send(request, **options)
        response = super().send(request, **{**options, "stream": True})
        content = bytearray()
        for chunk in response.iter_content(1 << 16):
            content += chunk
            if len(content) > MAX_RESPONSE_BYTES:
                response.close()
                msg = f"its answer is larger than {MAX_RESPONSE_BYTES >> 20} MiB"
                raise RequestException(msg)
        response._content = bytes(content)  # noqa: SLF001 - what requests itself sets without `stream`
        return response


class _Client(docker.DockerClient):
    """The SDK's client with a limited size of answers."""

    def __init__(self, **options: Any) -> None:
        self.api = _LimitedApi(**options)


def _choose_failure(failures: list[EngineError]) -> EngineError:
    """Return the most useful failure: a denied permission, else a missing response, else any other."""
    rank_by_kind = {"engine-permission": 0, "engine-silent": 1}
    return min(failures, key=lambda failure: rank_by_kind.get(failure.kind, 2))


def _open_client(url: str, tls: TLSConfig | None = None) -> ContainerEngine:
    """Connect to the engine at an address. Raise EngineError if it does not respond, or is not an engine."""
    if url.startswith("ssh://"):
        raise _make_ssh_error(url)
    try:
        client = _Client(base_url=url, timeout=CONNECT_TIMEOUT_S, version="auto", tls=tls or False)
    except (DockerException, RequestException, OSError, ValueError) as error:
        raise _make_unreachable_error(url, error) from error
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        # The SDK raises these errors if the JSON that it receives is not from an engine.
        raise _make_unreachable_error(
            url, ValueError("what answers there is not a container engine")
        ) from error
    try:
        engine = _describe_engine(client, url)
    except (DockerException, RequestException, OSError, ValueError) as error:
        client.close()
        raise _make_unreachable_error(url, error) from error
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        client.close()
        raise _make_unreachable_error(
            url, ValueError("what answers there is not a container engine")
        ) from error
    client.api.timeout = RESPONSE_TIMEOUT_S
    return engine


def _describe_engine(client: DockerClient, url: str) -> ContainerEngine:
    """Request the engine's version and features. Raise the errors of the SDK."""
    version: dict[str, Any] = client.version()
    info: dict[str, Any] = client.info()
    components = [str(part.get("Name", "")) for part in version.get("Components") or ()]
    is_podman = any("podman" in name.lower() for name in components)
    api = _parse_api_version(str(version.get("ApiVersion", "1.24")))
    return ContainerEngine(
        client=client,
        url=url,
        name="podman" if is_podman else "docker",
        version=clean_line(str(version.get("Version", "")), limit=80),
        api_version=api,
        runtimes=tuple(sorted(str(name) for name in info.get("Runtimes") or ())),
        default_runtime=clean_line(str(info.get("DefaultRuntime") or ""), limit=80),
        is_rootless=any("rootless" in str(option) for option in info.get("SecurityOptions") or ()),
        supports_cdi=is_podman or (api >= FIRST_CDI_API and bool(info.get("CDISpecDirs"))),
        architecture=clean_line(str(version.get("Arch") or ""), limit=40),
    )


def _parse_api_version(text: str) -> tuple[int, int]:
    """Return the major and minor number of an API version, or (1, 24) if it cannot be parsed."""
    parts = text.split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return (1, 24)


def _make_unreachable_error(url: str, error: BaseException) -> EngineError:
    """Return the error for an engine that cannot be reached, with a command that may fix it."""
    path = url.removeprefix("unix://") if url.startswith("unix://") else ""
    error_number = _find_errno(error)
    if error_number in (errno.EACCES, errno.EPERM):
        failure = EngineError(
            f"you may not use the engine's socket {path or url}.", hint=_make_group_hint(path)
        )
        failure.kind = "engine-permission"
        return failure
    if path and (error_number == errno.ENOENT or not _may_exist(path)):
        program = next((name for name in ("docker", "podman") if shutil.which(name)), None)
        if program is not None and not _make_start_hint(path):
            command = (
                "sudo systemctl start docker"
                if program == "docker"
                else "systemctl --user start podman.socket"
            )
            failure = EngineError(
                f"{program} is installed, but no container engine answers: {path} is not there.", hint=command
            )
            failure.kind = "engine-missing"
            return failure
        failure = EngineError(
            f"no container engine answers: {path} is not there.",
            hint=_make_start_hint(path)
            or "Install Docker or Podman; then: sudo systemctl start docker   (or: systemctl --user start "
            "podman.socket)",
        )
        failure.kind = "engine-missing"
        return failure
    failure = EngineError(
        f"the container engine at {path or clean_line(url, limit=200)} does not answer: "
        f"{clean_line(_describe_error(error), limit=300)}",
        hint=_make_start_hint(path)
        or "sudo systemctl start docker   (its log: sudo journalctl -u docker -n 20)"
        if path
        else "Is that its address, and does the engine there listen on it? DOCKER_HOST or Docker's context names it.",
    )
    failure.kind = "engine-silent"
    return failure


def _make_start_hint(path: str) -> str:
    """Return a hint on how to start the engine of a socket, or "" if the path does not identify it."""
    if _DESKTOP_SOCKET.fullmatch(path):
        return "Start Docker Desktop: systemctl --user start docker-desktop   (on a Mac: open -a Docker)"
    runtime_folder = os.environ.get("XDG_RUNTIME_DIR")
    is_user_service = _USER_RUNTIME_FOLDER.match(path) is not None or (
        bool(runtime_folder) and path.startswith(f"{runtime_folder}/")
    )
    if path.endswith("/podman/podman.sock"):
        return f"{'systemctl --user' if is_user_service else 'sudo systemctl'} start podman.socket"
    if is_user_service and path.endswith("/docker.sock"):
        return "A rootless Docker: systemctl --user start docker   (its own words: journalctl --user -u docker -n 20)"
    return ""


def _make_ssh_error(url: str) -> EngineError:
    """Return the error for an ssh:// address.

    Docker's own client starts a program on the other host, but tfdoctor only connects to sockets.
    """
    host = clean_line(url.removeprefix("ssh://").partition("/")[0], limit=200)
    match = _SSH_HOST.fullmatch(host)
    target = (
        f"-p {match['port']} {quote(match['host'])}" if match is not None and match["port"] else quote(host)
    )
    failure = EngineError(
        f"tfdoctor cannot reach an engine through ssh ({host}).",
        hint="Run tfdoctor there; or bring that engine's socket here: "
        f"ssh -nNT -L /tmp/engine.sock:/var/run/docker.sock {target} &   "
        "and then DOCKER_HOST=unix:///tmp/engine.sock",
    )
    failure.kind = "engine-ssh"
    return failure


def _find_errno(error: BaseException) -> int | None:
    """Return the errno of an OSError, even if requests and urllib3 wrapped it, or None if there is none."""
    visited: set[int] = set()
    candidates: list[object] = [error]
    while candidates:
        candidate = candidates.pop()
        if not isinstance(candidate, BaseException) or id(candidate) in visited:
            continue
        visited.add(id(candidate))
        if isinstance(candidate, OSError) and isinstance(candidate.errno, int):
            return candidate.errno
        candidates += [candidate.__cause__, candidate.__context__, *candidate.args]
    return None


def _describe_error(error: BaseException) -> str:
    """Return the text of the error that caused this one, or of this one if it has no cause."""
    return str(error.__context__ or error)


def _make_group_hint(path: str) -> str:
    """Return a hint on how to get access to a socket: join its group, if the group has access."""
    group = "docker"
    try:
        import grp  # not on Windows

        status = os.stat(path)  # noqa: PTH116
        group = grp.getgrgid(status.st_gid).gr_name
    except (ImportError, OSError, KeyError):
        pass
    else:
        if not status.st_mode & stat.S_IWGRP:
            return f"{path} is closed to its group: use a rootless engine, or run tfdoctor as its owner."
    return (
        f"sudo usermod -aG {group} {_get_user_name()}   then log in again (or for this shell: newgrp {group})"
    )


def _get_user_name() -> str:
    """Return the current user's name, or the text `$USER` if it is unknown."""
    try:
        import pwd  # not on Windows

        return pwd.getpwuid(os.getuid()).pw_name  # $USER may name another user after `su`
    except (ImportError, KeyError):
        pass
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "$USER"


def _parse_image(response: dict[str, Any]) -> Image:
    """Return the image in the engine's response to an inspection."""
    config = response.get("Config") or {}
    pairs = [str(variable).partition("=") for variable in config.get("Env") or ()]
    return Image(
        id=str(response.get("Id", "")),
        tags=tuple(str(tag) for tag in response.get("RepoTags") or ()),
        size_bytes=int(response.get("Size") or 0),
        digests=tuple(str(entry) for entry in response.get("RepoDigests") or ()),
        environment={name: value for name, _, value in pairs},
        labels={str(name): str(value) for name, value in (config.get("Labels") or {}).items()},
        os=str(response.get("Os", "")),
        architecture=str(response.get("Architecture", "")),
        user=str(config.get("User") or ""),
        entrypoint=tuple(str(entry) for entry in config.get("Entrypoint") or ()),
        layers=tuple(str(entry) for entry in (response.get("RootFS") or {}).get("Layers") or ()),
    )


def make_engine_error(error: BaseException, action: str) -> EngineError:
    """Convert an error of the SDK to an EngineError with the engine's cleaned text and a hint.

    `action` is a phrase for the failed action, such as "building the image".
    """
    reason = clean_line(str(getattr(error, "explanation", None) or error), limit=600)
    lower = reason.lower()
    hint = ""
    if "no space left on device" in lower:
        hint = "The engine's disk is full. To free space: docker system df; docker builder prune; docker image prune"
    elif "toomanyrequests" in lower or "rate limit" in lower:
        hint = "The registry's limit for anonymous pulls is reached: docker login, or wait, or --registry MIRROR."
    elif "unauthorized" in lower or "authentication required" in lower or "denied" in lower:
        hint = "Log in first: docker login REGISTRY"
    elif "x509" in lower or "certificate" in lower:
        hint = (
            "The engine itself must trust your network's certificate authority: /etc/docker/certs.d, or the "
            "system's store."
        )
    elif (
        "timeout" in lower or "connection refused" in lower or "no such host" in lower or "dial tcp" in lower
    ):
        hint = (
            "The engine reaches the registry through its own network and proxy: docker info | grep -i proxy"
        )
    elif any(
        text in lower
        for text in ("cannot connect", "connection aborted", "connection broken", "read timed out")
    ):
        hint = "The engine went away: sudo systemctl status docker"
    return EngineError(f"{action}: {reason}", hint=hint)
