"""The result of `build`, as text and as JSON (docs/schemas/build.schema.json)."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from tfdoctor.core.text import clean_line
from tfdoctor.images.emit import CUDA_CACHE_VOLUME, format_run_command
from tfdoctor.images.folder import group_app_files
from tfdoctor.render.json import make_document_head
from tfdoctor.render.paragraphs import Page, Text, print_commands, print_hanging
from tfdoctor.render.plan import format_bytes, make_option_json, print_option
from tfdoctor.render.screen import print_more_commands
from tfdoctor.render.verify import make_verification_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdoctor.core.findings import Verification
    from tfdoctor.images.emit import EmittedImage
    from tfdoctor.planning import Option
    from tfdoctor.remedies.target import TargetImage

__all__ = ["make_build_json", "render_build_folder", "render_built_image", "render_dry_run"]


def render_dry_run(
    image: EmittedImage, *, complete: bool = True, width: int = 80, colour: bool = False
) -> str:
    """Return the plan on one screen, or the complete plan with its Dockerfile if `complete` is set."""
    out = Page(width, coloured=colour)
    print_option(out, image.option, complete=complete)
    out.print()
    if complete:
        return f"{out.text}\nNothing was built. This would be {image.tag}:\n\n{image.context.dockerfile}"
    print_hanging(out, Text(""), f"Nothing was built. This would be {clean_line(image.tag)}. To build it:")
    print_commands(out, [image.command], 4, style="bold", with_continuations=True)
    print_hanging(out, Text(""), "No root needed where you may use Docker. To undo it:")
    print_commands(out, [f"docker rmi {clean_line(image.tag)}"], 4, with_continuations=True)
    out.print()
    print_more_commands(
        out, "More", [("--print", "the Dockerfile"), ("add -v", "all parts, and the Dockerfile")]
    )
    return out.text


def render_build_folder(
    folder: str,
    files: Mapping[str, bytes],
    image: EmittedImage,
    *,
    replaced: Sequence[str],
    unchanged: Sequence[str],
    dry_run: bool,
) -> str:
    """Return the files in the build folder and the command that builds the image.

    `replaced` are the files that were overwritten, and `unchanged` those that were already up to date. With `dry_run`,
    nothing was written, and the text says what the folder would contain.
    """
    new_files = [name for name in files if name not in replaced and name not in unchanged]
    groups = [
        (label, group_app_files(names))
        for label, names in (("new", new_files), ("replaced", replaced), ("unchanged", unchanged))
    ]
    file_list = "; ".join(f"{label}: {', '.join(sorted(names))}" for label, names in groups if names)
    prefix = f"Nothing was written. {folder} would have" if dry_run else f"{folder} has"
    return (
        f"{prefix} all that makes {image.tag}.\n"
        f"Files:     {file_list}\n"
        f"Build it:  {image.format_build_command('docker build', shlex.quote(folder))}\n"
        "Run it:    see README.md there\n"
    )


def render_built_image(
    option: Option, image: TargetImage, size: int, seconds: float, *, user: str = ""
) -> str:
    """Return a summary of the image, and the commands that run and remove it.

    `size` is the size of the image in bytes. `user` is the value of `run --user`, or "" for the image's own user.
    """
    name = option.base.image if option.base is not None else ""
    return (
        f"Built {image.name} ({format_bytes(size)}, {seconds:.0f} s) on {clean_line(name)}: TensorFlow "
        f"{option.tensorflow}, Python {option.python}, CUDA {option.cuda}.\n"
        f"Run it:     {format_run_command(image, user=user)}\n"
        f"Remove it:  {image.engine_command} rmi {image.name}   (and what it kept: "
        f"{image.engine_command} volume rm {CUDA_CACHE_VOLUME})\n"
    )


def make_build_json(
    option: Option,
    dockerfile: str,
    image: dict[str, Any] | None = None,
    verification: Verification | None = None,
) -> dict[str, Any]:
    """Return the document that `tfdoctor build --json` prints.

    `image` has the keys `id`, `tags`, `size_bytes` and `pushed`. It is None if no image was built.
    """
    return {
        **make_document_head("build"),
        "plan": make_option_json(option, 1),
        "dockerfile": dockerfile,
        "image": image,
        "verification": make_verification_json(verification) if verification is not None else None,
    }
