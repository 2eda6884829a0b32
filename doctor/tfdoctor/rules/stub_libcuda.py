"""The CUDA toolkit's stub is loaded in place of the driver.

What it means
-------------
The CUDA toolkit has a libcuda.so in a folder called `stubs`, for linking programs on machines without a
driver. It has every function, and none of them works: cuInit returns CUDA_ERROR_STUB_LIBRARY (34). If the
loader finds it before the driver's library, no program sees a GPU.

tfdoctor's own stand-in driver, which `--simulate` uses, identifies itself. It does not belong on a search
path: if it is found without `--simulate`, it is reported here.

How it is seen
--------------
tfdoctor compares the file that the loader maps for libcuda.so.1, and the result of cuInit.

What to do
----------
Remove the stubs folder from LD_LIBRARY_PATH and from /etc/ld.so.conf.d. If there is no driver beside it,
install one.
"""

from __future__ import annotations

from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.driver import list_driver_files
from tfdoctor.remedies.pip import quote
from tfdoctor.remedies.search_path import make_matching_removal_remedy
from tfdoctor.remedies.system import make_driver_remedy
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import drivers, path_shadowing, prerequisites, variable_origins


def check(context: RuleContext) -> Result:
    state = drivers.determine_driver_state(context)
    driver_result = state.driver_result
    if driver_result is None or not driver_result.loaded:
        return NotApplicable("no libcuda.so.1 is loaded")
    if state.cause is not Cause.STUB_LIBCUDA:
        return ()
    path = (
        driver_result.path
        or (state.resolution.path if state.resolution is not None else None)
        or "libcuda.so.1"
    )
    via = state.resolution.via if state.resolution is not None else ""
    label = "the CUDA toolkit's stand-in for linking"
    title = "The toolkit's stub stands in for the driver"
    if driver_result.stand_in:
        label = "tfdoctor's stand-in for `--simulate`, which was left on a search path,"
        title = "tfdoctor's stand-in stands in for the driver"
    driver_files = list_driver_files(context.facts)
    shadowing = path_shadowing.find_driver_shadowing(context, path)
    evidence = [Evidence(path, state.reason)]
    if shadowing is not None:
        via = path_shadowing.format_harmful_entries(shadowing)
    if via:
        evidence.append(Evidence("the loader", f"finds it through {via}"))
    if shadowing is not None:
        evidence += path_shadowing.list_hidden_file_evidence(context, shadowing)
    evidence += [Evidence(file, "is the driver's own") for file in driver_files if file != path][:2]
    return [
        RULE.make_finding(
            Cause.STUB_LIBCUDA,
            Severity.ERROR,
            f"The loader takes {path} for libcuda.so.1{f', through {via}' if via else ''}. It is {label} and drives "
            f"no card.{_describe_origins(context, shadowing)}",
            title=title,
            evidence=evidence,
            remedies=_list_remedies(
                context, path, via, shadowing, has_driver=any(file != path for file in driver_files)
            ),
        )
    ]


def _describe_origins(context: RuleContext, shadowing: path_shadowing.Shadowing | None) -> str:
    if shadowing is None:
        return ""
    return "".join(
        variable_origins.format_origin_sentence(context, shadowing.removal_result.variable, entry)
        for entry in shadowing.removal_result.entries
    )


def _list_remedies(
    context: RuleContext, path: str, via: str, shadowing: path_shadowing.Shadowing | None, *, has_driver: bool
) -> list[Remedy]:
    """Return the remedies; `has_driver` says whether the driver's own libcuda exists."""
    sudo, remedies = get_sudo_prefix(context.target), []
    removal = make_matching_removal_remedy(
        context.target, "/stubs/", "Remove the stubs folder from LD_LIBRARY_PATH."
    )
    if shadowing is not None:
        removal = path_shadowing.make_entry_removal_remedy(context, shadowing)
    if removal is not None:
        remedies.append(removal)
    if "ld.so.cache" in via:
        remedies.append(
            Remedy(
                "Find the file that names the stubs folder to the loader, remove its line, and rebuild "
                "the cache.",
                ("grep -rn stubs /etc/ld.so.conf /etc/ld.so.conf.d", f"{sudo}ldconfig"),
                changes_system=True,
            )
        )
    if removal is None and "ld.so.cache" not in via:
        remedies.append(
            Remedy(
                "See what leads there; where it is a link that somebody made, remove the link.",
                (f"ls -l {quote(path)}",),
            )
        )
    if has_driver:
        return remedies
    if context.facts.machine.container:
        return [
            *remedies,
            Remedy(
                "Then start the container with GPUs (Docker: `--gpus all`): the driver comes from the host."
            ),
        ]
    install_remedy = make_driver_remedy(context.target)
    return [
        *remedies,
        Remedy(f"No driver is visible. {install_remedy.text}", install_remedy.commands, changes_system=True),
    ]


RULE = Rule(
    "TFD107",
    "stub-libcuda",
    "The CUDA toolkit's stub is loaded in place of the driver",
    (Cause.STUB_LIBCUDA,),
    check,
    short_title="the toolkit's stub is loaded",
    needs=(prerequisites.require_driver_result,),
    fix_order=30,
)
