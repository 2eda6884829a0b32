"""A real engine for the tests here: the lab's own where the lab is on, else whichever answers, else a skip."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab import environments
from lab.images import Built, docker_ground, make
from lab.small import small_root
from tfdoctor.engine import BuildRequest, ContainerEngine, EngineError, build, connect
from tfdoctor.engine.container_run import LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.engine import LabEngine

PREFIX = "tfdoctor-test"
"""All images made here are named so."""
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
    """One engine serves all tests that are here: they are run one after the other."""
    for item in items:
        if "engine" in item.path.parent.parts:
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[ContainerEngine]:
    url = request.getfixturevalue("lab_engine").url if environments.parse_wanted() else None
    one = None
    try:
        one = connect(url)
    except EngineError as failure:
        why = str(failure)
    if one is None:
        # out here: what a skip is raised from is kept to the end, and the SDK's open socket with it
        pytest.skip(why)
    yield one
    one.client.close()


@pytest.fixture(scope="session")
def small(engine: ContainerEngine) -> Iterator[str]:
    """The name of a small image with a shell and a Python, and with tfdoctor in it."""
    name = f"{PREFIX}/small:1"
    engine.client.api.import_image_from_data(
        small_root(with_tfdoctor=True), repository=name.partition(":")[0], tag="1"
    )
    image = engine.image(name)
    assert image is not None
    yield name
    for child in _family(engine, image.id):
        engine.remove_image(child, force=True)
    engine.remove_image(name, force=True)


@pytest.fixture(scope="session")
def slow_base(engine: ContainerEngine, small: str) -> str:
    """An image that has an apt-get, which takes a minute (and then fails; at once where /etc/apt-fails is)."""
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
def modern(lab_engine: LabEngine, requirements: Path) -> Iterator[Built]:
    """TensorFlow 2.21 with NVIDIA's wheels, on Debian's Python 3.11."""
    requirements.write_text("colorama==0.4.5\n", encoding="ascii")
    words = ("--tf", "2.21", "--python", "3.11", "-r", str(requirements))
    yield make(lab_engine.url, "tfdoctor-lab/modern:1", "--base", lab_engine.base("bookworm"), *words)
    docker_ground(lab_engine).remove("tfdoctor-lab/modern:1")


def _family(engine: ContainerEngine, root: str) -> list[str]:
    """The images made from this one, leaves first."""
    parents = {one["Id"]: one.get("ParentId") for one in engine.client.api.images(all=True)}
    found = [root]
    for above in found:
        found += [child for child, parent in parents.items() if parent == above]
    return found[:0:-1]


def containers_of(engine: ContainerEngine, image: str) -> list[str]:
    """All containers of this image or made from it, and all that tfdoctor labelled."""
    listed = engine.client.api.containers(all=True, filters={"ancestor": image})
    listed += engine.client.api.containers(all=True, filters={"label": LABEL})
    return [f"{one['Image']} {one['Command']} {one['State']}" for one in listed]


@pytest.fixture
def nothing_left(engine: ContainerEngine, small: str) -> Iterator[None]:
    """No container and no newly named image is there after the test."""
    before = _tags(engine)
    yield
    assert containers_of(engine, small) == []
    assert _tags(engine) == before


def _tags(engine: ContainerEngine) -> set[str]:
    listed = engine.client.api.images()
    return {tag for one in listed for tag in one.get("RepoTags") or () if tag.startswith(PREFIX)}
