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


def files_of(url: str, image: str) -> dict[str, tuple[object, ...]]:
    """Path → kind, mode, owner, time, content of all that a container of the image has."""
    engine = connect(url)
    container = engine.client.api.create_container(image, "true")["Id"]
    found: dict[str, tuple[object, ...]] = {}
    try:
        with tarfile.open(fileobj=Pieces(engine.client.api.export(container)), mode="r|") as archive:
            for one in archive:
                content = archive.extractfile(one) if one.isreg() else None
                digest = hashlib.sha256(content.read()).hexdigest() if content else one.linkname
                found[one.name] = (one.type, one.mode, one.uid, one.gid, one.mtime, digest)
    finally:
        engine.client.api.remove_container(container)
        engine.client.close()
    return {name: row for name, row in found.items() if name not in ENGINES}


def layers_of(ground: Ground, image: str) -> list[str]:
    return json.loads(ground.client("image", "inspect", "--format", "{{json .RootFS.Layers}}", image).stdout)


def members_of(ground: Ground, image: str, folder: Path) -> list[set[tuple[object, ...]]]:
    """What each layer of an image holds: name, kind, mode, owner, time and content."""
    saved = folder / "saved.tar"
    ground.client("image", "save", "--output", str(saved), image)
    layers = []
    with tarfile.open(saved) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        for name in json.load(manifest)[0]["Layers"]:
            rows: set[tuple[object, ...]] = set()
            with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                for one in layer:
                    content = layer.extractfile(one) if one.isreg() else None
                    digest = hashlib.sha256(content.read()).hexdigest()[:12] if content else one.linkname
                    rows.add(
                        (
                            one.name,
                            one.type,
                            one.mode,
                            one.uid,
                            one.gid,
                            one.mtime,
                            digest,
                            *one.pax_headers.items(),
                        )
                    )
            layers.append(rows)
    saved.unlink()
    return layers


def instructions(dockerfile: str) -> list[str]:
    """Those that make a layer."""
    return [word for word in re.findall(r"^([A-Z]+) ", dockerfile, re.MULTILINE) if word in ("RUN", "COPY")]


def emitted(url: str, folder: Path, words: tuple[str, ...], tag: str) -> Path:
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
    first, layers = files_of(ground.url, made.tag), [layers_of(ground, made.tag)]
    again = make(ground.url, ground.named("again:1"), "--no-cache", *words)
    second = files_of(ground.url, again.tag)
    layers.append(layers_of(ground, again.tag))
    members = {tag: members_of(ground, tag, folder) for tag in (made.tag, again.tag)}
    ground.remove(again.tag)
    context = emitted(ground.url, folder / "context", words, made.tag)
    dockerfile = (context / "Dockerfile").read_text(encoding="utf-8")
    assert len(first) > 10_000
    assert {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)} == set()
    steps = instructions(dockerfile)
    differ = [a != b for a, b in zip(*layers, strict=True)][-len(steps) :]
    others = {
        (number, step): sorted(
            f"{sign}{row}"
            for sign, rows, than in zip("-+", both, reversed(both), strict=True)
            for row in rows - than
        )
        for number, (step, other, *both) in enumerate(
            zip(steps, differ, *(rows[-len(steps) :] for rows in members.values()), strict=True)
        )
        if other
    }
    assert {step for _, step in others} <= {"COPY"}, others
    # What the engine itself put there is in no layer: on a slow machine it is older than the step, and was in one only.
    held = {str(row[0]) for rows in members.values() for layer in rows[-len(steps) :] for row in layer}
    assert held & {".dockerenv", "etc/mtab"} == set()
