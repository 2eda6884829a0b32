"""Asking a registry about an image before it is pulled: is it there, is a login needed, is the limit reached?

The registry's own protocol (OCI distribution: `HEAD /v2/NAME/manifests/TAG`) with an anonymous token, through the
machine's proxies. Nothing is downloaded, and no password is read or sent.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import requests

from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "LISTS",
    "SINGLE",
    "Reference",
    "RegistryAnswer",
    "Session",
    "anonymous_token",
    "apply_mirror",
    "ask_registry",
    "parse_reference",
]

TIMEOUT = (5.0, 10.0)
"""Seconds to connect, and to answer."""
HUB = "docker.io"
_HUB_HOST = "registry-1.docker.io"
LISTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
"""Media types of what lists an image for several platforms."""
SINGLE = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
"""Media types of one image's manifest."""
_CHALLENGE = re.compile(r'([a-z]{1,20})="([^"]{0,500})"')
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
MAX_TOKEN_BYTES = 200_000
"""Bytes of an answer with a token."""
State = Literal["there", "missing", "login", "limited", "unreachable", "unclear"]


@dataclass(frozen=True, slots=True)
class Reference:
    """An image's name, taken apart."""

    registry: str
    repository: str
    tag: str
    digest: str | None

    @property
    def name(self) -> str:
        where = "" if self.registry == HUB else f"{self.registry}/"
        short = self.repository.removeprefix("library/") if self.registry == HUB else self.repository
        return f"{where}{short}:{self.tag}" + (f"@{self.digest}" if self.digest else "")

    @property
    def address(self) -> str:
        """Where its registry answers for the repository, without a slash at the end."""
        host = _HUB_HOST if self.registry == HUB else self.registry
        scheme = "http" if host.partition(":")[0] in ("localhost", "127.0.0.1", "[::1]") else "https"
        return f"{scheme}://{host}/v2/{self.repository}"


@dataclass(frozen=True, slots=True)
class RegistryAnswer:
    """What the registry said."""

    reference: str
    state: State
    digest: str | None
    text: str
    """A sentence for the user; for "there" empty."""
    retry_after: int | None = None
    """Seconds, where it is "limited" and says so."""


def parse_reference(text: str) -> Reference:
    """Return `"python:3.12-slim"` → registry, repository, tag, digest, as Docker understands names."""
    rest, _, digest = text.partition("@")
    first, slash, remainder = rest.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, path = first, remainder
    else:
        registry, path = HUB, rest
    repository, colon, tag = path.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = path, "latest"
    if registry in ("index.docker.io", _HUB_HOST):
        registry = HUB
    if registry == HUB and "/" not in repository:
        repository = f"library/{repository}"
    return Reference(registry, repository, tag, digest or None)


def apply_mirror(text: str, mirror: str | None) -> str:
    """Return the name of an image on a mirror: ("python:3.12", "corp:5000/hub") →
    "corp:5000/hub/library/python:3.12".

    Names of other registries keep their host as a folder, as pull-through caches expect (nvcr.io → MIRROR/nvcr.io/…)
    only where the mirror's address ends in `/`; else they are put below it without.
    """
    if mirror is None:
        return text
    one = parse_reference(text)
    base = mirror.rstrip("/")
    folder = f"{one.registry}/" if mirror.endswith("/") and one.registry != HUB else ""
    tail = f"@{one.digest}" if one.digest else f":{one.tag}"
    return f"{base}/{folder}{one.repository}{tail}"


def ask_registry(
    text: str, *, ca_file: str | None = None, proxies: Mapping[str, str] | None = None
) -> RegistryAnswer:
    """Ask once; never raises: a registry that does not answer is an answer."""
    one = parse_reference(text)
    try:
        with Session() as session:
            if ca_file is not None:
                session.ca_file = ca_file
            if proxies:
                session.proxies.update(dict(proxies))
            return _ask(session, one, text)
    except (requests.RequestException, OSError, ValueError) as error:
        # ValueError: what requests lets through of headers that are none, such as a Location that is not UTF-8.
        why = _describe_error(error)
        return RegistryAnswer(
            text, "unreachable", None, f"the registry {one.registry} does not answer: {why}"
        )


