"""compat/manifests.json, what plans show of it, and scripts/update_images.py against a registry."""

from __future__ import annotations

import hashlib
import http.server
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import requests

from tfdoctor.compat import Compat
from tfdoctor.compat.folder import data_dir
from tfdoctor.fit import Host
from tfdoctor.plan import Base, Method, Option, Recipe, Request, recommend
from tfdoctor.plan.bases import with_manifest
from tfdoctor.render.paragraphs import Page
from tfdoctor.render.plan import show_option

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPTS = Path(__file__).parents[2] / "scripts"
COMPAT = Compat.load()
CONFIG = json.dumps(
    {
        "config": {
            "Env": ["PATH=/usr/bin", "NVIDIA_REQUIRE_CUDA=cuda>=12.2", "bad name=1"],
            "Labels": {"maintainer": "x"},
        }
    }
).encode()
OCI = "application/vnd.oci.image"


def digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def manifest_of(layers: list[bytes]) -> bytes:
    rows = [
        {"mediaType": f"{OCI}.layer.v1.tar+gzip", "digest": digest(layer), "size": len(layer)}
        for layer in layers
    ]
    config = {"mediaType": f"{OCI}.config.v1+json", "digest": digest(CONFIG), "size": len(CONFIG)}
    table = {"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "config": config, "layers": rows}
    return json.dumps(table).encode()


LAYERS = [b"one", b"another one"]
MANIFEST = manifest_of(LAYERS)
INDEX = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.index.v1+json",
        "manifests": [
            {"digest": f"sha256:{'0' * 64}", "platform": {"os": "linux", "architecture": "arm64"}},
            {"digest": digest(MANIFEST), "platform": {"os": "linux", "architecture": "amd64"}},
        ],
    }
).encode()


class Fake(http.server.BaseHTTPRequestHandler):
    """A registry with one image behind a list of platforms, and others that are wrong."""

    pages: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        body = self.pages.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(body or b"{}")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Fake)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def summarize_answer(registry: str, name: str) -> Any:
    code = "from update_support.manifests import Registry; print(json.dumps(Registry(sys.argv[1]).image(sys.argv[2])))"
    return run(code, registry, name)


def run(code: str, *arguments: str) -> Any:
    """What a piece of Python beside the scripts prints as JSON. Raises ValueError with its errors."""
    done = subprocess.run(
        [sys.executable, "-c", f"import json, sys; {code}", *arguments],
        cwd=SCRIPTS,
        env={"PYTHONPATH": f"{SCRIPTS}:{SCRIPTS.parent / 'doctor'}", "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        raise ValueError(done.stderr)
    return json.loads(done.stdout)


EXPECTED = {
    "download": sum(map(len, LAYERS)),
    "layers": 2,
    "env": {"NVIDIA_REQUIRE_CUDA": "cuda>=12.2", "PATH": "/usr/bin"},
    "labels": {"maintainer": "x"},
}


def render_whole(option: Option) -> str:
    page = Page(200, coloured=False)
    show_option(page, option, whole=True)
    return page.text


def test_a_registry_is_read(registry: str) -> None:
    Fake.pages = {
        "/v2/nvidia/cuda/manifests/1": INDEX,
        f"/v2/nvidia/cuda/manifests/{digest(MANIFEST)}": MANIFEST,
        f"/v2/nvidia/cuda/blobs/{digest(CONFIG)}": CONFIG,
    }
    assert summarize_answer(registry, "nvidia/cuda:1") == {"digest": digest(INDEX), **EXPECTED}


def test_rows_are_made_anew_and_what_is_gone_keeps_its_row(registry: str) -> None:
    Fake.pages = {
        "/v2/nvidia/cuda/manifests/1": INDEX,
        f"/v2/nvidia/cuda/manifests/{digest(MANIFEST)}": MANIFEST,
        f"/v2/nvidia/cuda/blobs/{digest(CONFIG)}": CONFIG,
    }
    code = (
        "from update_images import Registry, refresh; rows = {'a/b:1': {'image': 'a/b:1'}};"
        "failed = refresh(rows, ['nvidia/cuda:1', 'a/b:1'], Registry(sys.argv[1])); print(json.dumps([failed, rows]))"
    )
    failed, rows = run(code, registry)
    assert failed == 1
    assert rows["a/b:1"] == {"image": "a/b:1"}
    made = rows["nvidia/cuda:1"]
    assert made["digest"] == digest(INDEX)
    assert made["evidence"] == "measured"
    assert made["download"] == EXPECTED["download"]


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (None, "answers 404"),
        (b"no json", "no JSON"),
        (b"[]", "no table"),
        (
            b'{"manifests": [{"platform": {"os": "linux", "architecture": "arm64"}}]}',
            "no image for linux/amd64",
        ),
        (b'{"layers": [{"size": -1}], "config": {"digest": "x"}}', "no size"),
        (b'{"layers": [{"size": 1}], "config": {"digest": "../../etc"}}', "no digest"),
        (b"[" * 5_000_000, "larger than a manifest"),
        (MANIFEST, "answers 404"),
    ],
)
@pytest.mark.few(5)
def test_what_is_no_answer_is_said(registry: str, page: bytes | None, why: str) -> None:
    Fake.pages = {} if page is None else {"/v2/nvidia/cuda/manifests/1": page}
    with pytest.raises(ValueError, match=why):
        summarize_answer(registry, "nvidia/cuda:1")


