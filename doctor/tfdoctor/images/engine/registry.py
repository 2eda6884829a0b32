"""Ask a registry before a pull whether an image exists, needs a login, or exceeds the pull limit.

The request is `HEAD /v2/NAME/manifests/TAG` of the OCI distribution protocol, with an anonymous token and through the
host's proxies. No image is downloaded, and no password is read or sent.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import requests

from tfdoctor.core.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "INDEX_MEDIA_TYPES",
    "MANIFEST_MEDIA_TYPES",
    "ImageReference",
    "RegistryReply",
    "RegistrySession",
    "apply_mirror",
    "fetch_anonymous_token",
    "parse_reference",
    "query_registry",
]

REQUEST_TIMEOUTS_S = (5.0, 10.0)
"""Seconds to connect, and seconds to wait for the response."""
DOCKER_HUB = "docker.io"
"""The registry name of Docker Hub in image names. Its API has another host."""
_HUB_HOST = "registry-1.docker.io"
INDEX_MEDIA_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
"""Media types of an index, which lists an image's manifests for several platforms."""
MANIFEST_MEDIA_TYPES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
"""Media types of the manifest of a single image."""
_CHALLENGE = re.compile(r'([a-z]{1,20})="([^"]{0,500})"')
"""A parameter in a WWW-Authenticate header."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
MAX_TOKEN_BYTES = 200_000
"""The most bytes of a response with a token."""
ImageState = Literal["there", "missing", "login", "limited", "unreachable", "unclear"]
"""The state of an image in its registry.

* there: the image exists.
* missing: it does not exist.
* login: it needs a login, or does not exist.
* limited: the limit for pulls is reached.
* unreachable: the registry does not respond.
* unclear: the registry responds with an unexpected status.
"""


@dataclass(frozen=True, slots=True)
class ImageReference:
    """The parts of an image name."""

    registry: str
    repository: str
    tag: str
    digest: str | None
    """The digest after `@`. None if there is none."""

    @property
    def name(self) -> str:
        """The name as users write it, without the host and the `library/` of Docker Hub."""
        host = "" if self.registry == DOCKER_HUB else f"{self.registry}/"
        repository = (
            self.repository.removeprefix("library/") if self.registry == DOCKER_HUB else self.repository
        )
        return f"{host}{repository}:{self.tag}" + (f"@{self.digest}" if self.digest else "")

    @property
    def url(self) -> str:
        """The URL of the repository in its registry, without a trailing slash."""
        host = _HUB_HOST if self.registry == DOCKER_HUB else self.registry
        scheme = "http" if host.partition(":")[0] in ("localhost", "127.0.0.1", "[::1]") else "https"
        return f"{scheme}://{host}/v2/{self.repository}"


@dataclass(frozen=True, slots=True)
class RegistryReply:
    """The reply of a registry about an image."""

    reference: str
    state: ImageState
    digest: str | None
    """The digest of the image. None if the registry reports none."""
    message: str
    """A sentence for the user. Empty if the state is "there"."""
    retry_after: int | None = None
    """Seconds to wait. None unless the state is "limited" and the registry reports a time."""


def parse_reference(image_name: str) -> ImageReference:
    """Parse an image name as Docker does.

    `python:3.12-slim` is the tag `3.12-slim` of the repository `library/python` on Docker Hub. The default tag is
    `latest`.
    """
    name, _, digest = image_name.partition("@")
    first_part, slash, remainder = name.partition("/")
    if slash and ("." in first_part or ":" in first_part or first_part == "localhost"):
        registry, path = first_part, remainder
    else:
        registry, path = DOCKER_HUB, name
    repository, colon, tag = path.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = path, "latest"
    if registry in ("index.docker.io", _HUB_HOST):
        registry = DOCKER_HUB
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return ImageReference(registry, repository, tag, digest or None)


def apply_mirror(image_name: str, mirror: str | None) -> str:
    """Return an image name on a mirror, or the unchanged name if `mirror` is None.

    `python:3.12` on the mirror `corp:5000/hub` is `corp:5000/hub/library/python:3.12`. If the mirror ends with `/`, the
    host of a registry other than Docker Hub becomes a folder, as pull-through caches expect (`MIRROR/nvcr.io/…`).
    Otherwise the host is dropped.
    """
    if mirror is None:
        return image_name
    reference = parse_reference(image_name)
    base = mirror.rstrip("/")
    folder = f"{reference.registry}/" if mirror.endswith("/") and reference.registry != DOCKER_HUB else ""
    suffix = f"@{reference.digest}" if reference.digest else f":{reference.tag}"
    return f"{base}/{folder}{reference.repository}{suffix}"


def query_registry(
    image_name: str, *, ca_file: str | None = None, proxies: Mapping[str, str] | None = None
) -> RegistryReply:
    """Query the registry of an image. No error is raised; an unreachable registry is a state of the reply."""
    reference = parse_reference(image_name)
    try:
        with RegistrySession() as session:
            if ca_file is not None:
                session.ca_file = ca_file
            if proxies:
                session.proxies.update(dict(proxies))
            return _query(session, reference, image_name)
    except (requests.RequestException, OSError, ValueError) as error:
        # requests does not wrap some ValueErrors, such as that for a Location header that is not UTF-8.
        reason = _describe_error(error)
        return RegistryReply(
            reference=image_name,
            state="unreachable",
            digest=None,
            message=f"the registry {reference.registry} does not answer: {reason}",
        )


class RegistrySession(requests.Session):
    """A session that never sends passwords from ~/.netrc, which requests would send by default."""

    ca_file: str | None = None
    """A file with certificate authorities. None for the default."""

    def __init__(self) -> None:
        super().__init__()
        self.auth = _skip_netrc

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Remove the token if a redirect leads to another host, and do not add a password from ~/.netrc."""
        old_url, new_url = response.request.url or "", prepared_request.url or ""
        if self.should_strip_auth(old_url, new_url):  # type: ignore[no-untyped-call]
            prepared_request.headers.pop("Authorization", None)

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        """Let `ca_file` take precedence over REQUESTS_CA_BUNDLE."""
        return super().merge_environment_settings(url, proxies, stream, self.ca_file or verify, cert)


