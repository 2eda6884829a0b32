"""The `tfdoctor matrix` command."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

from tfdoctor.cli import completion_values
from tfdoctor.cli.options import (
    Force,
    Format,
    FormatOption,
    Json,
    Output,
    argument,
    choose_format,
    command,
    option,
)
from tfdoctor.cli.output_file import check_output, redirect_output
from tfdoctor.compat import Compat, UnknownReleaseError
from tfdoctor.core import versions
from tfdoctor.core.errors import ExitCode, UsageError
from tfdoctor.core.text import clean_line, join_words
from tfdoctor.planning.overview import list_overviews
from tfdoctor.planning.release_sheet import make_sheet
from tfdoctor.prediction.fit.matrix import MatrixQuery, list_driver_gaps, list_refusals, select_rows
from tfdoctor.render import matrix as rendering
from tfdoctor.render.json import write_json
from tfdoctor.render.screen import format_count
from tfdoctor.render.terminal import OUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.prediction.fit.matrix import MatrixRow

RELEASES_HINT = "`tfdoctor matrix` lists every release."
GPUS_HINT = "`tfdoctor matrix --list-gpus` lists every GPU; --gpu takes a compute capability, too."
OPTION_BY_FIELD = {
    "cuda": "--cuda",
    "cudnn": "--cudnn",
    "python": "--python-version",
    "capability": "--gpu",
    "driver": "--driver",
    "package": "--package",
}
"""The option that sets each field of `MatrixQuery`, by field name."""
EXAMPLE_BY_FIELD = {
    "cuda": "12.5",
    "cudnn": "9.3",
    "python": "3.11",
    "capability": "8.6",
    "driver": "550.54.14",
}


@command("tfdoctor matrix", "tfdoctor matrix 2.20", 'tfdoctor matrix --gpu "RTX 3060" --driver 535')
def matrix(
    release: Annotated[
        str | None,
        argument(
            'Releases, as with --tf: 2.15, ">=2.10,<2.13".',
            metavar="[SPEC]",
            autocompletion=completion_values.complete_release,
        ),
    ] = None,
    tf: Annotated[
        str | None,
        option(
            'Releases: 2.15 (its newest), 2.15.0, ">=2.10,<2.13", latest. Of one release, the data sheet is shown.',
            metavar="SPEC",
            autocompletion=completion_values.complete_release,
        ),
    ] = None,
    cuda: Annotated[str | None, option("Built with this CUDA: 12, 11.2.", metavar="V")] = None,
    cudnn: Annotated[str | None, option("Built with this cuDNN: 9, 8.1.", metavar="V")] = None,
    python_version: Annotated[str | None, option("With a wheel for this Python: 3.11.", metavar="V")] = None,
    gpu: Annotated[
        str | None,
        option(
            'With code for this GPU: "RTX 3060", its PCI ID, or compute capabilities: 8.6.',
            metavar="NAME|CC",
            autocompletion=completion_values.complete_gpu,
        ),
    ] = None,
    driver: Annotated[str | None, option("Releases that run on this driver: 550.54.14.", metavar="V")] = None,
    windows: Annotated[bool, option("Windows wheels and drivers.", "--windows")] = False,
    package: Annotated[str | None, option("Only tensorflow, or only tensorflow-gpu.", metavar="NAME")] = None,
    list_gpus: Annotated[bool, option("List the cards that --gpu knows.", "--list-gpus")] = False,
    whole: Annotated[
        bool, option("Every release, even in a terminal; with --tf the whole data sheet.", "--all")
    ] = False,
    html: Annotated[
        Path | None,
        option(
            "Write all of it to this file as a page for a browser, to look up what fits what (takes half a minute).",
            metavar="FILE",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
    output_format: FormatOption = Format.text,
    output: Output = None,
) -> int:
    """Print the releases that match, or the data sheet of a single one, and return the exit status.

    Read from the wheels of every release. With conditions: the releases that meet all of them.
    """
    if release is not None and tf is not None:
        raise UsageError("SPEC and --tf name the releases; give one of them.")
    tf = tf if release is None else release
    output_format = choose_format(output_format, as_json=as_json)
    as_json, as_markdown = output_format is Format.json, output_format is Format.markdown
    check_output(output, force=force, other_outputs=(html,))
    if list_gpus:
        with redirect_output(output, force=force):
            return _print_gpus(as_json=as_json)
    if html is not None:
        if (
            as_json
            or as_markdown
            or whole
            or windows
            or any((tf, cuda, cudnn, python_version, gpu, driver, package))
        ):
            raise UsageError("--html writes all releases: it goes with --force alone.")
        return _write_explorer(html, force=force)
    compat = Compat.load()
    is_capability = gpu is not None and re.fullmatch(r"[0-9.,]*[.,][0-9.,]*", gpu) is not None
    query = MatrixQuery(
        tf=tf,
        cuda=cuda,
        cudnn=cudnn,
        python=python_version,
        capability=gpu if is_capability else None,
        driver=driver,
        os="windows" if windows else "linux",
        package=package,
    )
    _check_query(compat, query)
    note = ""
    if gpu is not None and not is_capability:
        query, note = _restrict_to_gpu(compat, query, gpu)
    try:
        rows = select_rows(compat, query)
    except UnknownReleaseError as error:
        _raise_unknown_release(compat, error.version, query.package)
    except versions.VersionSyntaxError as error:
        _raise_unknown_version(compat, "--tf", query.tf or "", str(error))
    if rows:
        note = f"{note} {_explain_driver(compat, query, rows)}".strip()
    has_one_version = query.tf is not None and len({row.release.version for row in rows}) == 1
    newest_only = OUT.is_terminal and not whole and query == MatrixQuery(os=query.os)
    with redirect_output(output, force=force):
        _print_rows(
            compat,
            query,
            rows,
            gpu=gpu,
            note=note,
            has_one_version=has_one_version,
            newest_only=newest_only,
            complete=whole,
            as_json=as_json,
            as_markdown=as_markdown,
        )
    return ExitCode.OK


def _write_explorer(target: Path, *, force: bool) -> int:
    """Write the page of `matrix --html FILE` and return the exit status.

    Raise UsageError or Error if it cannot be written.
    """
    from tfdoctor.cli.log_arguments import write_note
    from tfdoctor.planning.answer_table_builder import build_answer_table
    from tfdoctor.render.html.explorer import make_explorer_html
    from tfdoctor.render.progress import open_progress
    from tfdoctor.render.terminal import ERR
    from tfdoctor.system.writing import check_output_file, write_file

    check_output_file(target, force=force, option="--html")
    compat = Compat.load()
    matrix_rows = [
        matrix_row
        for matrix_row in select_rows(compat, MatrixQuery(gpu=True))
        if not matrix_row.release.is_prerelease
    ]
    rows_by_version: dict[str, list[MatrixRow]] = {}
    for matrix_row in matrix_rows:
        rows_by_version.setdefault(matrix_row.release.version, []).append(matrix_row)
    sheets = [make_sheet(compat, version_rows) for version_rows in rows_by_version.values()]
    with open_progress(quiet=not ERR.is_terminal) as display:
        table = build_answer_table(
            compat, lambda number, total, minor: display.begin_step(number, total, f"TensorFlow {minor}")
        )
        display.end_step()
    page = make_explorer_html(table, sheets, list_overviews(compat, matrix_rows), as_of=compat.as_of)
    write_file(target, page, force=force, option="--html")
    write_note(
        f"{clean_line(str(target))} has {len(sheets)} releases as a page ({len(page) // 1000 + 1} kB)."
    )
    return ExitCode.OK


def _print_gpus(*, as_json: bool) -> int:
    """Print the names that `--gpu` accepts, and return the exit status."""
    compat = Compat.load()
    if as_json:
        write_json(rendering.make_gpus_json(compat.gpus, compat.gpus_as_of))
    else:
        OUT.write(rendering.render_gpus(compat.gpus, **OUT.layout))
    return ExitCode.OK


def _print_rows(
    compat: Compat,
    query: MatrixQuery,
    rows: Sequence[MatrixRow],
    *,
    gpu: str | None,
    note: str,
    has_one_version: bool,
    newest_only: bool,
    complete: bool,
    as_json: bool,
    as_markdown: bool,
) -> None:
    """Print the rows or, if `has_one_version` is set, a data sheet.

    With `newest_only`, the output is limited to an overview for a terminal. With `complete`, the sheet is complete. `gpu` is
    the GPU as the user named it.
    """
    release_sheet = None
    if has_one_version:
        python = None if query.python is None else versions.major_minor(query.python)
        capabilities = [] if query.capability is None else query.capability.split(",")
        release_sheet = make_sheet(compat, rows, capabilities=capabilities, python=python, system=query.os)
    as_of = compat.as_of
    if as_json:
        write_json(rendering.make_matrix_json(rows, as_of, release_sheet))
    elif as_markdown and release_sheet is not None:
        OUT.write_document(rendering.render_markdown_sheet(release_sheet, as_of=as_of, note=note))
    elif as_markdown:
        OUT.write_document(rendering.render_markdown_rows(rows, note=note))
    elif not rows:
        reasons = [*filter(None, [note]), *_explain_no_match(compat, query, gpu)]
        OUT.write(rendering.render_no_match(reasons, **OUT.layout))
    else:
        if newest_only and query.os == "linux":
            OUT.write(
                rendering.render_overview(
                    list_overviews(compat, rows), release_count=len(rows), as_of=as_of, **OUT.layout
                )
            )
            return
        OUT.write(
            rendering.render_rows(
                rows,
                as_of=as_of,
                note=note,
                for_windows=query.os == "windows",
                only_newest=newest_only,
                **OUT.layout,
            )
            if release_sheet is None
            else (rendering.render_sheet if complete else rendering.render_sheet_screen)(
                release_sheet, as_of=as_of, note=note, **OUT.layout
            )
        )


# ---------------------------------------------------------------- invalid queries


def _check_query(compat: Compat, query: MatrixQuery) -> None:
    """Raise UsageError if a version or the package is invalid. Whether a release exists is checked later."""
    for field, example in EXAMPLE_BY_FIELD.items():
        value = getattr(query, field)
        if value is None:
            continue
        try:
            if field == "capability":
                if "," in value and not all("." in part for part in value.split(",")):
                    msg = (
                        f"--gpu {clean_line(value, limit=60)}: a compute capability is written with a point."
                    )
                    raise UsageError(msg, hint="One is --gpu 8.6, and two are --gpu 8.6,7.5.")
                for part in value.split(","):
                    versions.parse_capability(part)
            else:
                versions.has_prefix("0", value)  # only for its error if the value is not a version
        except versions.VersionSyntaxError as error:
            hint = f"A number such as {OPTION_BY_FIELD[field]} {example}. {_describe_known_values(compat, field)}".rstrip()
            msg = f"{OPTION_BY_FIELD[field]}: {error}."
            raise UsageError(msg, hint=hint) from error
    packages = sorted({release.package for release in compat.releases})
    if query.package is not None and query.package not in packages:
        distribution = compat.find_distribution(query.package)
        if distribution is not None:
            advice = (
                f"Its rows are those of --package {distribution.equivalent_distribution}."
                if distribution.equivalent_distribution
                else ""
            )
            msg = f"--package: {distribution.name} has no rows. {distribution.note}"
            raise UsageError(msg, hint=advice)
        msg = f"--package: there is no table of `{query.package}`."
        raise UsageError(msg, hint=f"There is {' and '.join(packages)}.")


def _describe_known_values(compat: Compat, field: str) -> str:
    """Return a sentence that lists the values of a field in all releases, newest first.

    Return "" for fields other than Python, CUDA and cuDNN.
    """
    if field == "python":
        values = {
            text for release in compat.releases for text in (*release.linux_pythons, *release.windows_pythons)
        }
    elif field in {"cuda", "cudnn"}:
        values = {getattr(release, field) for release in compat.releases} - {None}
    else:
        return ""
    ordered = sorted(values, key=versions.parse_numbers, reverse=True)
    return f"There are {', '.join(ordered)}."


def _restrict_to_gpu(compat: Compat, query: MatrixQuery, gpu: str) -> tuple[MatrixQuery, str]:
    """Return the query restricted to the compute capability of a GPU, and a note about it.

    `gpu` is a PCI ID or a name. An ambiguous name has several capabilities. Raise UsageError if the GPU is unknown.
    """
    pci_gpu = compat.find_gpu_by_pci_id(gpu)
    if pci_gpu is not None:
        note = f"{pci_gpu.name} has compute capability {pci_gpu.capability}."
        return dataclasses.replace(query, capability=pci_gpu.capability), note
    match = compat.find_gpus_by_name(gpu)
    if match is None:
        nearest = compat.find_similar_gpu_names(gpu)
        advice = f"The nearest: {', '.join(nearest)}. " if nearest else ""
        msg = f"--gpu: no NVIDIA GPU called `{gpu}` is known."
        raise UsageError(msg, hint=advice + GPUS_HINT)
    capabilities = match.capabilities
    names = list(dict.fromkeys(matching_gpu.name for matching_gpu in match.gpus))
    name = names[0] if len(names) == 1 else gpu
    note = f"{name} has compute capability {capabilities[0]}."
    if match.is_ambiguous:
        note = (
            f"{name} can be a card of compute capability {', '.join(capabilities[:-1])} or {capabilities[-1]}: releases "
            "that run on one of them are shown. --gpu takes the PCI id, too (`lspci -nn` shows it: 10de:…)."
        )
    if all(
        compat.arm64.find_kind(matching_gpu.name, matching_gpu.capability) is not None
        for matching_gpu in match.gpus
    ):
        note += (
            " It is used in machines with a 64-bit ARM processor, which these wheels do not support: "
            "`tfdoctor recommend "
            f"--gpu '{gpu}'` shows what is available."
        )
    return dataclasses.replace(query, capability=",".join(capabilities)), note


def _explain_driver(compat: Compat, query: MatrixQuery, rows: Sequence[MatrixRow]) -> str:
    """Return a sentence about the releases that the query's driver is too old for; "" if there are none."""
    parts = [
        f"{oldest if oldest == newest else f'{oldest} to {newest}'} ({minimum} or newer)"
        for oldest, newest, minimum in list_driver_gaps(compat, query, rows)
    ]
    return f"Driver {query.driver} is too old for {join_words(parts)}." if parts else ""


