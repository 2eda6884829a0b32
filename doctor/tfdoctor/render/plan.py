"""The result of the planner, as text and as JSON (docs/schemas/recommend.schema.json)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfdoctor.core.findings import Cause, Status
from tfdoctor.core.text import clean_line, join_words, upper_first
from tfdoctor.planning.models import Method, Recipe
from tfdoctor.render.finding import format_mark
from tfdoctor.render.json import make_document_head
from tfdoctor.render.paragraphs import (
    SCREEN_LINES,
    Page,
    Text,
    count_columns,
    format_commands,
    print_commands,
    print_hanging,
    shorten_text,
    truncate_text,
)
from tfdoctor.render.screen import MIN_WIDE_COLUMNS, format_count, print_more_commands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.findings import Remedy
    from tfdoctor.planning import Component, Option, Recommendation, Rejection, Request
    from tfdoctor.prediction.fit.models import Caveat, Host, Reason

__all__ = [
    "format_bytes",
    "make_option_json",
    "make_recommendation_json",
    "print_option",
    "render_recommendation",
]

MIN_TABLE_COLUMNS = 70
"""From this width in columns on, the options are printed as a table."""
COMMAND_LABEL_COLUMNS = 16
"""The width of the label before an option's command, such as "  No container  ", in columns."""
MAX_PARTS = 4
"""The largest number of parts in a shortened option."""
LABEL_BY_REPOSITORY = {
    "tensorflow/tensorflow": "TensorFlow's image",
    "nvidia/tensorflow": "NVIDIA's image",
    "nvidia/cuda": "NVIDIA's CUDA image",
}
"""What the table of options calls the images of a repository."""
SHORTENING_LEVELS = ((3, 4), (3, 2), (3, 1), (2, 1), (1, 1))
"""The levels of shortening: (largest number of options or reasons, largest number of lines of a caveat)."""


def render_recommendation(
    recommendation: Recommendation, *, verbose: bool = False, width: int = 80, colour: bool = False
) -> str:
    """Return the recommendation as text, shortened until it fits on one screen.

    With `verbose`, the text is not shortened. Commands are not wrapped.
    """
    for max_items, max_lines in SHORTENING_LEVELS if width >= MIN_WIDE_COLUMNS else SHORTENING_LEVELS[:1]:
        out = Page(width, coloured=colour)
        print_hanging(out, Text(""), _describe_host(recommendation.host))
        out.print()
        if recommendation.cpu_remedy is not None and recommendation.conflict is None:
            _print_cpu_option(out, recommendation.cpu_remedy, "✓ ")
        if recommendation.conflict is not None:
            _print_conflict(out, recommendation, max_items, max_lines, verbose=verbose)
        elif verbose:
            for index, option in enumerate(recommendation.options):
                if index:
                    out.print()
                _print_option(out, option, index)
        else:
            if width >= MIN_TABLE_COLUMNS:
                _print_table(
                    out,
                    recommendation.options[:max_items],
                    max_lines,
                    best_label="With a GPU" if recommendation.host.has_no_gpu else "Best",
                )
            else:
                for index, option in enumerate(recommendation.options[:max_items]):
                    _print_brief_option(out, option, index, max_lines)
            if max_items > 1:
                _print_newest_rejection(out, recommendation)
            _print_footer(out, recommendation, max_items)
        if verbose:
            _print_rejected(out, recommendation)
        if verbose or out.height <= SCREEN_LINES:
            break
    return out.text


def _print_cpu_option(out: Page, remedy: Remedy, mark: str) -> None:
    print_hanging(
        out, Text(mark, style="green" if mark.strip() else ""), clean_line(remedy.text), style="bold"
    )
    print_commands(out, remedy.commands, 4, style="bold", with_continuations=True)
    out.print()