class Session(requests.Session):
    """Without the passwords of ~/.netrc, which requests would send, also after a redirection."""

    ca_file: str | None = None

    def __init__(self) -> None:
        super().__init__()
        self.auth = _skip_password

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Take the token away where a redirection leaves the host; put nothing in its place."""
        before, after = response.request.url or "", prepared_request.url or ""
        if self.should_strip_auth(before, after):  # type: ignore[no-untyped-call]
            prepared_request.headers.pop("Authorization", None)

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        """The user's own certificate comes before REQUESTS_CA_BUNDLE."""
        return super().merge_environment_settings(url, proxies, stream, self.ca_file or verify, cert)


def _skip_password(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _ask(session: requests.Session, one: Reference, text: str) -> RegistryAnswer:
    url = f"{one.address}/manifests/{one.digest or one.tag}"
    headers = {"Accept": ",".join((*LISTS, *SINGLE))}
    answer = session.head(url, headers=headers, timeout=TIMEOUT, allow_redirects=True)
    if answer.status_code == 401:
        token = anonymous_token(session, answer.headers.get("WWW-Authenticate", ""))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
            answer = session.head(url, headers=headers, timeout=TIMEOUT, allow_redirects=True)
    return _judge(answer, one, text)


def _judge(answer: requests.Response, one: Reference, text: str) -> RegistryAnswer:
    status = answer.status_code
    if status == 200:
        digest = answer.headers.get("Docker-Content-Digest", "")
        return RegistryAnswer(text, "there", digest if _DIGEST.fullmatch(digest) else None, "")
    if status == 404:
        return RegistryAnswer(text, "missing", None, f"{one.name} is not in the registry {one.registry}.")
    if status in (401, 403):
        return RegistryAnswer(
            text,
            "login",
            None,
            f"the registry {one.registry} shows {one.name} only after a login, or not at all: "
            f"docker login {one.registry}",
        )
    if status == 429:
        wait = answer.headers.get("Retry-After", "")
        seconds = int(wait) if wait.isascii() and wait.isdigit() and len(wait) < 8 else None
        after = f" It asks to wait {seconds} seconds." if seconds else ""
        return RegistryAnswer(
            text,
            "limited",
            None,
            f"the limit of {one.registry} for pulls from your address is reached.{after}",
            seconds,
        )
    return RegistryAnswer(
        text, "unclear", None, f"the registry {one.registry} answered with status {status}."
    )


def anonymous_token(session: requests.Session, challenge: str) -> str | None:
    """Return an anonymous token, where the registry's challenge offers one over https (or loopback)."""
    if not challenge.lower().startswith("bearer "):
        return None
    fields = dict(_CHALLENGE.findall(challenge[:4000]))
    realm = fields.get("realm", "")
    where = urlsplit(realm)
    if where.scheme != "https" and not (
        where.scheme == "http" and where.hostname in ("localhost", "127.0.0.1")
    ):
        return None
    asked = {key: fields[key] for key in ("service", "scope") if key in fields}
    with session.get(realm, params=asked, timeout=TIMEOUT, stream=True) as answer:
        content = b""
        for piece in answer.iter_content(16_384):
            content += piece
            if len(content) > MAX_TOKEN_BYTES:
                return None
    if answer.status_code != 200:
        return None
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return None
    token = body.get("token") or body.get("access_token") if isinstance(body, dict) else None
    return token if isinstance(token, str) and token.isascii() and "\n" not in token else None


def _describe_error(error: Exception) -> str:
    text = str(error)
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate is not trusted here (--ca-cert FILE names your network's authority)"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy refuses (--proxy, HTTPS_PROXY)"
    if isinstance(error, requests.exceptions.Timeout):
        return "it did not answer in time"
    if (
        "Name or service not known" in text
        or "Temporary failure in name resolution" in text
        or "Failed to resolve" in text
    ):
        return "its name cannot be resolved; is there a network?"
    if "Connection refused" in text:
        return "nothing listens there (connection refused)"
    if "Network is unreachable" in text or "No route to host" in text:
        return "the network has no route to it"
    return clean_line(text, limit=200)
