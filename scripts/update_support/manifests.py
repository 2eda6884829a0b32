"""One image as its registry describes it: digest of the tag, layers, variables and labels for linux/amd64.

Uses the registry protocol (OCI distribution) with an anonymous token. Only the manifest and the configuration are
downloaded, both up to a maximum size.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

import requests

from tfdoctor.images.engine.registry import (
    INDEX_MEDIA_TYPES,
    MANIFEST_MEDIA_TYPES,
    RegistrySession,
    apply_mirror,
    fetch_anonymous_token,
    parse_reference,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BODY_BYTES = 4_000_000
"""Maximum bytes of a manifest or a configuration."""
TIMEOUT_S = 30.0
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,100}")


class ManifestError(Exception):
    """The registry gave no description; `gone`: it has no such image."""

    def __init__(self, text: str, *, gone: bool = False) -> None:
        super().__init__(text)
        self.gone = gone


class Registry:
    """A client of registries; tokens are reused for each repository."""

    def __init__(self, mirror: str | None = None) -> None:
        self.mirror = mirror
        self.tokens: dict[str, str] = {}
        self.session = RegistrySession()

    def describe_image(self, name: str) -> dict[str, Any]:
        """Return `digest`, `download`, `layers`, `env` and `labels` of an image. Raise ManifestError."""
        reference = parse_reference(apply_mirror(name, self.mirror))
        body = self._get(
            f"{reference.url}/manifests/{reference.digest or reference.tag}",
            reference.repository,
            (*INDEX_MEDIA_TYPES, *MANIFEST_MEDIA_TYPES),
        )
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        manifest = _parse_object(body)
        if "manifests" in manifest:
            body = self._get(
                f"{reference.url}/manifests/{_find_amd64(manifest)}",
                reference.repository,
                MANIFEST_MEDIA_TYPES,
            )
            manifest = _parse_object(body)
        layers, config = manifest.get("layers"), manifest.get("config")
        if not isinstance(layers, list) or not isinstance(config, dict):
            raise ManifestError("its manifest has no layers, or no configuration")
        sizes = [layer.get("size") for layer in layers if isinstance(layer, dict)]
        if len(sizes) != len(layers) or not all(type(size) is int and size >= 0 for size in sizes):
            raise ManifestError("a layer has no size")
        config_digest = str(config.get("digest"))
        if not _DIGEST.fullmatch(config_digest):
            raise ManifestError("its configuration has no digest")
        text = self._get(f"{reference.url}/blobs/{config_digest}", reference.repository, ())
        if f"sha256:{hashlib.sha256(text).hexdigest()}" != config_digest:
            raise ManifestError("its configuration is not the one that the manifest names")
        settings = _parse_object(text).get("config")
        settings = settings if isinstance(settings, dict) else {}
        return {
            "digest": digest,
            "download": sum(sizes),
            "layers": len(sizes),
            "env": _parse_variables(settings.get("Env")),
            "labels": _parse_labels(settings.get("Labels")),
        }

    def _get(self, url: str, repository: str, accept: tuple[str, ...]) -> bytes:
        for may_retry in (True, False):
            headers = {"Accept": ", ".join(accept)} if accept else {}
            if repository in self.tokens:
                headers["Authorization"] = f"Bearer {self.tokens[repository]}"
            status, response_headers, body = _fetch(self.session, url, headers)
            if status == 401 and may_retry:
                self.tokens[repository] = self._token(response_headers.get("WWW-Authenticate", ""))
                continue
            if status != 200:
                msg = f"the registry answers {status}"
                raise ManifestError(msg, gone=status == 404)
            return body
        raise ManifestError("the registry wants another token again")

    def _token(self, challenge: str) -> str:
        try:
            token = fetch_anonymous_token(self.session, challenge)
        except (requests.RequestException, OSError) as error:
            msg = f"the registry does not answer: {error}"
            raise ManifestError(msg) from error
        if token is None:
            raise ManifestError("no anonymous token")
        return token


def _fetch(
    session: requests.Session, url: str, headers: Mapping[str, str]
) -> tuple[int, Mapping[str, str], bytes]:
    try:
        with session.get(url, headers=dict(headers), timeout=TIMEOUT_S, stream=True) as response:
            body = b""
            for piece in response.iter_content(65_536):
                body += piece
                if len(body) > MAX_BODY_BYTES:
                    raise ManifestError("it is larger than a manifest can be")
            return response.status_code, response.headers, body
    except (requests.RequestException, OSError) as error:
        msg = f"the registry does not answer: {error}"
        raise ManifestError(msg) from error


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ManifestError("it is no JSON") from error
    if not isinstance(parsed, dict):
        raise ManifestError("it is no table")
    return parsed


def _find_amd64(index: dict[str, Any]) -> str:
    for entry in index["manifests"] if isinstance(index["manifests"], list) else ():
        platform = entry.get("platform") if isinstance(entry, dict) else None
        if not isinstance(platform, dict):
            continue
        if (platform.get("os"), platform.get("architecture")) == ("linux", "amd64"):
            digest = str(entry.get("digest"))
            if _DIGEST.fullmatch(digest):
                return digest
    raise ManifestError("it has no image for linux/amd64")


def _parse_variables(lines: object) -> dict[str, str]:
    variables = {}
    for line in lines if isinstance(lines, list) else ():
        name, sign, value = str(line).partition("=")
        if sign and _NAME.fullmatch(name):
            variables[name] = value[:1000]
    return dict(sorted(variables.items()))


def _parse_labels(table: object) -> dict[str, str]:
    if not isinstance(table, dict):
        return {}
    return {
        name: str(value)[:1000]
        for name, value in sorted(table.items())
        if _NAME.fullmatch(str(name)) is not None
    }