def _list_caveats(option: Option, *, with_gpu_limits: bool = True) -> list[str]:
    """Return the important caveats of an option. `with_gpu_limits` adds the limits of the GPUs that it supports."""
    return [
        clean_line(caveat.text, limit=1000)
        for caveat in option.caveats
        if caveat.is_serious
        or caveat.cause is Cause.DRIVER_TOO_OLD
        or (with_gpu_limits and caveat.cause in (Cause.GPU_TOO_NEW, Cause.GPU_TOO_OLD))
    ]


def _print_table(out: Page, options: Sequence[Option], max_lines: int, *, best_label: str) -> None:
    """Print the options as a table, followed by commands and by the caveats as footnotes.

    The commands are those of the best option, after `best_label`, and of the best option with the other method.
    """
    caveats = list(dict.fromkeys(caveat for option in options for caveat in _list_caveats(option)))
    rows = [("TensorFlow", "Python", "CUDA", "cuDNN", "how", "size", "but" if caveats else "")]
    for option in options:
        numbers = [str(caveats.index(caveat) + 1) for caveat in _list_caveats(option)]
        size = format_bytes(option.size_bytes) if option.size_bytes is not None else "?"
        # The table has only the major and minor versions.
        cuda, cudnn = (".".join(text.split(".")[:2]) for text in (option.cuda, option.cudnn or "?"))
        rows.append(
            (option.tensorflow, option.python, cuda, cudnn, _format_method(option), size, ", ".join(numbers))
        )
    widths = [max(count_columns(row[column]) for row in rows) for column in range(len(rows[0]))]
    # Only the method may be shortened.
    method_column = 4
    other_width = 2 + sum(widths) - widths[method_column] + 2 * (len(widths) - 1)
    widths[method_column] = min(widths[method_column], out.width - other_width)
    for number, row in enumerate(rows):
        cells = [
            truncate_text(clean_line(text), column_width).ljust(column_width)
            for text, column_width in zip(row, widths, strict=True)
        ]
        row_mark = (
            format_mark(Status.WARNING if options[number - 1].serious_count else Status.GOOD)
            if number
            else Text("  ")
        )
        out.print(row_mark + Text("  ".join(cells), style="" if number else "bold"), wrap=False)
    out.print()
    _print_command(out, best_label, options[0], style="bold")
    alternative = next((option for option in options if option.method is not options[0].method), None)
    if alternative is not None:
        _print_command(out, "No container" if options[0].base is not None else "Container", alternative)
    for number, caveat in enumerate(caveats, 1):
        if number == 1:
            out.print()
        print_hanging(out, Text(f"  {number}  "), shorten_text(caveat, out.width - 5, max(max_lines - 1, 1)))
    out.print()


def _format_method(option: Option) -> str:
    """Return the method of an option, such as "NVIDIA's image 25.02-tf2-py3".

    The images of TensorFlow and NVIDIA have the same name in different registries, so that the owner is named.
    """
    if option.base is None:
        return "virtual environment"
    repository, _, tag = option.base.image.rpartition(":")
    for name, label in LABEL_BY_REPOSITORY.items():
        if f"/{repository}".endswith(f"/{name}"):
            return f"{label} {tag.partition('-cudnn')[0]}"
    return f"image {option.base.image.rpartition('/')[2]}"


def _print_command(out: Page, name: str, option: Option, *, style: str = "") -> None:
    """Print the commands of an option beside a label, or below it if they need the full width."""
    for index, line in enumerate(format_commands(option.commands, COMMAND_LABEL_COLUMNS, out.width)):
        label = Text((f"  {name}" if index == 0 else "").ljust(COMMAND_LABEL_COLUMNS), style="bold")
        if index == 0 and line[:COMMAND_LABEL_COLUMNS].strip():
            out.print(label)
            label = Text("")
        out.print(label + Text(line[COMMAND_LABEL_COLUMNS:] if len(label) else line, style=style), wrap=False)