def _skip_netrc(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Return the request unchanged. As `auth` of a session, this keeps requests from reading ~/.netrc."""
    return request


def _query(session: requests.Session, reference: ImageReference, image_name: str) -> RegistryReply:
    """Request the manifest, and repeat the request with an anonymous token if one is required.

    Raise RequestException if the registry does not respond.
    """
    url = f"{reference.url}/manifests/{reference.digest or reference.tag}"
    headers = {"Accept": ",".join((*INDEX_MEDIA_TYPES, *MANIFEST_MEDIA_TYPES))}
    response = session.head(url, headers=headers, timeout=REQUEST_TIMEOUTS_S, allow_redirects=True)
    if response.status_code == 401:
        token = fetch_anonymous_token(session, response.headers.get("WWW-Authenticate", ""))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
            response = session.head(url, headers=headers, timeout=REQUEST_TIMEOUTS_S, allow_redirects=True)
    return _interpret_response(response, reference, image_name)


def _interpret_response(
    response: requests.Response, reference: ImageReference, image_name: str
) -> RegistryReply:
    """Convert the status of a response to a reply."""
    status = response.status_code
    if status == 200:
        digest = response.headers.get("Docker-Content-Digest", "")
        valid_digest = digest if _DIGEST.fullmatch(digest) else None
        return RegistryReply(reference=image_name, state="there", digest=valid_digest, message="")
    if status == 404:
        return RegistryReply(
            reference=image_name,
            state="missing",
            digest=None,
            message=f"{reference.name} is not in the registry {reference.registry}.",
        )
    if status in (401, 403):
        return RegistryReply(
            reference=image_name,
            state="login",
            digest=None,
            message=f"the registry {reference.registry} shows {reference.name} only after a login, or not at all: "
            f"docker login {reference.registry}",
        )
    if status == 429:
        wait = response.headers.get("Retry-After", "")
        seconds = int(wait) if wait.isascii() and wait.isdigit() and len(wait) < 8 else None
        wait_text = f" It asks to wait {seconds} seconds." if seconds else ""
        return RegistryReply(
            reference=image_name,
            state="limited",
            digest=None,
            message=f"the limit of {reference.registry} for pulls from your address is reached.{wait_text}",
            retry_after=seconds,
        )
    return RegistryReply(
        reference=image_name,
        state="unclear",
        digest=None,
        message=f"the registry {reference.registry} answered with status {status}.",
    )


def fetch_anonymous_token(session: requests.Session, challenge: str) -> str | None:
    """Return an anonymous token, or None if the server gives none.

    `challenge` is the WWW-Authenticate header of a response. The token is only requested over https, or over http from
    this host. Raise RequestException if the token server does not respond.
    """
    if not challenge.lower().startswith("bearer "):
        return None
    fields = dict(_CHALLENGE.findall(challenge[:4000]))
    realm = fields.get("realm", "")
    address = urlsplit(realm)
    if address.scheme != "https" and not (
        address.scheme == "http" and address.hostname in ("localhost", "127.0.0.1")
    ):
        return None
    parameters = {key: fields[key] for key in ("service", "scope") if key in fields}
    with session.get(realm, params=parameters, timeout=REQUEST_TIMEOUTS_S, stream=True) as response:
        content = b""
        for piece in response.iter_content(16_384):
            content += piece
            if len(content) > MAX_TOKEN_BYTES:
                return None
    if response.status_code != 200:
        return None
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return None
    token = body.get("token") or body.get("access_token") if isinstance(body, dict) else None
    return token if isinstance(token, str) and token.isascii() and "\n" not in token else None


def _describe_error(error: Exception) -> str:
    """Return the reason why the registry did not respond, as part of a sentence."""
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
