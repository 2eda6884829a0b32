"""Tests that a step that ends with settle.sh always gives the same layer, however slowly its container starts.

Needs a real engine, on Debian (TFDOCTOR_LAB=1); the images_old and images_middle tests have complete images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.images import MARKS, make_docker_engine
from lab.same_images import list_layer_files, list_layers
from tfdoctor.compat.folder import data_dir

if TYPE_CHECKING:
    from pathlib import Path

    from lab.engine import LabEngine

pytestmark = MARKS

STEP = """\
RUN sleep {} && since=$(date +%s.%N) \\
 && useradd --no-log-init --no-create-home --uid 1234 someone \\
 && mkdir /made && echo text >/made/file && ldconfig \\
 && sh /usr/local/share/tfdoctor/settle.sh "$since"
"""


def test_slow_container_gives_the_same_layer(lab_engine: LabEngine, tmp_path: Path) -> None:
    """Files that the engine creates at the start are then a second older than the step, and were in one layer only."""
    (tmp_path / "settle.sh").write_bytes((data_dir("dockerfiles") / "settle.sh").read_bytes())
    ground = make_docker_engine(lab_engine)
    layers, members = [], []
    for seconds in (0, 3):
        tag = ground.make_image_name(f"settled:{seconds}")
        (tmp_path / "Dockerfile").write_text(
            f"FROM {lab_engine.make_base_image('bookworm')}\nARG SOURCE_DATE_EPOCH=1560902400\n"
            f"COPY settle.sh /usr/local/share/tfdoctor/\n{STEP.format(seconds)}",
            encoding="ascii",
        )
        lab_engine.docker("build", "--no-cache", "--tag", tag, str(tmp_path))
        layers.append(list_layers(ground, tag)[-1])
        members.append(list_layer_files(ground, tag, tmp_path)[-1])
        ground.remove(tag)
    assert members[0] == members[1]
    assert layers[0] == layers[1]
    assert members[0].keys() >= {"made/file", "etc/passwd"}
    assert {entry[4] for name, entry in members[0].items() if name.startswith("made")} == {1560902400}
