"""Whether two builds of one plan are one image: its files, with their times and owners, and its layers."""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from typing import TYPE_CHECKING

from lab.images import CERTIFICATES, make, tfdoctor
from tfdoctor.engine import connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.images import Built, Ground

ENGINES = {
    "etc/hostname",
    "etc/hosts",
    "etc/mtab",
    "etc/resolv.conf",
    "etc",
    "dev",
    "dev/console",
    ".dockerenv",
}
"""What an engine makes in a container when that is made."""


class Pieces:
    """What comes in pieces, read as a file: it is never all here."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces, self.rest = pieces, b""

    def read(self, size: int) -> bytes:
        while len(self.rest) < size and (piece := next(self.pieces, b"")):
            self.rest += piece
        read, self.rest = self.rest[:size], self.rest[size:]
        return read


Row = tuple[object, ...]
"""Of a file: kind, mode, owner, group, time, content."""


def rows_of(archive: tarfile.TarFile) -> dict[str, Row]:
    """Path → what an archive says of it."""
    found: dict[str, Row] = {}
    for one in archive:
        content = archive.extractfile(one) if one.isreg() else None
        digest = hashlib.sha256(content.read()).hexdigest() if content else one.linkname
        found[one.name] = (one.type, one.mode, one.uid, one.gid, one.mtime, digest)
    return found


def list_differing(first: dict[str, Row], second: dict[str, Row]) -> dict[str, tuple[Row | None, Row | None]]:
    """Path → what each says of it, where they differ."""
    both = {name: (first.get(name), second.get(name)) for name in first.keys() | second.keys()}
    return {name: (one, other) for name, (one, other) in both.items() if one != other}


def files_of(url: str, image: str) -> dict[str, Row]:
    """All that a container of the image has, but for what is the engine's."""
    engine = connect(url)
    container = engine.client.api.create_container(image, "true")["Id"]
    try:
        with tarfile.open(fileobj=Pieces(engine.client.api.export(container)), mode="r|") as archive:
            found = rows_of(archive)
    finally:
        engine.client.api.remove_container(container)
        engine.client.close()
    return {name: row for name, row in found.items() if name not in ENGINES}


def layers_of(ground: Ground, image: str) -> list[str]:
    return json.loads(ground.client("image", "inspect", "--format", "{{json .RootFS.Layers}}", image).stdout)


def members_of(ground: Ground, image: str, folder: Path) -> list[dict[str, Row]]:
    """What each layer of an image holds."""
    saved = folder / "saved.tar"
    ground.client("image", "save", "--output", str(saved), image)
    layers = []
    with tarfile.open(saved) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        for name in json.load(manifest)[0]["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                layers.append(rows_of(layer))
    saved.unlink()
    return layers


def instructions(dockerfile: str) -> list[str]:
    """Those that make a layer."""
    return [word for word in re.findall(r"^([A-Z]+) ", dockerfile, re.MULTILINE) if word in ("RUN", "COPY")]


def emit_plan(url: str, folder: Path, words: tuple[str, ...], tag: str) -> Path:
    """The folder that a plan is written into."""
    done = tfdoctor(
        url,
        *("build", *words, "--network", "host", "--ca-cert", CERTIFICATES, "--tag", tag),
        *("--emit", "context", str(folder)),
    )
    assert done.returncode == 0, done.stderr
    return folder


def same_again(ground: Ground, made: Built, words: tuple[str, ...], folder: Path) -> None:
    """But for when the folders of COPY were made, which Podman's --timestamp and BuildKit's rewrite-timestamp fix."""
    again = make(ground.url, ground.list_named("again:1"), "--no-cache", *words)
    tags = (made.tag, again.tag)
    first, second = (files_of(ground.url, tag) for tag in tags)
    context = emit_plan(ground.url, folder / "context", words, made.tag)
    steps = instructions((context / "Dockerfile").read_text(encoding="utf-8"))
    layers = [layers_of(ground, tag)[-len(steps) :] for tag in tags]
    members = [members_of(ground, tag, folder)[-len(steps) :] for tag in tags]
    ground.remove(again.tag)
    assert len(first) > 10_000
    assert list_differing(first, second) == {}
    told = [
        (step, list_differing(one, other))
        for step, digests, one, other in zip(steps, zip(*layers, strict=True), *members, strict=True)
        if digests[0] != digests[1]
    ]
    assert {step for step, _ in told} <= {"COPY"}, told
    # What the engine itself put there is in no layer: on a slow machine it is older than the step, and was in one only.
    assert not {".dockerenv", "etc/mtab"} & {name for rows in members for layer in rows for name in layer}