def _print_brief_option(out: Page, option: Option, index: int, max_lines: int) -> None:
    """Print an option with its commands and caveats and, if it is the first option, its contents.

    `max_lines` is the largest number of lines of a caveat.
    """
    _print_title(out, option, index)
    style = "" if index else "bold"
    print_commands(out, option.commands, 4, style=style, with_continuations=True)
    if not index:
        print_hanging(out, Text("  Has   "), _describe_contents(option))
    for caveat in _list_caveats(option):
        print_hanging(out, Text("  But   "), shorten_text(caveat, out.width - 8, max_lines))
    out.print()


def _print_newest_rejection(out: Page, recommendation: Recommendation) -> None:
    """Print why the newest rejected release does not work, unless an option has the same release."""
    newest_rejection = next(iter(recommendation.rejections), None)
    if newest_rejection is None or any(
        option.tensorflow == newest_rejection.tensorflow for option in recommendation.options
    ):
        return
    text = _format_rejection(newest_rejection)
    print_hanging(
        out,
        Text("  Not   "),
        shorten_text(clean_line(f"{newest_rejection.tensorflow}: {text}", limit=600), out.width - 8, 2),
    )
    out.print()


def _format_rejection(rejection: Rejection) -> str:
    """Return the first two reasons of a rejection on one line."""
    texts = [reason.text for reason in rejection.reasons[:2]]
    return "; ".join([*(text.removesuffix(".") for text in texts[:-1]), *texts[-1:]])


def _print_footer(out: Page, recommendation: Recommendation, max_options: int) -> None:
    hidden_option_count = len(recommendation.options) - max_options
    parts = [format_count(hidden_option_count, "other way")] if hidden_option_count > 0 else []
    if recommendation.rejections:
        parts.append(f"why {len(recommendation.rejections)} others do not fit")
    print_more_commands(out, "More", [("add -v", join_words(parts or ["all parts"]))])


def print_option(out: Page, option: Option, *, complete: bool) -> None:
    """Print an option without its commands, for `--dry-run`. Unless `complete` is set, shorten it."""
    if complete:
        _print_option(out, option, 0, with_commands=False)
        return
    _print_title(out, option, 0)
    print_hanging(out, Text("  Has   "), _describe_contents(option))
    for caveat in _list_caveats(option, with_gpu_limits=False)[:2]:
        print_hanging(out, Text("  But   "), shorten_text(caveat, out.width - 8, 2))
    parts_by_size = sorted(option.components, key=lambda part: -(part.size_bytes or 0))
    sized_parts = [part for part in parts_by_size if part.size_bytes is not None]
    for part in sized_parts[:MAX_PARTS]:
        out.print(Text(f"  {format_bytes(part.size_bytes or 0):>9}  {clean_line(part.name)}"))
    if len(sized_parts) > MAX_PARTS:
        other_parts = sized_parts[MAX_PARTS:]
        total = format_bytes(sum(part.size_bytes or 0 for part in other_parts))
        out.print(Text(f"  {total:>9}  {format_count(len(other_parts), 'other part')}"))
    parts_without_size = [part for part in parts_by_size if part.size_bytes is None]
    for part in parts_without_size:
        if part.download_bytes is not None:
            download_text = f"{clean_line(part.name)}: {format_bytes(part.download_bytes)} to download"
            print_hanging(out, Text(f"  {'?':>9}  "), download_text)
    names = join_words([clean_line(part.name) for part in parts_without_size if part.download_bytes is None])
    if names:
        print_hanging(
            out, Text(f"  {'?':>9}  "), shorten_text(f"{names}: size not known", max(out.width - 13, 12), 2)
        )


