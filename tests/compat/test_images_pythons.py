"""Images and Pythons: the tables, their strict readers and the queries."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from tfdoctor.compat import Compat, DataError
from tfdoctor.compat.folder import data_dir
from tfdoctor.core import versions

COMPAT = Compat.load()
IMAGES = COMPAT.images


# --- nvidia/cuda ---


def test_tags_of_nvidia_cuda() -> None:
    names = [tag.name for tag in IMAGES.list_tags("11.8", cudnn_major=8, flavour="runtime")]
    assert names == [
        f"nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu{system}" for system in ("22.04", "20.04", "18.04")
    ]
    cudnn_by_system = {
        tag.system: tag.cudnn for tag in IMAGES.list_tags("11.8", cudnn_major=8, flavour="runtime")
    }
    assert cudnn_by_system == {"22.04": "8.9.6.50", "20.04": "8.9.6.50", "18.04": "8.6.0.163"}
    assert (
        IMAGES.list_tags("12.4", cudnn_major=9, flavour="devel")[0].name
        == "nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04"
    )
    assert IMAGES.list_tags("12.3", flavour="base")[0].name == "nvidia/cuda:12.3.2-base-ubuntu22.04"
    assert not IMAGES.list_tags("12.3", cudnn_major=8), "12.3.2 has cuDNN 9, the others none"
    assert not IMAGES.list_tags("10")
    assert not IMAGES.list_tags("14")


def test_no_cudnn_differs_from_unknown_cudnn() -> None:
    assert not any(tag.has_cudnn for tag in IMAGES.list_tags("12.2"))
    tags = IMAGES.list_tags("11.1", cudnn_major=8, system="18.04")
    assert tags
    assert all(tag.has_cudnn and tag.cudnn is None for tag in tags)


def test_deleted_and_unknown_releases_differ() -> None:
    assert IMAGES.find_deleted("10.0") is not None
    assert IMAGES.find_deleted("11.4.1") is not None
    assert IMAGES.find_deleted("11.4") is None, "11.4.3 is there"
    assert IMAGES.find_deleted("99.0") is None, "nobody knows"


def test_no_listed_release_is_marked_as_deleted() -> None:
    keys = [versions.parse_numbers(release.version) for release in IMAGES.cuda_images]
    assert keys == sorted(set(keys))
    for release in IMAGES.cuda_images:
        assert not any(
            versions.satisfies(release.version, deletion.versions) for deletion in IMAGES.deleted_images
        )
        assert list(release.systems) == sorted(release.systems, key=versions.parse_numbers)
        assert release.flavours or release.status == "listed"
        for version in release.cudnn_by_system.values():
            assert re.fullmatch(r"[89]\.\d+\.\d+\.\d+", version)


def test_newer_cuda_images_have_newer_cudnn() -> None:
    for system in ("20.04", "22.04"):
        cudnn_versions = [
            release.cudnn_by_system[system]
            for release in IMAGES.cuda_images
            if system in release.cudnn_by_system and release.version != "11.8.0"
        ]
        assert all(versions.compare(a, b) <= 0 for a, b in itertools.pairwise(cudnn_versions))


# --- images of TensorFlow and NVIDIA ---


def test_official_image_works_if_it_has_the_sonames() -> None:
    """Compare the CUDA and cuDNN of each image with the sonames that the release's wheel opens."""
    exceptions: set[str] = set()
    for release in COMPAT.releases:
        image = IMAGES.find_official(release.version)
        if not release.gpu or image is None or release.cuda is None:
            continue
        recipe = image.recipe
        same_cuda = versions.major(recipe.cuda) == versions.major(release.cuda)
        cudnn = next((name for name in release.required_libraries if name.startswith("libcudnn.so.")), None)
        same_cudnn = (
            cudnn is None or recipe.cudnn is None or cudnn == f"libcudnn.so.{versions.major(recipe.cudnn)}"
        )
        assert recipe.has_working_libraries == (same_cuda and same_cudnn), release.version
        # Some late patches have no wheel for the Python of their minor's recipe; their images are built differently.
        if recipe.python not in release.linux_pythons:
            exceptions.add(release.version)
    assert exceptions == {"1.15.5", "2.5.3", "2.6.3", "2.6.4", "2.6.5"} & exceptions