def test_another_configuration_than_the_manifest_names_is_refused(registry: str) -> None:
    Fake.pages = {"/v2/a/b/manifests/1": MANIFEST, f"/v2/a/b/blobs/{digest(CONFIG)}": b"{}"}
    with pytest.raises(ValueError, match="not the one that the manifest names"):
        summarize_answer(registry, "a/b:1")


def test_a_real_registry_is_read(tmp_path: Path) -> None:
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    settings = tmp_path / "config.yml"
    storage = f"storage:\n  filesystem:\n    rootdirectory: {tmp_path / 'data'}\n"
    settings.write_text(f"version: 0.1\nlog:\n  level: error\n{storage}http:\n  addr: 127.0.0.1:{port}\n")
    with subprocess.Popen([program, "serve", str(settings)], stderr=subprocess.DEVNULL) as server:
        try:
            host = f"http://127.0.0.1:{port}"
            for _ in range(100):
                try:
                    requests.get(f"{host}/v2/", timeout=5)
                    break
                except requests.ConnectionError:
                    time.sleep(0.2)
            for blob in (*LAYERS, CONFIG):
                begun = requests.post(f"{host}/v2/library/python/blobs/uploads/", timeout=30)
                place = begun.headers["Location"]
                put = requests.put(place, params={"digest": digest(blob)}, data=blob, timeout=30)
                assert put.status_code == 201, put.text
            kind = {"Content-Type": f"{OCI}.manifest.v1+json"}
            put = requests.put(
                f"{host}/v2/library/python/manifests/3", data=MANIFEST, headers=kind, timeout=30
            )
            assert put.status_code == 201, put.text
            assert summarize_answer(f"127.0.0.1:{port}", "python:3") == {
                "digest": digest(MANIFEST),
                **EXPECTED,
            }
            with pytest.raises(ValueError, match="404"):
                summarize_answer(f"127.0.0.1:{port}", "python:4")
        finally:
            server.terminate()


# ---------------------------------------------------------------- the table and what is shown of it


def test_the_table_is_as_the_script_writes_it() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "update_images.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)


def option(version: str, recipe: Recipe) -> Option:
    wish = Request(tensorflow=version, method=Method.CONTAINER, recipe=recipe)
    return recommend(COMPAT, wish, Host()).options[0]


def test_a_digest_that_others_tell_is_shown_and_not_built_on() -> None:
    made = option("2.17.0", Recipe.NGC)
    known = COMPAT.manifests.get_manifest("nvcr.io/nvidia/tensorflow:25.02-tf2-py3")
    assert known is not None
    assert known.evidence == "inferred"
    assert made.base is not None
    assert made.base.reference == "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"
    assert known.digest in "".join(render_whole(made).split())
    assert "as other projects tell it; the registry was not asked" in " ".join(render_whole(made).split())


@pytest.mark.parametrize(
    ("version", "recipe", "line"),
    [
        ("1.14.0", Recipe.OFFICIAL, "3.5 GB tensorflow/tensorflow:1.14.0-gpu-py3"),
        ("1.14.0", Recipe.OFFICIAL, "? pinned Python packages: size not known"),
        ("2.14.1", Recipe.CUDA_BASE, "3.7 GB nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04"),
        ("2.17.1", Recipe.CUDA_BASE, "? nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04: 2.1 GB to download"),
        ("2.17.0", Recipe.NGC, "? nvcr.io/nvidia/tensorflow:25.02-tf2-py3: size not known"),
    ],
)
def test_a_size_is_shown_or_said_to_be_unknown(version: str, recipe: Recipe, line: str) -> None:
    out = Page(200, coloured=False)
    show_option(out, option(version, recipe), whole=False)
    assert line in [" ".join(one.split()) for one in out.text.splitlines()]


def test_a_row_tells_a_digest_or_a_size() -> None:
    for row in COMPAT.manifests.images:
        assert row.digest or row.unpacked or row.download, row.image
        assert row.evidence == "inferred" or row.digest, row.image


def test_a_digest_that_a_registry_told_is_built_on(tmp_path: Path) -> None:
    folder = tmp_path / "compat"
    shutil.copytree(data_dir("compat"), folder, ignore=shutil.ignore_patterns("logs", "imports"))
    row = {
        "image": "python:3.11-slim-bookworm",
        "digest": f"sha256:{'1' * 64}",
        "download": 45_000_000,
        "layers": 4,
        "read": "2026-11-23",
        "evidence": "measured",
        "sources": ["a registry"],
    }
    table = {"schema_version": 1, "as_of": "2026-11-23", "images": [row]}
    (folder / "manifests.json").write_text(json.dumps(table))
    compat = Compat.load(folder)
    wish = Request(tensorflow="2.15.1", recipe=Recipe.PIP_CUDA)
    made = recommend(compat, wish, Host()).options[0]
    assert made.base is not None
    assert made.base.reference == f"python:3.11-slim-bookworm@sha256:{'1' * 64}"
    shown = " ".join(render_whole(made).split())
    assert "45 MB to download in 4 layers (as the registry said, 2026-11-23)" in shown


def test_a_base_that_is_not_known_stays() -> None:
    made = option("2.15.1", Recipe.PIP_CUDA)
    other = made.base
    assert other is not None
    assert with_manifest(COMPAT, made).base == other == Base(other.image, other.system, "python3")
