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
"""Measure compat/functions.json: on which lines the functions of TensorFlow's own Python stand, release for release.

    uv run scripts/update_functions.py               # releases that are missing
    uv run scripts/update_functions.py '>=2.20'      # these anew
    python scripts/update_functions.py --check       # offline: every release of compat/tensorflow.json is there

A traceback names the file, the line and the function: `tensorflow/python/client/session.py", line 1334, in _do_call`.
Only releases whose function stands on that line wrote it. The files that tracebacks go through most often are read out
of one wheel a release, a few hundred KB each; nothing is run.
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from update_support.remote_zip import Member, Web

TABLE = ROOT / "compat" / "functions.json"
MODULE = "<module>"
API = re.compile(r"tensorflow(?:_core)?\._api\b")
"""What `import tensorflow` takes from its other modules, by names that change with each release."""
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
"""What stands in tracebacks most often: where TensorFlow is imported, asked for its devices, and runs something."""
MINIMUM_RELEASES = 100


def functions(source: str, wanted: Iterable[str]) -> dict[str, list[tuple[int, int]]]:
    """The first and last lines of each of these functions; of `<module>`, of each statement that can fail."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
    names = set(wanted)
    found: dict[str, list[tuple[int, int]]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in names:
            found.setdefault(node.name, []).append((node.lineno, node.end_lineno or node.lineno))
    if MODULE in names:
        found[MODULE] = [(one.lineno, one.end_lineno or one.lineno) for one in _statements(tree.body)]
    return {name: sorted(set(lines)) for name, lines in found.items() if lines}


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a module at which a traceback can stand: imports and calls, also below `try` and `if`; not the hundreds
    of imports of the public API."""
    for one in body:
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        parts = [part for name in ("body", "orelse", "finalbody") for part in getattr(one, name, ())]
        handlers = [part for handler in getattr(one, "handlers", ()) for part in handler.body]
        if parts:
            yield from _statements([*parts, *handlers])
        elif (
            isinstance(one, (ast.Import, ast.Raise))
            or any(isinstance(part, ast.Call) for part in ast.walk(one))
            or (isinstance(one, ast.ImportFrom) and not API.match(one.module or ""))
        ):
            yield one


def _map_path(name: str) -> str:
    """The name of a file in FUNCTIONS: 1.15 to 2.1 have the folder `tensorflow_core`."""
    return name.replace("tensorflow_core/", "tensorflow/", 1) if name.startswith("tensorflow_core/") else name


def measure(web: Web, url: str) -> dict[str, dict[str, list[tuple[int, int]]]]:
    """What a wheel has of FUNCTIONS."""
    from update_support.remote_zip import central_directory, extract

    members, total = central_directory(web, url)
    wanted = {}
    for member in members:
        name = member.name.rpartition(".data/purelib/")[2]
        if _map_path(name) in FUNCTIONS:
            wanted[name] = member
    texts: dict[str, bytes] = {}
    for name, member in wanted.items():

        def take(_member: Member, pieces: Iterator[bytes], name: str = name) -> None:
            texts[name] = b"".join(pieces)

        extract(web, url, [member], total, take)
    found = {}
    for name, text in sorted(texts.items()):
        try:
            # `async` was a name like others in the Python that the old ones were written for
            source = re.sub(r"\basync\b(?!\s+(?:def|with|for)\b)", "async_", text.decode("utf-8", "replace"))
            found[name] = functions(source, FUNCTIONS[_map_path(name)])
        except SyntaxError as error:  # written for a Python that had other words
            print(f"  {name}: {error}", file=sys.stderr)
    return {name: one for name, one in found.items() if one}


def render(measured: dict[str, dict[str, Any]], as_of: str) -> str:
    """The table's text; the same bytes of the same measurements. `measured`: oldest first."""
    rows: dict[str, dict[str, dict[tuple[int, int], list[int]]]] = {}
    for place, files in enumerate(measured.values()):
        for file, names in files.items():
            for name, lines in names.items():
                of_name = rows.setdefault(file, {}).setdefault(name, {})
                for first, last in lines:
                    of_name.setdefault((first, last), []).append(place)
    head = {
        "as_of": as_of,
        "sources": ["the Python in each release's Linux x86-64 wheel: scripts/update_functions.py"],
        "releases": list(measured),
    }

    def row(names: dict[str, dict[tuple[int, int], list[int]]]) -> dict[str, str]:
        return {
            name: " ".join(
                f"{first if first == last else f'{first}-{last}'}:{by_release.spans(places)}"
                for (first, last), places in sorted(lines.items())
            )
            for name, lines in sorted(names.items())
        }

    return by_release.render(head, {file: {"functions": row(names)} for file, names in rows.items()})


def load_known(table: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the table says of each release, as `measure` gives it."""
    found: dict[str, dict[str, Any]] = {version: {} for version in table["releases"]}
    for file, row in table["files"].items():
        for name, words in row["functions"].items():
            for word in words.split():
                where, _, places = word.partition(":")
                first, _, last = where.partition("-")
                for version in by_release.expand_spans(table["releases"], places):
                    found[version].setdefault(file, {}).setdefault(name, []).append(
                        (int(first), int(last or first))
                    )
    return found


def stale(table: dict[str, Any]) -> list[str]:
    """What is wrong with the table as it is, offline."""
    return by_release.find_unmeasured(table, MINIMUM_RELEASES)


def main() -> int:
    """Returns the exit status."""
    given = by_release.options(__doc__)
    table = (
        json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else {"releases": [], "files": {}}
    )
    if given.check:
        return by_release.finish_check(stale(table))
    measured = load_known(table)
    fetch(measured, SpecifierSet(given.only, prereleases=True) if given.only else None, given.as_of)
    by_release.format_count(len(measured))
    return 0


def fetch(measured: dict[str, dict[str, Any]], only: SpecifierSet | None, as_of: str) -> None:
    """Measure what is wanted, or not measured; the table is written after each, so that a run can be taken up again."""
    from update_support.remote_zip import Web

    urls = by_release.urls()
    web = Web()
    for row in by_release.releases():
        version = row["version"]
        if only.contains(version) if only is not None else version not in measured:
            start = time.monotonic()
            measured[version] = measure(web, urls[row["wheel"]])
            print(f"{version}: {len(measured[version])} files, {time.monotonic() - start:.0f} s", flush=True)
            order = sorted(measured, key=Version)
            TABLE.write_text(render({one: measured[one] for one in order}, as_of), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
