"""The `tfdoctor cluster` command."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tfdoctor.cli.files import read_option_file
from tfdoctor.cli.options import (
    FailOn,
    FailOnOption,
    Json,
    argument,
    check_finite,
    command,
    option,
    verbose_option,
)
from tfdoctor.core.errors import Error, ExitCode, UsageError
from tfdoctor.core.text import clean, clean_line
from tfdoctor.extensions.cluster.analysis import evaluate_cluster, map_connectable_addresses
from tfdoctor.extensions.cluster.merge import merge_clusters
from tfdoctor.extensions.cluster.models import ClusterSource, InstalledRelease
from tfdoctor.extensions.cluster.reader import MAX_SPECIFICATION_CHARS, parse_cluster

if TYPE_CHECKING:
    from tfdoctor.extensions.cluster.models import ClusterEvaluation
    from tfdoctor.system import LiveSystem

TF_CONFIG_VARIABLE = "TF_CONFIG"


@command("tfdoctor cluster", "tfdoctor cluster tf_config.json --connect")
def cluster(
    files: Annotated[
        list[str] | None,
        argument(
            "JSON of a TF_CONFIG or ClusterSpec, or a Python file, which is not run; several: of one cluster. "
            "-: standard input. Nothing: the variable TF_CONFIG.",
            metavar="[FILE]...",
        ),
    ] = None,
    tf_config: Annotated[
        str | None, option("The specification itself, or a file of it.", metavar="JSON|FILE")
    ] = None,
    connect: Annotated[
        bool, option("Connect to each task, as gRPC does, and say who does not answer.", "--connect")
    ] = False,
    peer: Annotated[
        list[Path] | None,
        option(
            "The recorded machine of another task (what `capture` wrote there): compare TensorFlow's versions.",
            "--peer",
            metavar="RECORDING",
        ),
    ] = None,
    timeout: Annotated[
        float,
        option(
            "Stop connecting after this many seconds.",
            min=1,
            max=3600,
            metavar="SECONDS",
            callback=check_finite,
        ),
    ] = 10.0,
    fail_on: FailOnOption = FailOn.error,
    as_json: Json = False,
    verbose: Annotated[bool, verbose_option("Show all tasks and findings.")] = False,
) -> int:
    """Check the specification of a cluster, print the result and return the exit status.

    Checks the specification by TensorFlow's own rules. Without --connect it makes no connection; with it, each task
    gets the first bytes of HTTP/2 and nothing else. With --peer it looks at this machine's TensorFlow as `check` does.
    """
    from tfdoctor.extensions.cluster.render import make_cluster_json, render_cluster
    from tfdoctor.render.terminal import OUT
    from tfdoctor.system import LiveSystem

    system = LiveSystem()
    sources = _load_sources(files or [], tf_config, dict(system.env))
    installed_releases = _list_installed_releases(peer or [])
    results = _evaluate_clusters(sources, system, installed_releases, timeout=timeout, connects=connect)
    if as_json:
        from tfdoctor.render.json import write_json

        write_json(make_cluster_json(results))
    else:
        OUT.write(render_cluster(results, verbose=verbose, **OUT.layout))
    has_fault = any(fail_on.is_reached(result.faults) for result in results)
    return ExitCode.FOUND if has_fault else ExitCode.OK


def _list_installed_releases(paths: list[Path]) -> list[InstalledRelease]:
    """Return the TensorFlow releases of this host and the recorded hosts, or nothing without recordings.

    Raise UsageError if a path is not a recording.
    """
    if not paths:
        return []
    from tfdoctor.compat import Compat
    from tfdoctor.core.facts import value_of
    from tfdoctor.diagnosis import collect_facts
    from tfdoctor.system import LiveSystem, RecordedSystem

    compat = Compat.load()
    recordings = [(path, RecordedSystem(path)) for path in paths]
    all_facts = [("this machine", collect_facts(LiveSystem(), compat))]
    all_facts += [
        (clean(str(path), limit=300), collect_facts(system, compat, python=system.python))
        for path, system in recordings
    ]
    releases = [(name, value_of(facts.tensorflow)) for name, facts in all_facts]
    return [
        InstalledRelease(name, tensorflow.version if tensorflow is not None else None)
        for name, tensorflow in releases
    ]


def _evaluate_clusters(
    sources: list[ClusterSource],
    system: LiveSystem,
    installed_releases: list[InstalledRelease],
    *,
    timeout: float,
    connects: bool,
) -> list[ClusterEvaluation]:
    """Return the evaluation of each cluster.

    `connects` says whether to connect to the tasks, and `timeout` is the time limit for that in seconds.
    """
    from tfdoctor.extensions.cluster.network import connect_to_tasks, find_proxy, read_listening_ports

    listening_ports = read_listening_ports(system)
    results = []
    for source_name, specification in merge_clusters(sources):
        connection_results = None
        if connects:
            addresses_by_task = map_connectable_addresses(specification)
            addresses = [(address.host, address.port or 0) for address in addresses_by_task.values()]
            connection_results = dict(
                zip(addresses_by_task, connect_to_tasks(addresses, timeout), strict=True)
            )
        results.append(
            evaluate_cluster(
                specification,
                source_name,
                listening_ports=listening_ports,
                connection_results=connection_results,
                proxy=find_proxy(system),
                installed_releases=installed_releases,
            )
        )
    return results


def _load_sources(files: list[str], tf_config: str | None, env: dict[str, str]) -> list[ClusterSource]:
    """Return the specifications in the files, in `tf_config`, or in the variable TF_CONFIG.

    Raise UsageError if two of these are given or none, and Error if a Python file contains no cluster.
    """
    if files and tf_config is not None:
        raise UsageError("FILE and --tf-config both name a specification; give one of them.")
    if tf_config is not None:
        return [load_specification(tf_config)]
    if files:
        return [_load_file(name) for name in files]
    if TF_CONFIG_VARIABLE not in env:
        msg = f"{TF_CONFIG_VARIABLE} is not set here, and no file is named."
        raise UsageError(
            msg,
            hint="Name the file, or type `tfdoctor cluster --tf-config '{\"cluster\": …}'`.",
        )
    return [parse_cluster(env[TF_CONFIG_VARIABLE], "env")]


def load_specification(value: str) -> ClusterSource:
    """Return the specification in an option's value, which is JSON or the name of a file.

    Raise UsageError or Error if the file cannot be read.
    """
    if value == "-" or _is_file(value):
        return _load_file(value)
    if value.strip() and not any(character in value for character in "{}[]\"'\n"):
        try:
            json.loads(value)
        except (ValueError, RecursionError):
            return _load_file(value)  # raises an error that says why it cannot be read
    return parse_cluster(value, "text")


def _is_file(value: str) -> bool:
    """Return whether `value` names an existing file, whose path is shorter than PATH_MAX (4096)."""
    try:
        return 0 < len(value) < 4096 and Path(value).is_file()
    except (OSError, ValueError):
        return False


def _load_file(name: str) -> ClusterSource:
    """Return the specification in a file, or in standard input for `-`.

    Raise UsageError if it cannot be read, and Error if it is Python code without a cluster or with a syntax error.
    """
    display_name = clean(name, limit=300)
    if name == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed.")
        text = sys.stdin.buffer.read(MAX_SPECIFICATION_CHARS + 1).decode("utf-8", "replace")
    else:
        text = read_option_file(Path(name), TF_CONFIG_VARIABLE)
    first_lines = text[:200].splitlines()[:1]
    is_python = name.endswith((".py", ".pyw")) or (
        bool(first_lines) and first_lines[0].startswith("#!") and "python" in first_lines[0]
    )
    try:
        source = parse_cluster(text, display_name, is_python=is_python)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line_number = getattr(error, "lineno", None)
        error_location = (
            f", by line {line_number}: {clean_line(str(getattr(error, 'msg', '')))}" if line_number else ""
        )
        msg = f"{clean_line(display_name)} is no Python that can be read{error_location}."
        raise Error(msg, hint="Python 2 is not read here.") from error
    if not source.specifications:
        msg = f"{clean_line(display_name)} has no ClusterSpec, and sets no {TF_CONFIG_VARIABLE}."
        raise Error(
            msg,
            hint="If the program reads TF_CONFIG, run this in the shell that sets it: `tfdoctor cluster`.",
        )
    return source
