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
from tfdoctor.planning import BaseImage, Method, Option, Recipe, Request, recommend
from tfdoctor.planning.bases import add_image_sizes
from tfdoctor.prediction.fit.models import Host
from tfdoctor.render.paragraphs import Page
from tfdoctor.render.plan import print_option

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


def compute_digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def make_manifest(layers: list[bytes]) -> bytes:
    entries = [
        {"mediaType": f"{OCI}.layer.v1.tar+gzip", "digest": compute_digest(layer), "size": len(layer)}
        for layer in layers
    ]
    config = {"mediaType": f"{OCI}.config.v1+json", "digest": compute_digest(CONFIG), "size": len(CONFIG)}
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": config,
        "layers": entries,
    }
    return json.dumps(manifest).encode()


LAYERS = [b"one", b"another one"]
MANIFEST = make_manifest(LAYERS)
INDEX = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.index.v1+json",
        "manifests": [
            {"digest": f"sha256:{'0' * 64}", "platform": {"os": "linux", "architecture": "arm64"}},
            {"digest": compute_digest(MANIFEST), "platform": {"os": "linux", "architecture": "amd64"}},
        ],
    }
).encode()


class FakeRegistry(http.server.BaseHTTPRequestHandler):
    """A registry with one image behind an image index, and others that are invalid."""

    pages: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        body = self.pages.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(body or b"{}")

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeRegistry)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def read_image(registry: str, name: str) -> Any:
    code = "from update_support.manifests import Registry; print(json.dumps(Registry(sys.argv[1]).describe_image(sys.argv[2])))"
    return run_script_code(code, registry, name)


