"""Fixtures of the engine tests: a container engine and test images."""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING

import pytest

from lab import environments
from lab.images import BuiltImage, make, make_docker_engine
from lab.small import make_small_root
from tfdoctor.images.engine import BuildRequest, ContainerEngine, EngineError, build, connect
from tfdoctor.images.engine.container_run import CONTAINER_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.engine import LabEngine

PREFIX = "tfdoctor-test"
"""Prefix of the names of all test images."""
SLOW_APT = """\
#!/bin/sh
echo "apt-get $*"
[ -f /etc/apt-fails ] || sleep 60
n=0; while [ $n -lt 60 ]; do n=$((n+1)); echo "line $n"; done
sleep 0.3
echo "E: No space left on device" >&2
exit 100
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use an engine: they share it and must run one after the other."""
    for item in items:
        if "engine" in item.path.parent.parts and {"engine", "lab_engine"} & {
            *getattr(item, "fixturenames", ())
        }:
            item.add_marker(pytest.mark.engine)


@pytest.fixture(autouse=True)
def classic_builder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Select the classic builder, because this machine's client may have BuildKit."""
    monkeypatch.setenv("DOCKER_BUILDKIT", "0")


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[ContainerEngine]:
    """Yield the lab's engine if the lab is on, else the first that answers; skip if none does."""
    url = request.getfixturevalue("lab_engine").url if environments.is_lab_enabled() else None
    connection = None
    try:
        connection = connect(url)
    except EngineError as failure:
        reason = str(failure)
    if connection is None:
        # Outside the handler: else the chained exception keeps the socket, which the SDK leaves to the garbage collector.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        pytest.skip(reason)
    yield connection
    connection.client.close()


@pytest.fixture(scope="session")
def small(engine: ContainerEngine) -> Iterator[str]:
    """Yield the name of a small image with a shell, Python and tfdoctor."""
    name = f"{PREFIX}/small:1"
    engine.client.api.import_image_from_data(
        make_small_root(with_tfdoctor=True), repository=name.partition(":")[0], tag="1"
    )
    image = engine.find_image(name)
    assert image is not None
    yield name
    for child in _list_descendants(engine, image.id):
        engine.remove_image(child, force=True)
    engine.remove_image(name, force=True)


@pytest.fixture(scope="session")
def slow_base(engine: ContainerEngine, small: str) -> str:
    """Return an image whose apt-get takes a minute and then fails; it fails at once if /etc/apt-fails exists."""
    files = {"apt-get": SLOW_APT.encode(), "date": b"#!/bin/sh\necho 0\n"}
    modes = "; ".join(f'os.chmod("/usr/bin/{name}", 0o755)' for name in files)
    dockerfile = f"FROM {small}\nCOPY {' '.join(files)} /usr/bin/\nRUN python3 -c 'import os; {modes}'\n"
    name = f"{PREFIX}/slow:1"
    list(build(engine, BuildRequest(dockerfile, files, name)))
    return name


@pytest.fixture(scope="session")
def requirements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("requirements") / "requirements.txt"


@pytest.fixture(scope="session")
def modern(lab_engine: LabEngine, requirements: Path) -> Iterator[BuiltImage]:
    """Yield an image of TensorFlow 2.21 with NVIDIA's wheels, on Debian's Python 3.11."""
    requirements.write_text("colorama==0.4.5\n", encoding="ascii")
    arguments = ("--tf", "2.21", "--python-version", "3.11", "-r", str(requirements))
    yield make(
        lab_engine.url, "tfdoctor-lab/modern:1", "--base", lab_engine.make_base_image("bookworm"), *arguments
    )
    make_docker_engine(lab_engine).remove("tfdoctor-lab/modern:1")


def _list_descendants(engine: ContainerEngine, root: str) -> list[str]:
    """Return the ids of the images made from this image, leaves first."""
    parents = {image["Id"]: image.get("ParentId") for image in engine.client.api.images(all=True)}
    ids = [root]
    for ancestor in ids:
        ids += [child for child, parent in parents.items() if parent == ancestor]
    return ids[:0:-1]


def containers_of(engine: ContainerEngine, image: str) -> list[str]:
    """Return all containers of this image or of its descendants, and all with tfdoctor's label."""
    containers = engine.client.api.containers(all=True, filters={"ancestor": image})
    containers += engine.client.api.containers(all=True, filters={"label": CONTAINER_LABEL})
    return [f"{container['Image']} {container['Command']} {container['State']}" for container in containers]


@pytest.fixture
def nothing_left(engine: ContainerEngine, small: str) -> Iterator[None]:
    """Assert that the test leaves no container and no new image name behind."""
    before = _list_tags(engine)
    yield
    assert containers_of(engine, small) == []
    assert _list_tags(engine) == before


def _list_tags(engine: ContainerEngine) -> set[str]:
    images = engine.client.api.images()
    return {tag for image in images for tag in image.get("RepoTags") or () if tag.startswith(PREFIX)}
