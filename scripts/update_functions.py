# /// script
# requires-python = ">=3.10"
# dependencies = [
#   "packaging>=22",
#   "pyelftools>=0.30",
#   "pypi-simple>=1.5",
#   "requests>=2.28",
#   "tomli>=2; python_version < '3.11'",
# ]
# ///
"""Measure compat/functions.json: the lines on which functions of TensorFlow's Python code stand, by release.

    uv run scripts/update_functions.py               # releases that are missing
    uv run scripts/update_functions.py '>=2.20'      # these anew
    python scripts/update_functions.py --check       # offline: every release of compat/tensorflow.json is there

A traceback names the file, the line and the function: `tensorflow/python/client/session.py", line 1334, in _do_call`.
Only releases whose function contains that line can have written it. The files that occur in tracebacks most often are
extracted from one wheel of each release, a few hundred KB each. Nothing is run.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from checkout import ROOT
from update_support import by_release
from update_support.files import report_errors, write_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from update_support.remote_zip import Member, Web

TABLE = ROOT / "compat" / "functions.json"
MODULE = "<module>"
API = re.compile(r"tensorflow(?:_core)?\._api\b")
"""Modules from which `import tensorflow` imports hundreds of names that change with each release."""
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "tensorflow/__init__.py": (MODULE,),
    "tensorflow/python/__init__.py": (MODULE,),
    "tensorflow/python/client/device_lib.py": ("list_local_devices",),
    "tensorflow/python/client/session.py": (
        "__init__",
        "_call_tf_sessionrun",
        "_do_call",
        "_do_run",
        "_extend_graph",
        "_run",
        "_run_fn",
        "make_callable",
        "run",
    ),
    "tensorflow/python/eager/context.py": (
        MODULE,
        "_initialize_physical_devices",
        "ensure_initialized",
        "num_gpus",
        "wait",
    ),
    "tensorflow/python/eager/def_function.py": ("__call__", "_call", "_initialize"),
    "tensorflow/python/eager/execute.py": ("quick_execute",),
    "tensorflow/python/eager/function.py": ("__call__", "_call_flat", "_filtered_call", "call"),
    "tensorflow/python/eager/polymorphic_function/polymorphic_function.py": ("__call__", "_call"),
    "tensorflow/python/framework/config.py": (
        "list_logical_devices",
        "list_physical_devices",
        "set_memory_growth",
    ),
    "tensorflow/python/framework/constant_op.py": ("constant", "convert_to_eager_tensor"),
    "tensorflow/python/framework/errors_impl.py": ("__exit__",),
    "tensorflow/python/framework/op_def_library.py": ("_apply_op_helper", "apply_op"),
    "tensorflow/python/framework/ops.py": (
        "__init__",
        "_create_c_op",
        "_create_op_internal",
        "_traceback",
        "create_op",
        "eval",
        "raise_from_not_ok_status",
    ),
    "tensorflow/python/keras/engine/base_layer.py": ("__call__",),
    "tensorflow/python/keras/engine/training.py": (
        "_method_wrapper",
        "evaluate",
        "fit",
        "fit_generator",
        "predict",
    ),
    "tensorflow/python/ops/math_ops.py": ("binary_op_wrapper", "matmul", "reduce_sum"),
    "tensorflow/python/platform/app.py": ("run",),
    "tensorflow/python/platform/self_check.py": ("preload_check",),
    "tensorflow/python/pywrap_tensorflow.py": (MODULE, "swig_import_helper"),
    "tensorflow/python/pywrap_tensorflow_internal.py": (MODULE, "swig_import_helper"),
    "tensorflow/python/pywrap_tfe.py": (MODULE,),
    "tensorflow/python/tools/module_util.py": (MODULE,),
    "tensorflow/python/training/monitored_session.py": ("__init__", "run"),
    "tensorflow/python/util/deprecation.py": ("new_func",),
    "tensorflow/python/util/dispatch.py": ("op_dispatch_handler", "wrapper"),
    "tensorflow/python/util/traceback_utils.py": ("error_handler",),
}
"""The functions in tracebacks most often: import of TensorFlow, listing of devices, running operations."""
MINIMUM_RELEASES = 100


def find_function_lines(source: str, requested: Iterable[str]) -> dict[str, list[tuple[int, int]]]:
    """Return the first and last lines of each of the requested functions.

    For `<module>` these are the lines of each statement that can fail.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
    names = set(requested)
    spans: dict[str, list[tuple[int, int]]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in names:
            spans.setdefault(node.name, []).append((node.lineno, node.end_lineno or node.lineno))
    if MODULE in names:
        spans[MODULE] = [
            (statement.lineno, statement.end_lineno or statement.lineno)
            for statement in _statements(tree.body)
        ]
    return {name: sorted(set(lines)) for name, lines in spans.items() if lines}


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module at which a traceback can stand.

    These are imports and calls, also below `try` and `if`, without the imports of the public API.
    """
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        blocks = [node for name in ("body", "orelse", "finalbody") for node in getattr(statement, name, ())]
        handlers = [node for handler in getattr(statement, "handlers", ()) for node in handler.body]
        if blocks:
            yield from _statements([*blocks, *handlers])
        elif (
            isinstance(statement, (ast.Import, ast.Raise))
            or any(isinstance(node, ast.Call) for node in ast.walk(statement))
            or (isinstance(statement, ast.ImportFrom) and not API.match(statement.module or ""))
        ):
            yield statement


def _map_path(name: str) -> str:
    """Return the name of a file in FUNCTIONS: 1.15 to 2.1 have the folder `tensorflow_core`."""
    return name.replace("tensorflow_core/", "tensorflow/", 1) if name.startswith("tensorflow_core/") else name


def measure(web: Web, url: str) -> dict[str, dict[str, list[tuple[int, int]]]]:
    """Return the lines of the FUNCTIONS that a wheel contains."""
    from update_support.remote_zip import extract, load_central_directory

    members, total = load_central_directory(web, url)
    members_by_name = {}
    for member in members:
        name = member.name.rpartition(".data/purelib/")[2]
        if _map_path(name) in FUNCTIONS:
            members_by_name[name] = member
    texts: dict[str, bytes] = {}
    for name, member in members_by_name.items():

        def take(_member: Member, pieces: Iterator[bytes], name: str = name) -> None:
            texts[name] = b"".join(pieces)

        extract(web, url, [member], total, take)
    measured = {}
    for name, text in sorted(texts.items()):
        try:
            # `async` is an ordinary name in old releases, which were written for older Pythons
            source = re.sub(r"\basync\b(?!\s+(?:def|with|for)\b)", "async_", text.decode("utf-8", "replace"))
            measured[name] = find_function_lines(source, FUNCTIONS[_map_path(name)])
        except SyntaxError as error:  # written for a Python with other keywords
            print(f"  {name}: {error}", file=sys.stderr)
    return {name: spans for name, spans in measured.items() if spans}


def render(measured: dict[str, dict[str, Any]], as_of: str) -> str:
    """Return the text of the table; equal measurements give equal bytes.

    measured: ordered from the oldest release to the newest.
    """
    rows: dict[str, dict[str, dict[tuple[int, int], list[int]]]] = {}
    for number, files in enumerate(measured.values()):
        for file, names in files.items():
            for name, lines in names.items():
                releases_of = rows.setdefault(file, {}).setdefault(name, {})
                for first, last in lines:
                    releases_of.setdefault((first, last), []).append(number)
    head = {
        "as_of": as_of,
        "sources": ["the Python in each release's Linux x86-64 wheel: scripts/update_functions.py"],
        "releases": list(measured),
    }

    def row(names: dict[str, dict[tuple[int, int], list[int]]]) -> dict[str, str]:
        return {
            name: " ".join(
                f"{first if first == last else f'{first}-{last}'}:{by_release.format_spans(numbers)}"
                for (first, last), numbers in sorted(lines.items())
            )
            for name, lines in sorted(names.items())
        }

    return by_release.render(head, {file: {"functions": row(names)} for file, names in rows.items()})


def load_known(table: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what the table has for each release, in the form that `measure` returns."""
    measured: dict[str, dict[str, Any]] = {version: {} for version in table["releases"]}
    for file, columns in table["files"].items():
        for name, entries in columns["functions"].items():
            for entry in entries.split():
                lines, _, numbers = entry.partition(":")
                first, _, last = lines.partition("-")
                for version in by_release.expand_spans(table["releases"], numbers):
                    measured[version].setdefault(file, {}).setdefault(name, []).append(
                        (int(first), int(last or first))
                    )
    return measured


def find_problems(table: dict[str, Any]) -> list[str]:
    """Return the problems of the table that can be found offline."""
    return by_release.find_unmeasured(table, MINIMUM_RELEASES)


def main() -> int:
    """Update or check the table and return the exit status."""
    options = by_release.parse_options(__doc__)
    table = (
        json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else {"releases": [], "files": {}}
    )
    if options.check:
        return by_release.finish_check(find_problems(table))
    if not options.only and not find_problems(table):
        print("every release is there")
        return 0
    measured = load_known(table)
    fetch(measured, SpecifierSet(options.only, prereleases=True) if options.only else None, options.as_of)
    by_release.print_count(len(measured))
    return 0


def fetch(measured: dict[str, dict[str, Any]], only: SpecifierSet | None, as_of: str) -> None:
    """Measure the releases that `only` contains, or those that are missing.

    The table is written after each release, so that an interrupted run can continue.
    """
    from update_support.remote_zip import Web

    urls = by_release.list_urls()
    web = Web()
    for release in by_release.list_releases():
        version = release["version"]
        if only.contains(version) if only is not None else version not in measured:
            start = time.monotonic()
            measured[version] = measure(web, urls[release["wheel"]])
            print(f"{version}: {len(measured[version])} files, {time.monotonic() - start:.0f} s", flush=True)
            order = sorted(measured, key=Version)
            write_file(TABLE, render({version_text: measured[version_text] for version_text in order}, as_of))


if __name__ == "__main__":
    sys.exit(report_errors(main))