def run_script_code(code: str, *arguments: str) -> Any:
    """Run Python code in the scripts' folder and return what it prints, decoded from JSON.

    Raises ValueError with its standard error if it fails.
    """
    process = subprocess.run(
        [sys.executable, "-c", f"import json, sys; {code}", *arguments],
        cwd=SCRIPTS,
        env={"PYTHONPATH": f"{SCRIPTS}:{SCRIPTS.parent / 'doctor'}", "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if process.returncode:
        raise ValueError(process.stderr)
    return json.loads(process.stdout)


EXPECTED = {
    "download": sum(map(len, LAYERS)),
    "layers": 2,
    "env": {"NVIDIA_REQUIRE_CUDA": "cuda>=12.2", "PATH": "/usr/bin"},
    "labels": {"maintainer": "x"},
}


def render_details(plan_option: Option) -> str:
    page = Page(200, coloured=False)
    print_option(page, plan_option, complete=True)
    return page.text


def test_image_is_read_from_a_registry(registry: str) -> None:
    FakeRegistry.pages = {
        "/v2/nvidia/cuda/manifests/1": INDEX,
        f"/v2/nvidia/cuda/manifests/{compute_digest(MANIFEST)}": MANIFEST,
        f"/v2/nvidia/cuda/blobs/{compute_digest(CONFIG)}": CONFIG,
    }
    assert read_image(registry, "nvidia/cuda:1") == {"digest": compute_digest(INDEX), **EXPECTED}


def test_refresh_keeps_the_entry_of_a_deleted_image(registry: str) -> None:
    FakeRegistry.pages = {
        "/v2/nvidia/cuda/manifests/1": INDEX,
        f"/v2/nvidia/cuda/manifests/{compute_digest(MANIFEST)}": MANIFEST,
        f"/v2/nvidia/cuda/blobs/{compute_digest(CONFIG)}": CONFIG,
    }
    code = (
        "from update_images import Registry, refresh; rows = {'a/b:1': {'image': 'a/b:1'}};"
        "failed = refresh(rows, ['nvidia/cuda:1', 'a/b:1'], Registry(sys.argv[1])); print(json.dumps([failed, rows]))"
    )
    failed, entries = run_script_code(code, registry)
    assert failed == [1, 0]  # gone, and not unanswered
    assert entries["a/b:1"] == {"image": "a/b:1"}
    refreshed = entries["nvidia/cuda:1"]
    assert refreshed["digest"] == compute_digest(INDEX)
    assert refreshed["evidence"] == "measured"
    assert refreshed["download"] == EXPECTED["download"]


@pytest.mark.parametrize(
    ("known", "day"), [(("image", "missing"), "2000-01-01"), (("image",), "today"), (("missing",), None)]
)
def test_date_is_that_of_complete_answers(
    registry: str, tmp_path: Path, known: tuple[str, ...], day: str
) -> None:
    """If the registry answers about no image, the table is untouched; if about some, its date stays."""
    FakeRegistry.pages = {
        "/v2/nvidia/cuda/manifests/1": INDEX,
        f"/v2/nvidia/cuda/manifests/{compute_digest(MANIFEST)}": MANIFEST,
        f"/v2/nvidia/cuda/blobs/{compute_digest(CONFIG)}": CONFIG,
        "/v2/a/b/manifests/1": b"damaged",
    }
    names = {"image": "nvidia/cuda:1", "missing": "a/b:1"}
    table = tmp_path / "manifests.json"
    old = '{"as_of": "2000-01-01", "images": []}'
    table.write_text(old, encoding="utf-8")
    code = (
        f"import update_images as script; from pathlib import Path; script.TABLE = Path({str(table)!r});"
        f"script.list_images = lambda _: {[names[key] for key in known]!r};"
        "print(json.dumps([script.main(['--registry', sys.argv[1]]), str(script.today())]))"
    )
    status, today = run_script_code(code, registry)
    assert status == int("missing" in known)
    text = table.read_text(encoding="utf-8")
    if day is None:
        assert text == old
    else:
        assert json.loads(text)["as_of"] == (today if day == "today" else day)
        assert [row["image"] for row in json.loads(text)["images"]] == ["nvidia/cuda:1"]


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
def test_invalid_answer_is_reported(registry: str, page: bytes | None, why: str) -> None:
    FakeRegistry.pages = {} if page is None else {"/v2/nvidia/cuda/manifests/1": page}
    with pytest.raises(ValueError, match=why):
        read_image(registry, "nvidia/cuda:1")


def test_configuration_with_another_digest_is_rejected(registry: str) -> None:
    FakeRegistry.pages = {"/v2/a/b/manifests/1": MANIFEST, f"/v2/a/b/blobs/{compute_digest(CONFIG)}": b"{}"}
    with pytest.raises(ValueError, match="not the one that the manifest names"):
        read_image(registry, "a/b:1")


def test_image_is_read_from_docker_registry(tmp_path: Path) -> None:
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
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
                upload = requests.post(f"{host}/v2/library/python/blobs/uploads/", timeout=30)
                location = upload.headers["Location"]
                response = requests.put(
                    location, params={"digest": compute_digest(blob)}, data=blob, timeout=30
                )
                assert response.status_code == 201, response.text
            headers = {"Content-Type": f"{OCI}.manifest.v1+json"}
            response = requests.put(
                f"{host}/v2/library/python/manifests/3", data=MANIFEST, headers=headers, timeout=30
            )
            assert response.status_code == 201, response.text
            assert read_image(f"127.0.0.1:{port}", "python:3") == {
                "digest": compute_digest(MANIFEST),
                **EXPECTED,
            }
            with pytest.raises(ValueError, match="404"):
                read_image(f"127.0.0.1:{port}", "python:4")
        finally:
            server.terminate()


# ---------------------------------------------------------------- the table and what plans show of it


def test_table_is_as_the_script_writes_it() -> None:
    process = subprocess.run(
        [sys.executable, str(SCRIPTS / "update_images.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (process.stderr, process.returncode) == ("", 0)


def plan_option(version: str, recipe: Recipe) -> Option:
    request = Request(tensorflow=version, method=Method.CONTAINER, recipe=recipe)
    return recommend(COMPAT, request, Host()).options[0]


def test_inferred_digest_is_shown_but_not_used() -> None:
    chosen = plan_option("2.17.0", Recipe.NGC)
    manifest = COMPAT.manifests.get_manifest("nvcr.io/nvidia/tensorflow:25.02-tf2-py3")
    assert manifest is not None
    assert manifest.evidence == "inferred"
    assert chosen.base is not None
    assert chosen.base.reference == "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"
    assert manifest.digest in "".join(render_details(chosen).split())
    assert "as other projects tell it; the registry was not asked" in " ".join(render_details(chosen).split())


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
def test_size_is_shown_or_unknown(version: str, recipe: Recipe, line: str) -> None:
    page = Page(200, coloured=False)
    print_option(page, plan_option(version, recipe), complete=False)
    assert line in [" ".join(shown_line.split()) for shown_line in page.text.splitlines()]


def test_every_entry_has_a_digest_or_a_size() -> None:
    for image in COMPAT.manifests.images:
        assert image.digest or image.unpacked_bytes or image.download_bytes, image.image
        assert image.evidence == "inferred" or image.digest, image.image


def test_measured_digest_is_used(tmp_path: Path) -> None:
    folder = tmp_path / "compat"
    shutil.copytree(data_dir("compat"), folder, ignore=shutil.ignore_patterns("logs", "imports"))
    entry = {
        "image": "python:3.11-slim-bookworm",
        "digest": f"sha256:{'1' * 64}",
        "download": 45_000_000,
        "layers": 4,
        "read": "2026-11-23",
        "evidence": "measured",
        "sources": ["a registry"],
    }
    table = {"schema_version": 1, "as_of": "2026-11-23", "images": [entry]}
    (folder / "manifests.json").write_text(json.dumps(table))
    compat = Compat.load(folder)
    request = Request(tensorflow="2.15.1", recipe=Recipe.PIP_CUDA)
    chosen = recommend(compat, request, Host()).options[0]
    assert chosen.base is not None
    assert chosen.base.reference == f"python:3.11-slim-bookworm@sha256:{'1' * 64}"
    details = " ".join(render_details(chosen).split())
    assert "45 MB to download in 4 layers (as the registry said, 2026-11-23)" in details


def test_base_without_a_manifest_is_unchanged() -> None:
    chosen = plan_option("2.15.1", Recipe.PIP_CUDA)
    base = chosen.base
    assert base is not None
    assert add_image_sizes(COMPAT, chosen).base == base == BaseImage(base.image, base.system, "python3")
