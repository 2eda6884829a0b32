"""What `build` has made, in a terminal and as JSON (docs/schemas/build.schema.json)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdoctor.render.plan import option_json, render_option, size_text
from tfdoctor.render.verify import verification_json
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from tfdoctor.findings import Verification
    from tfdoctor.plan import Option

__all__ = ["build_json", "render_built", "render_dry_run"]


def render_dry_run(
    option: Option, dockerfile: str, tag: str, *, width: int = 80, colour: bool = False
) -> str:
    """The plan and its Dockerfile."""
    shown = render_option(option, width=width, colour=colour)
    return f"{shown}\nNothing was built. This would be {tag}:\n\n{dockerfile}"


def render_built(option: Option, tag: str, size: int, seconds: float) -> str:
    """What there is now, how it is run and how it is removed. size: in bytes."""
    name = option.base.image if option.base is not None else ""
    return (
        f"Built {tag} ({size_text(size)}, {seconds:.0f} s) on {clean_line(name)}: TensorFlow "
        f"{option.tensorflow}, Python {option.python}, CUDA {option.cuda}.\n"
        f"Run it:     docker run --rm -it --gpus all {tag}\n"
        f"Remove it:  docker rmi {tag}\n"
    )


def build_json(
    option: Option,
    dockerfile: str,
    image: dict[str, Any] | None = None,
    verification: Verification | None = None,
) -> dict[str, Any]:
    """The document that `tfdoctor build --json` prints. `image`: its `id`, `tags` and `size_bytes`."""
    return {
        "schema_version": 1,
        "plan": option_json(option, 1),
        "dockerfile": dockerfile,
        "image": image,
        "verification": verification_json(verification) if verification is not None else None,
    }