def test_each_final_gpu_release_has_at_most_one_recipe() -> None:
    missing = set()
    for release in COMPAT.releases:
        recipes = [r for r in IMAGES.official_recipes if versions.satisfies(release.version, r.versions)]
        assert len(recipes) <= 1
        if release.gpu and not release.is_prerelease and not recipes:
            missing.add(release.version)
    # Docker Hub has no tag of these patch releases.
    assert missing == {
        *("2.1.3", "2.1.4", "2.4.4", "2.5.2", "2.6.3", "2.6.4", "2.6.5"),
        *("2.12.1", "2.13.1", "2.14.1", "2.15.1", "2.17.1"),
    }


def test_ngc_images() -> None:
    assert IMAGES.list_ngc()[0].name == "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"
    assert [image.tag for image in IMAGES.list_ngc("1.15")] == [
        "23.03-tf1-py3",
        "23.01-tf1-py3",
        "22.10-tf1-py3",
        "21.10-tf1-py3",
        "21.04-tf1-py3",
        "20.06-tf1-py3",
        "19.11-tf1-py3",
    ]
    assert all("-tf1-" not in image.tag for image in IMAGES.list_ngc("2"))
    assert {image.cuda for image in IMAGES.list_ngc(cuda="12")} == {
        "12.0.1",
        "12.1.0",
        "12.1.1",
        "12.4.1",
        "12.8.0.38",
    }
    for image in IMAGES.ngc_images:
        assert list(image.compat_drivers) == sorted(image.compat_drivers, key=versions.parse_numbers)
        assert not image.compat_drivers or (
            image.driver and versions.compare(image.compat_drivers[0], image.driver) < 0
        )
        assert COMPAT.find_cuda_series(image.cuda) or COMPAT.find_cuda_release(image.cuda)


# --- Pythons ---


def test_builds_of_a_python() -> None:
    origins = [build.origin for build in COMPAT.pythons.find_builds("3.9.18")]
    assert origins == ["ubuntu 20.04", "python-build-standalone", "pyenv"]
    candidate = COMPAT.pythons.find_builds("3.11", system="22.04")[0]
    assert candidate.is_prerelease
    assert not COMPAT.pythons.find_builds("2.6")


def test_every_python_of_a_gpu_release_is_available() -> None:
    for release in COMPAT.releases:
        if release.gpu and versions.is_at_least(release.version, "2.0"):
            assert any(COMPAT.pythons.find_builds(python) for python in release.linux_pythons)


def test_newer_system_has_a_newer_glibc() -> None:
    keys = [
        (versions.parse_numbers(system.name), versions.parse_numbers(system.glibc))
        for system in COMPAT.pythons.systems
    ]
    assert keys == sorted(keys)


def test_every_official_image_that_is_suggested_finds_its_libraries() -> None:
    """No text of the code or of compat/remedies.toml names an image in which TensorFlow runs on the CPU."""
    import tfdoctor

    paths = [data_dir("compat") / "remedies.toml", *Path(tfdoctor.__file__).parent.rglob("*.py")]
    tags = {
        tag
        for path in paths
        for tag in re.findall(r"tensorflow/tensorflow:([\w.-]+)", path.read_text(encoding="utf-8"))
    }
    assert tags
    working = set()
    for release in COMPAT.gpu_releases:
        image = IMAGES.find_official(release.version)
        if image is not None and image.recipe.has_working_libraries:
            working |= {name.partition(":")[2] for name in image.names}
    assert tags <= working