def _raise_unknown_release(compat: Compat, spec: str, package: str | None) -> NoReturn:
    """Raise UsageError with the names of the nearest releases."""
    nearest = ", ".join(compat.find_nearest_versions(spec))
    newest = compat.newest.version
    release_name = f"{package} {spec}" if package else f"TensorFlow {spec}"
    msg = f"--tf: no {release_name} is known."
    raise UsageError(msg, hint=f"The nearest: {nearest}. The newest: {newest}. {RELEASES_HINT}")


def _raise_unknown_version(compat: Compat, option: str, text: str, reason: str) -> NoReturn:
    """Raise UsageError with the accepted forms of a version."""
    nearest = ", ".join(compat.find_nearest_versions(text))
    msg = f"{option}: {reason}."
    raise UsageError(
        msg,
        hint=f'A version (2.15.1), its beginning (2.15), conditions (">=2.10,<2.13") or latest. '
        f"There are {nearest} and older ones. {RELEASES_HINT}",
    )


def _drop_condition(query: MatrixQuery, field: str) -> MatrixQuery:
    """Return the query without one condition. Without its capability, it still requires a GPU build."""
    conditions = dataclasses.asdict(query) | {"gpu": True if query.capability else query.gpu}
    return MatrixQuery(**{**conditions, field: None})