def _describe_host(host: Host) -> str:
    """Return the GPUs, the driver and the platform of the machine that the recommendation is for."""
    cards = ", ".join(
        card.name  # the name is, for example, "compute capability 8.6" if the user named no model
        if "capability" in card.name
        else f"{card.name} ({' or '.join((card.capability, *card.other_capabilities))})"
        for card in host.cards
    )
    driver = f"driver {host.driver}" if host.driver else "driver not known"
    if host.driver is not None and "." not in host.driver:  # the user named only a branch, such as 535
        driver = f"a driver of branch {host.driver}"
    notes = [""]  # so that a comma comes before the first note
    if host.assumption:
        notes.append(host.assumption)
    elif host.is_wsl:
        notes.append("under WSL, where the Windows driver counts")
    if host.machine.lower() in ("aarch64", "arm64"):
        notes.append("a machine with a 64-bit ARM processor")
    note_text = ", ".join(notes)
    if host.has_no_gpu:
        driver_text = f", {driver}" if host.driver else ""
        return clean_line(
            f"No NVIDIA GPU found here{note_text}: this is for any GPU{driver_text}. Name yours with --gpu."
        )
    return clean_line(f"For {cards or 'any card'}, {driver}{note_text}")


def _print_option(out: Page, option: Option, index: int, *, with_commands: bool = True) -> None:
    _print_title(out, option, index)
    print_hanging(out, Text("  Has   "), _describe_contents(option))
    for reason in option.reasons:
        print_hanging(out, Text("  Why   "), clean_line(reason, limit=1000))
    for caveat in option.caveats:
        print_hanging(out, Text("  But   "), clean_line(caveat.text, limit=1000))
    _print_parts(out, option.components)
    print_commands(out, option.commands if with_commands else ())


def _describe_contents(option: Option) -> str:
    cudnn = f", cuDNN {option.cudnn}" if option.cudnn else ""
    size = f"; about {format_bytes(option.size_bytes)} on disk" if option.size_bytes is not None else ""
    return f"CUDA {option.cuda}{cudnn}{size}"


def _print_title(out: Page, option: Option, index: int) -> None:
    location = f"in {option.base.image}" if option.base is not None else "in a virtual environment"
    title = f"TensorFlow {option.tensorflow} on Python {option.python} {location}"
    mark = "!" if option.serious_count else "✓"
    style = "yellow" if option.serious_count else "green"
    label = "" if index == 0 else "Or "
    print_hanging(
        out,
        Text(f"{mark} ", style=style),
        clean_line(f"{label}{title} [{option.recipe.value}]"),
        style="bold",
    )


def _print_parts(out: Page, parts: Sequence[Component]) -> None:
    for part in sorted(parts, key=lambda part: -(part.size_bytes or 0)):
        size = format_bytes(part.size_bytes) if part.size_bytes is not None else "?"
        print_hanging(out, Text(f"  {size:>9}  "), clean_line(f"{part.name}: {part.purpose}"))


def format_bytes(count: int) -> str:
    """Return a number of bytes as text, such as "2.4 GB", in the decimal units that registries use."""
    if count >= 1_000_000_000:
        return f"{count / 1_000_000_000:.1f} GB"
    if count >= 1_000_000:
        return f"{count / 1_000_000:.0f} MB"
    return f"{max(count, 0) / 1000:.0f} kB"