# --- reading the tables ---


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("images.toml", 'status = "supported"', 'status = "suported"', "did you mean `supported`"),
        ("images.toml", "cudnn_tag =", "cudnn_tags =", "unknown key `cudnn_tags`"),
        (
            "images.toml",
            'flavours = ["base", "runtime"',
            'flavours = ["bare", "runtime"',
            "`flavours` is `bare`; it can be base, runtime, devel",
        ),
        ("images.toml", 'cudnn = { "20.04"', 'cudnn = { "26.04"', "`26.04` has cuDNN"),
        ("images.toml", 'versions = "==11.2.0"', 'versions = "=11.2.0"', "not a specification"),
        ("images.toml", "works = false", "works = true", "`why`"),
        ("images.toml", "{version}-gpu", "latest-gpu", "{version}"),
        ("images.toml", 'version = "11.1.1"', 'version = "11.0.3"', "twice"),
        ("images.toml", "schema_version = 1", "schema_version = 2", "schema_version is 2"),
        ("images.toml", 'tag = "3.14-slim-bookworm"', 'tags = "3.14-slim-bookworm"', "did you mean `tag`"),
        ("images.toml", 'tag = "3.13-slim-bookworm"', 'tag = "3.14-slim-bookworm"', "twice"),
        ("pythons.toml", "glibc =", "libc =", "did you mean `glibc`"),
        ("pythons.toml", 'prerelease = ["3.11"]', 'prerelease = ["3.12"]', "`prerelease`"),
        ("pythons.toml", "{python}", "3.9", "{python}"),
        ("pythons.toml", '"3.8" = "3.8.20"', '"3.8" = "3.9.20"', "3.9.20 is no 3.8"),
        ("pythons.toml", "as_of =", "as-of =", "as_of"),
    ],
)
def test_invalid_table_is_rejected(tmp_path: Path, name: str, old: str, new: str, message: str) -> None:
    text = (data_dir("compat") / name).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(message)):
        _ = Compat(tmp_path).images if name == "images.toml" else Compat(tmp_path).pythons


# --- slim images of Python ---


def test_slim_images_of_pythons() -> None:
    image = IMAGES.find_python("3.11")
    assert image is not None
    assert (image.name, image.system, image.glibc) == ("python:3.11-slim-bookworm", "debian 12", "2.36")
    assert IMAGES.find_python("3.4") is None
    assert IMAGES.find_python("3.1") is None


def test_slim_image_matches_its_tag() -> None:
    names = {
        "buster": ("debian 10", "2.28"),
        "bullseye": ("debian 11", "2.31"),
        "bookworm": ("debian 12", "2.36"),
    }
    assert len({image.python for image in IMAGES.python_images}) == len(IMAGES.python_images)
    for image in IMAGES.python_images:
        python, slim, system = image.tag.split("-")
        assert (python, slim) == (image.python, "slim")
        assert (image.system, image.glibc) == names[system]
        assert image.digest is None or re.fullmatch(r"sha256:[0-9a-f]{64}", image.digest)


def test_every_python_of_a_gpu_release_has_a_slim_image() -> None:
    for release in COMPAT.releases:
        for python in release.linux_pythons if release.gpu else ():
            image = IMAGES.find_python(python)
            if python in ("3.3", "3.4"):
                assert image is None
                continue
            assert image is not None, f"{release.version} on {python}"
            assert release.glibc is None or versions.is_at_least(image.glibc, release.glibc)


def test_unpacked_size_is_at_least_the_packed_size() -> None:
    for release in COMPAT.releases:
        assert 0 < release.size_bytes <= release.unpacked_bytes < 4 * release.size_bytes + 2_000_000_000, (
            release.version
        )
    newest = COMPAT.find_release("2.21.0")
    assert newest.unpacked_bytes > 1_000_000_000


def test_cudnn_of_a_listed_image_may_be_unknown() -> None:
    assert not [
        tag
        for image in IMAGES.cuda_images
        if image.cudnn_tag == "cudnn" and not image.cudnn_by_system
        for major in (8, 9)
        for tag in IMAGES.list_tags(image.version, cudnn_major=major)
    ]


@pytest.mark.parametrize(
    ("system", "release", "managed", "python"),
    [
        ("ubuntu", "24.04", True, "3.12"),
        ("ubuntu", "noble", True, "3.12"),
        ("ubuntu", "22.04", False, "3.10"),
        ("debian", "12", True, "3.11"),
        ("debian", "bullseye", False, "3.9"),
        ("debian", "24.04", False, None),
        ("ubuntu", "12", False, None),
        ("fedora", "24.04", False, None),
    ],
)
def test_python_of_a_system(system: str, release: str, managed: bool, python: str | None) -> None:
    assert COMPAT.pythons.is_managed(system, release) is managed
    assert COMPAT.pythons.get_default_python(system, release) == python