def _explain_no_match(compat: Compat, query: MatrixQuery, gpu: str | None) -> list[str]:
    """Return sentences that say which conditions prevent a match.

    For a condition that no release meets, they list the existing values; for others, they say how many releases match
    without it. `gpu` is the GPU as the user named it, or None if the query was not restricted to a GPU.
    """
    reasons = []
    conditions = {
        field: option_name
        for field, option_name in OPTION_BY_FIELD.items()
        if getattr(query, field) is not None
    }
    for field, option_name in conditions.items():
        value = getattr(query, field)
        condition = (
            f"--gpu {shlex.quote(clean_line(gpu))}"
            if gpu and field == "capability"
            else f"{option_name} {value}"
        )
        if not select_rows(compat, MatrixQuery(os=query.os, **{field: value})):
            reasons.append(f"No release has {condition}. {_describe_known_values(compat, field)}".rstrip())
            continue
        rows = select_rows(compat, _drop_condition(query, field))
        if rows:
            newest = f"{rows[0].release.package} {rows[0].release.version}"
            refusals = (
                list_refusals(compat, rows[0].release, query, value.split(",")[0])
                if field == "capability"
                else ()
            )
            reasons.append(
                f"Without {condition}: {format_count(len(rows), 'release')}; the newest is {newest}."
            )
            reasons += [f"{newest}: {reason.text.rstrip('.')}." for reason in refusals]
    if gpu and reasons:
        reasons.append(f"What works on it: `tfdoctor recommend --gpu {shlex.quote(clean_line(gpu))}`.")
    return reasons or [RELEASES_HINT]