def _print_conflict(
    out: Page, recommendation: Recommendation, max_reasons: int, max_lines: int, *, verbose: bool
) -> None:
    """Print the reasons for a conflict, and the requests that would work instead."""
    assert recommendation.conflict is not None  # noqa: S101 - the caller has checked this
    version = recommendation.request.tensorflow
    target = f"TensorFlow {version}" if version else "a TensorFlow"
    if recommendation.has_other_builds:
        headline = "NVIDIA has its own TensorFlow for this machine; the package index has none with GPU code."
        print_hanging(out, format_mark(Status.WARNING), headline, style="bold")
    else:
        headline = (
            f"{target} cannot be installed so that it uses the GPU."
            if version
            else "No TensorFlow meets this request."
        )
        print_hanging(out, format_mark(Status.BAD), clean_line(headline), style="bold")
    reasons = recommendation.conflict.reasons
    shown_reasons = reasons if verbose else _select_reasons(recommendation)[:max_reasons]
    for reason in shown_reasons:
        text = clean_line(reason.text, limit=1000)
        print_hanging(
            out, Text("  Why   "), text if verbose else shorten_text(text, out.width - 8, max(max_lines, 2))
        )
    has_rootless_commands = False
    for number, suggestion in enumerate(recommendation.conflict.suggestions):
        out.print()
        text = clean_line(suggestion.text, limit=500)
        print_hanging(out, Text("→ ", style="bold"), upper_first(text), style="bold")
        for caveat in suggestion.option.caveats:
            if caveat.is_serious or caveat.cause is Cause.DRIVER_TOO_OLD:
                text = clean_line(caveat.text, limit=1000)
                print_hanging(
                    out, Text("  But   "), text if verbose else shorten_text(text, out.width - 8, 1)
                )
        style = "" if number else "bold"
        print_commands(out, suggestion.option.commands, 8, style=style, with_continuations=not verbose)
        if recommendation.request.method is Method.PIP and not has_rootless_commands:
            has_rootless_commands = _print_rootless_commands(out, suggestion.option)
    builds = recommendation.conflict.arm64_builds
    shown_builds = builds if verbose else builds[:max_reasons]
    for build in shown_builds:
        out.print()
        sources = f" Sources: {'; '.join(build.sources)}" if verbose else ""
        text = f"{build.text} (not tested by tfdoctor).{sources}"
        print_hanging(out, Text("  Else  ", style="bold"), clean_line(text, limit=1000))
        print_commands(out, (build.command,), 8, with_continuations=not verbose)
    if recommendation.cpu_remedy is not None:
        out.print()
        _print_cpu_option(out, recommendation.cpu_remedy, "  ")
    hidden_reason_count = len(reasons) - len(shown_reasons)
    hidden_parts = [format_count(hidden_reason_count, "other reason")] if hidden_reason_count > 0 else []
    if len(builds) > len(shown_builds):
        hidden_parts.append(format_count(len(builds) - len(shown_builds), "other build"))
    hidden_parts += ["sources"] if builds else []
    if hidden_parts and not verbose:
        if recommendation.cpu_remedy is None:
            out.print()
        print_more_commands(out, "More", [("add -v", join_words(hidden_parts))])


def _print_rootless_commands(out: Page, option: Option) -> bool:
    """Print what takes the place of an option that needs Docker. Return False if the option does not need it."""
    if option.base is None:
        return False
    commands = [f"{option.commands[0]} --emit apptainer"]
    names = "Apptainer"
    if option.recipe is not Recipe.NGC:  # NVIDIA's own builds have no wheel
        commands.append(f"tfdoctor matrix {option.tensorflow}")
        names += ", or CUDA from conda"
    out.print(Text(f"        # without Docker: {names}"))
    print_commands(out, commands, 8, with_continuations=True)
    return True


def _select_reasons(recommendation: Recommendation) -> list[Reason]:
    """Return the decisive reasons for a conflict.

    If no reason excludes every release by itself, return one reason for each cause. If no version was requested, these
    are the first reasons against the newest releases with one recipe.
    """
    assert recommendation.conflict is not None  # noqa: S101 - the caller has checked this
    reasons = recommendation.conflict.reasons
    if recommendation.conflict.decisive_count:
        return list(reasons[: recommendation.conflict.decisive_count])
    if recommendation.request.tensorflow is None and recommendation.rejections:
        recipe = recommendation.rejections[0].recipe
        reasons = tuple(
            replace(reason, text=f"{'an older one' if index else 'the newest'}: {reason.text}")
            for index, rejection in enumerate(
                item for item in recommendation.rejections if item.recipe is recipe
            )
            for reason in rejection.reasons
        )
    reasons_by_cause: dict[Cause, Reason] = {}
    for reason in reasons:
        reasons_by_cause.setdefault(reason.cause, reason)
    return list(reasons_by_cause.values())


