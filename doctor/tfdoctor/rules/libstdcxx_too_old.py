"""The C++ library that is found is older than this TensorFlow needs.

What it means
-------------
`import tensorflow` stops with "libstdc++.so.6: version `GLIBCXX_3.4.29' not found" or "version
`CXXABI_1.3.13' not found". Often the system's libstdc++ is new enough, but the loader finds an older one first: in a
folder on LD_LIBRARY_PATH, in conda, or in another program's installation.

How it is seen
--------------
The symbol versions that TensorFlow's objects require are compared with those of the libstdc++ that the
loader finds.

What to do
----------
Remove the older library from the loader's search path, or install a newer one.
"""

from __future__ import annotations

import re

from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.imports import find_overriding_libstdcxx
from tfdoctor.remedies.pip import format_check_command, quote
from tfdoctor.remedies.search_path import make_folder_removal_remedy
from tfdoctor.rules.base import CouldNotCheck, Result, Rule, RuleContext, require_known_fact
from tfdoctor.rules.shared import path_shadowing, prerequisites

MISSING_SYMBOL_PATTERN = re.compile(r"^(?P<path>[^:]+): version `(?P<version>(?:GLIBCXX|CXXABI)_[\w.]+)'")
"""The loader's error about a missing symbol version, with the path of the library."""


def check(context: RuleContext) -> Result:
    if context.loader is None:
        unmet_result = require_known_fact(context.facts.loader, "the loader")
        return CouldNotCheck(
            unmet_result.reason if unmet_result is not None else "the loader could not be followed"
        )
    for resolution in context.loader.import_needs:
        overriding_library = find_overriding_libstdcxx(context.facts, resolution)
        match = MISSING_SYMBOL_PATTERN.search(resolution.error)
        if match is None and overriding_library is None:
            continue
        path = (
            match["path"]
            if match is not None
            else overriding_library.path
            if overriding_library is not None
            else ""
        )
        missing_version = match["version"] if match is not None else "symbols"
        title = (
            f"{path} is too old for this TensorFlow"
            if match is not None
            else f"{path} is not a complete C++ library"
        )
        finding = RULE.make_finding(
            Cause.LIBSTDCXX_TOO_OLD,
            Severity.ERROR,
            f"TensorFlow needs {missing_version} of the C++ library; {path}, which the loader takes, does not have "
            f"{'it' if match is not None else 'them'}.",
            title=title,
            evidence=[Evidence("the loader", resolution.error)],
            remedies=_build_remedies(context, path),
        )
        return [path_shadowing.add_shadowing_explanation(context, finding, title=title)]
    return ()


def _build_remedies(context: RuleContext, path: str) -> list[Remedy]:
    """Return the remedy: remove the folder from the search path, or else use a newer library."""
    python = context.python
    removal = make_folder_removal_remedy(context.target, (path.rpartition("/")[0],))
    if removal is not None:
        return [removal]
    if python is not None and python.conda_prefix is not None:
        prefix = quote(python.conda_prefix)
        return [
            Remedy(
                "Install a newer one into the conda environment.",
                (
                    f"conda install --prefix {prefix} -c conda-forge libstdcxx-ng",
                    format_check_command(context.target),
                ),
            )
        ]
    return [Remedy("Run it on a newer system, or in a container with one.")]


RULE = Rule(
    "TFD309",
    "libstdcxx-too-old",
    "The C++ library is too old for this TensorFlow",
    (Cause.LIBSTDCXX_TOO_OLD,),
    check,
    short_title="the C++ library is too old",
    needs=(prerequisites.require_tensorflow,),
)
