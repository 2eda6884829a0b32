"""Compare two builds of one plan: their files, with times and owners, and their layers."""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from typing import TYPE_CHECKING

from lab.images import CERTIFICATES, make, tfdoctor
from tfdoctor.images.engine import connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.images import BuiltImage, ImageEngine

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
"""Files that an engine creates in every container."""


class Pieces:
    """A file-like reader of an iterator of byte strings, which is never whole in memory."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces, self.rest = pieces, b""

    def read(self, size: int) -> bytes:
        while len(self.rest) < size and (piece := next(self.pieces, b"")):
            self.rest += piece
        data, self.rest = self.rest[:size], self.rest[size:]
        return data


Row = tuple[object, ...]
"""Data of a file: kind, mode, owner, group, time, content."""


def list_members(archive: tarfile.TarFile) -> dict[str, Row]:
    """Return the data of each file in an archive by path."""
    rows: dict[str, Row] = {}
    for member in archive:
        content = archive.extractfile(member) if member.isreg() else None
        digest = hashlib.sha256(content.read()).hexdigest() if content else member.linkname
        rows[member.name] = (member.type, member.mode, member.uid, member.gid, member.mtime, digest)
    return rows


def list_differing(first: dict[str, Row], second: dict[str, Row]) -> dict[str, tuple[Row | None, Row | None]]:
    """Return the data in both trees of each path where they differ; None if it is missing."""
    both = {name: (first.get(name), second.get(name)) for name in first.keys() | second.keys()}
    return {name: (left, right) for name, (left, right) in both.items() if left != right}


def list_files(url: str, image: str) -> dict[str, Row]:
    """Return all files of a container of the image, except for those of the engine."""
    engine = connect(url)
    container = engine.client.api.create_container(image, "true")["Id"]
    try:
        with tarfile.open(fileobj=Pieces(engine.client.api.export(container)), mode="r|") as archive:
            rows = list_members(archive)
    finally:
        engine.client.api.remove_container(container)
        engine.client.close()
    return {name: data for name, data in rows.items() if name not in ENGINES}


def list_layers(ground: ImageEngine, image: str) -> list[str]:
    return json.loads(ground.client("image", "inspect", "--format", "{{json .RootFS.Layers}}", image).stdout)


def list_layer_files(ground: ImageEngine, image: str, folder: Path) -> list[dict[str, Row]]:
    """Return the files of each layer of an image."""
    saved = folder / "saved.tar"
    ground.client("image", "save", "--output", str(saved), image)
    layers = []
    with tarfile.open(saved) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        for name in json.load(manifest)[0]["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                layers.append(list_members(layer))
    saved.unlink()
    return layers


def list_layer_instructions(dockerfile: str) -> list[str]:
    """Return the instructions of a Dockerfile that create a layer."""
    return [
        instruction
        for instruction in re.findall(r"^([A-Z]+) ", dockerfile, re.MULTILINE)
        if instruction in ("RUN", "COPY")
    ]


def emit_plan(url: str, folder: Path, arguments: tuple[str, ...], tag: str) -> Path:
    """Write a plan into a folder and return the folder."""
    done = tfdoctor(
        url,
        *("build", *arguments, "--network", "host", "--ca-cert", CERTIFICATES, "--tag", tag),
        *("--emit", "context", str(folder)),
    )
    assert done.returncode == 0, done.stderr
    return folder


def assert_same_build(
    ground: ImageEngine, first_build: BuiltImage, arguments: tuple[str, ...], folder: Path
) -> None:
    """Build a plan again without the cache and assert that the image is the same.

    Only the times of the folders of COPY may differ; Podman's --timestamp and BuildKit's rewrite-timestamp
    fix them.
    """
    second_build = make(ground.url, ground.make_image_name("again:1"), "--no-cache", *arguments)
    tags = (first_build.tag, second_build.tag)
    first, second = (list_files(ground.url, tag) for tag in tags)
    context = emit_plan(ground.url, folder / "context", arguments, first_build.tag)
    steps = list_layer_instructions((context / "Dockerfile").read_text(encoding="utf-8"))
    layers = [list_layers(ground, tag)[-len(steps) :] for tag in tags]
    members = [list_layer_files(ground, tag, folder)[-len(steps) :] for tag in tags]
    ground.remove(second_build.tag)
    assert len(first) > 10_000
    assert list_differing(first, second) == {}
    differing_steps = [
        (step, list_differing(left, right))
        for step, digests, left, right in zip(steps, zip(*layers, strict=True), *members, strict=True)
        if digests[0] != digests[1]
    ]
    assert {step for step, _ in differing_steps} <= {"COPY"}, differing_steps
    # Files of the engine must be in no layer; on a slow machine they were once in one of the two.
    assert not {".dockerenv", "etc/mtab"} & {name for rows in members for layer in rows for name in layer}