def _print_rejected(out: Page, recommendation: Recommendation) -> None:
    """Print the reasons why other releases and recipes were rejected, unless the result is a conflict."""
    if recommendation.conflict is not None or not recommendation.rejections:
        return
    rejections_by_reason: dict[tuple[str, str], list[Rejection]] = {}
    for rejection in recommendation.rejections:
        text = _format_rejection(rejection)
        rejections_by_reason.setdefault((rejection.recipe.value, text), []).append(rejection)
    out.print()
    for (recipe, text), rejections in rejections_by_reason.items():
        version_range = (
            rejections[0].tensorflow
            if len(rejections) == 1
            else f"{rejections[-1].tensorflow} to {rejections[0].tensorflow}"
        )
        print_hanging(
            out,
            Text("  Not   "),
            clean_line(f"{recipe}, {version_range}: {text}", limit=600),
        )


# ---------------------------------------------------------------- JSON


def make_recommendation_json(recommendation: Recommendation) -> dict[str, Any]:
    """Return the document that `tfdoctor recommend --json` prints."""
    return {
        **make_document_head("recommend"),
        "request": _make_request_json(recommendation.request),
        "host": _make_host_json(recommendation.host),
        "options": [make_option_json(option, rank) for rank, option in enumerate(recommendation.options, 1)],
        "rejected": [
            {
                "method": item.recipe.method.value,
                "recipe": item.recipe.value,
                "tensorflow": item.tensorflow,
                "reasons": [_make_reason_json(reason) for reason in item.reasons],
            }
            for item in recommendation.rejections
        ],
        "conflict": None
        if recommendation.conflict is None
        else {
            "reasons": [_make_reason_json(reason) for reason in recommendation.conflict.reasons],
            "nearest": [
                {"text": item.text, "option": make_option_json(item.option, rank)}
                for rank, item in enumerate(recommendation.conflict.suggestions, 1)
            ],
            "elsewhere": [
                {"text": item.text, "command": item.command, "sources": list(item.sources)}
                for item in recommendation.conflict.arm64_builds
            ],
        },
        "without_gpu": None
        if recommendation.cpu_remedy is None
        else {"text": recommendation.cpu_remedy.text, "commands": list(recommendation.cpu_remedy.commands)},
    }


def make_option_json(option: Option, rank: int) -> dict[str, Any]:
    """Return the JSON of an option."""
    return {
        "rank": rank,
        "method": option.method.value,
        "recipe": option.recipe.value,
        "tensorflow": option.tensorflow,
        "python": option.python,
        "cuda": option.cuda,
        "cudnn": option.cudnn,
        "base_image": option.base.reference if option.base is not None else None,
        "packages": list(option.pinned_requirements),
        "size_bytes": option.size_bytes,
        "parts": [
            {"name": part.name, "bytes": part.size_bytes, "why": part.purpose} for part in option.components
        ],
        "commands": list(option.commands),
        "reasons": list(option.reasons),
        "caveats": [_make_caveat_json(caveat) for caveat in option.caveats],
    }


def _make_reason_json(reason: Reason) -> dict[str, Any]:
    return {"cause": reason.cause.value, "text": reason.text, "source": reason.source}


def _make_caveat_json(caveat: Caveat) -> dict[str, Any]:
    return {
        "cause": caveat.cause.value,
        "text": caveat.text,
        "source": caveat.source,
        "serious": caveat.is_serious,
    }


def _make_request_json(request: Request) -> dict[str, Any]:
    return {
        "tensorflow": request.tensorflow,
        "python": request.python,
        "method": request.method.value if request.method is not None else None,
        "recipe": request.recipe.value if request.recipe is not None else None,
        "base": request.base,
        "requirements": list(request.requirements),
    }


def _make_host_json(host: Host) -> dict[str, Any]:
    return {
        "gpus": [
            {
                "name": card.name,
                "compute_capability": card.capability,
                "other_compute_capabilities": list(card.other_capabilities),
            }
            for card in host.cards
        ],
        "no_card": host.has_no_gpu,
        "driver": host.driver,
        "system": host.system,
        "machine": host.machine,
        "glibc": host.glibc,
        "python": host.python,
        "container_engine": host.has_engine,
    }
