"""Suggest remedies for the cause that a log shows, for the release that wrote the log."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.causes import Cause, CommonRemedy
from tfdoctor.core.causes.steps import Remedy
from tfdoctor.logs.frameworks import FRAMEWORK_NAMES
from tfdoctor.logs.libraries import find_search_path
from tfdoctor.logs.missing_package import find_missing_package, find_older_python, find_usual_python
from tfdoctor.prediction.fit.compatibility import find_best_fit, find_gpu_reasons, is_locked
from tfdoctor.prediction.fit.models import Host, HostGpu
from tfdoctor.remedies.book import choose_entries, fill_placeholders, make_book_remedy
from tfdoctor.remedies.engine import list_configure_commands, make_toolkit_remedy
from tfdoctor.remedies.place import Place, fit_remedy
from tfdoctor.remedies.search_path import format_export_lines
from tfdoctor.remedies.tools import CONDA_TOOLS, Tool, convert_remedy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.compat import Release
    from tfdoctor.compat.remedies import BookEntry
    from tfdoctor.logs.log_context import LogContext

__all__ = [
    "CHECK_REMEDY",
    "THAT_MACHINE_TEXT",
    "describe_usual_reason",
    "find_reason",
    "list_remedies",
    "list_specific_remedies",
]

THAT_MACHINE_TEXT = "On the machine that wrote this log, run:"
CHECK_REMEDY = Remedy("Check the machine itself: it shows what a log cannot.", ("tfdoctor check",))
_FIXED_REMEDIES: dict[CommonRemedy, Remedy] = {
    CommonRemedy.CHECK: CHECK_REMEDY,
    CommonRemedy.RESTART: Remedy(
        "Restart the machine: the new kernel module is loaded then.", ("sudo reboot",), changes_system=True
    ),
    CommonRemedy.GPUS: Remedy(
        "Start the container with GPUs.", ("docker run --rm --gpus all IMAGE nvidia-smi",)
    ),
    CommonRemedy.UTILITIES: Remedy(
        "In a container, start it with the driver's utilities.",
        ("docker run --rm --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE nvidia-smi",),
    ),
    CommonRemedy.TOOLKIT: make_toolkit_remedy(list_configure_commands("sudo ")),
    CommonRemedy.MEMORY: Remedy(
        "Let TensorFlow allocate memory as needed, and see which other processes hold some.",
        ("export TF_FORCE_GPU_ALLOW_GROWTH=true", "nvidia-smi"),
    ),
    CommonRemedy.RUN: Remedy(
        "Or run the program once more under tfdoctor: TensorFlow then logs more.",
        ("tfdoctor run python3 train.py",),
    ),
    CommonRemedy.NAME_LIBRARIES: Remedy(
        "Make TensorFlow name the libraries: run the program once more under tfdoctor.",
        ("tfdoctor run python3 -c \"import tensorflow as tf; tf.config.list_physical_devices('GPU')\"",),
    ),
}
"""The remedies that do not depend on the log."""
_TOOLKIT_FOLDER = re.compile(r"^(/[\w./-]{0,80}/cuda(-\d{1,2}\.\d)?)/(?:targets/[\w-]{1,40}/)?lib(?:64)?/?$")
"""A library folder of a CUDA toolkit. The groups are the toolkit's root and the version in its name, such as "-11.2"."""
_TOOL_BY_SIGNATURE = {
    "dockerfile-hint": Tool.dockerfile,
    "colab-hint": Tool.colab,
    "r-hint": Tool.r,
    "pixi-hint": Tool.pixi,
    "poetry-hint": Tool.poetry,
    "uv-hint": Tool.uv,
}
_CUDA = re.compile(r"cuda ?>= ?(\d{1,2}\.\d{1,2})")
_CUDNN = re.compile(r"(\d+)\.\d+")
_WHEEL = re.compile(r"-cp(\d)(\d{1,2})-")
_CUDNN_PATH_COMMAND = (
    "export LD_LIBRARY_PATH=\"$(python3 -c 'import nvidia.cudnn as m; print(list(m.__path__)[0])')/lib"
    '${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"'
)
"""The command that lets a TensorFlow find cuDNN's wheel that does not search its folder."""
_COUNTERS_REMEDY = Remedy(
    "Start the container with --cap-add=SYS_ADMIN, or load the kernel module nvidia with "
    "NVreg_RestrictProfilingToAdminUsers=0, or do without the profiler.",
    ("grep RmProfilingAdminOnly /proc/driver/nvidia/params",),
)


_LOAD_MODULE_REMEDY = Remedy(
    "Load the module that serves CUDA again (suspend and some updates lose it); otherwise restart.",
    ("sudo modprobe nvidia_uvm",),
    changes_system=True,
)
_HOST_MEMORY_REMEDY = Remedy(
    "See whether a limit (`ulimit -v`, a batch system) or full memory stops the driver: cuInit reserves much address "
    "space of the computer, and no memory of the GPU.",
    ("ulimit -v", "free -m"),
)


def list_remedies(context: LogContext, cause: Cause) -> tuple[Remedy, ...]:
    """Return the remedies for a cause, with the versions of the release that wrote the log if it is known.

    Those for a message or a place in the log come first. The commands are for the tool that manages the packages there.
    """
    tool = _find_tool(context)
    conda_packages = context.compat.conda_names.identical_names if tool in CONDA_TOOLS else ()
    return _fit_remedies(
        context,
        [convert_remedy(remedy, tool, conda_packages) for remedy in _list_pip_remedies(context, cause)],
    )


def _fit_remedies(context: LogContext, remedies: Iterable[Remedy]) -> tuple[Remedy, ...]:
    """Return the remedies with the commands that can be typed where the log was written.

    If no command of any remedy is left, the first text stays.
    """
    remedies = tuple(remedies)
    fitted = tuple(
        remedy for remedy in (fit_remedy(remedy, context.places) for remedy in remedies) if remedy is not None
    )
    texts = [replace(remedy, commands=()) for remedy in remedies if remedy is not CHECK_REMEDY]
    return fitted or tuple(texts[:1])


def _find_tool(context: LogContext) -> Tool:
    """Return the tool that manages the packages where the log was written, by what the log shows of it."""
    found = (tool for name, tool in _TOOL_BY_SIGNATURE.items() if context.log.has(name))
    return context.requested_tool or next(found, Tool.pip)


def _list_pip_remedies(context: LogContext, cause: Cause) -> tuple[Remedy, ...]:
    """Return the remedies with commands of pip, each once.

    A hint without a command comes after the general remedies that it accompanies.
    """
    entries = _choose_entries(context, cause)
    result = _make_book_remedies(context, entries)
    if all(entry.keeps_general_remedies for entry in entries):
        hints = [remedy for remedy in result if not remedy.commands]
        result = [remedy for remedy in result if remedy.commands]
        templates = cause.data.log_remedies
        for template in (templates,) if isinstance(templates, Remedy) else templates:
            result += [template] if isinstance(template, Remedy) else _make_remedies(context, template)
        result += hints
    return tuple({(remedy.text, remedy.commands): remedy for remedy in reversed(result)}.values())[::-1]


def list_specific_remedies(context: LogContext, cause: Cause) -> tuple[Remedy, ...]:
    """Return the remedies of the book for a message or a place in the log."""
    return _fit_remedies(context, _make_book_remedies(context, _choose_entries(context, cause)))


def find_reason(context: LogContext, cause: Cause) -> str:
    """Return the sentence that explains the cause in the circumstances of this log; empty if there is none."""
    reason = next((entry.reason for entry in _choose_entries(context, cause) if entry.reason), "")
    return fill_placeholders(reason, _list_placeholder_values(context)) if "{" in reason else reason


def _choose_entries(context: LogContext, cause: Cause) -> tuple[BookEntry, ...]:
    """Return the entries of the book for this log. Those for another framework are only for a log of that framework."""
    other_places = {place.value for place in Place if place not in context.places}

    def list_lines(signature: str) -> Iterable[str]:
        # A line may hint at a place where the log was not written, as a path of Windows beside libraries of Linux does.
        if (
            signature in other_places
            or FRAMEWORK_NAMES.get(signature, context.framework) != context.framework
        ):
            return ()
        return (event.text for event in context.log.list_events(signature))

    return choose_entries(context.compat.remedies, cause, list_lines, _list_possible_versions(context))


def _list_possible_versions(context: LogContext) -> list[str]:
    """Return the versions of TensorFlow that can have written the log; an empty list if it does not tell."""
    if context.origin.version is not None:
        return [context.origin.version]
    first, _, last = (context.origin.era or "").partition("-")
    if not first or first.endswith("+"):
        return []
    return [
        release.version
        for release in context.compat.releases
        if versions.compare(first, release.minor) <= 0 <= versions.compare(last or first, release.minor)
    ]


def _make_book_remedies(context: LogContext, entries: Sequence[BookEntry]) -> list[Remedy]:
    """Return the remedies of entries, with the values of this log."""
    values = _list_placeholder_values(context) if entries else {}
    return [make_book_remedy(entry, values) for entry in entries]


def _list_placeholder_values(context: LogContext) -> dict[str, str]:
    """Return the values of the placeholders in compat/remedies.toml."""
    release = _find_release(context)
    version = context.origin.version or (release.minor if release is not None else None)
    environments = [event.get("env") for event in context.log.list_events("conda-hint") if event.get("env")]
    # a path from the root serves every user and every quotation mark
    environment = next(iter(sorted(environments, key=lambda path: not path.startswith("/"))), "")
    return {
        **_list_log_values(context),
        "driver_option": _make_driver_option(context),
        "tf_keras": f"~={release.minor}.0" if release is not None else "",
        "package": _name_package(release),
        "env": environment.replace("~", "$HOME", 1) or "$CONDA_PREFIX",
        "gpus": _make_machine_options(context),
        "release": f"=={context.origin.version}" if context.origin.version else "",
        **({"minor": release.minor} if release is not None else {}),
        **(
            {"cuda_version": versions.major_minor(release.cuda)}
            if release is not None and release.cuda
            else {}
        ),
        "tf": f" --tf {shlex.quote(version)}" if version else "",
        "cuda": (release.cuda if release is not None else None) or "of the release",
        "cudnn": str(versions.major(release.cudnn))
        if release is not None and release.cudnn
        else "of the release",
    }


def _name_package(release: Release | None) -> str:
    """Return the requirement of the release's package with GPU code, such as "tensorflow-gpu==1.14.0"."""
    if release is None:
        return "tensorflow[and-cuda]"
    extra = f"[{release.pip_extra}]" if release.pip_extra else ""
    return f"{release.package}{extra}=={release.version}"


def _list_log_values(context: LogContext) -> dict[str, str]:
    """Return the values of the placeholders that come from single messages."""
    log, release = context.log, _find_release(context)
    wanted = next(
        (match[1] for event in log.list_events("cuda-requirement") if (match := _CUDA.search(event.text))), ""
    )
    minimum = context.compat.find_driver_minimum(wanted).toolkit_driver if wanted else None
    wheel = next(
        (match for event in log.list_events("no-wheel") if (match := _WHEEL.search(event.text))), None
    )
    nvcc_package = ""
    if release is not None and release.cuda:
        nvcc_package = f"nvidia-cuda-nvcc-cu{max(versions.major(release.cuda), 11)}"
    built = next(
        (match for event in log.list_events("cudnn-version") if (match := _CUDNN.match(event.get("built")))),
        None,
    )
    cudnn_command = _format_cudnn_command(context, built) if built is not None else ""
    listed_folder = next(
        (event.get("folder") for event in log.list_events("library-file-listed") if event.get("folder")), ""
    ).rstrip("/")
    return {
        "wanted_cuda": wanted,
        "wanted_driver": f"driver {minimum}" if minimum else "the driver of that CUDA",
        "wheel_python": f"{wheel[1]}.{wheel[2]}" if wheel is not None else "3",
        "ngc_card": next(
            (event.get("name") for event in log.list_events("ngc-unsupported-card") if event.get("name")),
            "NAME",
        ),
        "tls_library": shlex.quote(
            next((event.get("library") for event in log.list_events("static-tls")), "LIBRARY")
        ),
        "nvcc_name": nvcc_package or "nvidia-cuda-nvcc-cu11 or -cu12, by TensorFlow's CUDA",
        **({"nvcc_package": nvcc_package} if nvcc_package else {}),
        "built_cudnn": built[0] if built is not None else "of the release",
        **({"cudnn_command": cudnn_command} if cudnn_command else {}),
        **(
            {"cudnn_path_command": _CUDNN_PATH_COMMAND}
            if built is not None and cudnn_command and not _searches_wheels(context, built[0])
            else {}
        ),
        **({"listed_folder": listed_folder} if listed_folder else {}),
        "op_package": next(
            (event.get("package") for event in log.list_events("op-library-symbol")), ""
        ).replace("_", "-")
        or "the package",
    }


def _list_releases_with_cudnn(context: LogContext, cudnn: str) -> list[Release]:
    """Return the release that wrote the log, or if it is not known, all that were built with this cuDNN."""
    if context.origin.release is not None:
        return [context.origin.release]
    releases = context.compat.gpu_releases
    return [release for release in releases if versions.major_minor(release.cudnn or "") == cudnn]


def _searches_wheels(context: LogContext, cudnn: str) -> bool:
    """Return whether the releases that can have written the log search the folders of NVIDIA's wheels by themselves."""
    return all(release.runpath for release in _list_releases_with_cudnn(context, cudnn))


def _format_cudnn_command(context: LogContext, built: re.Match[str]) -> str:
    """Return the command that installs the cuDNN with which TensorFlow was built, or a newer one of its major version.

    The CUDA of the package is that of the release, else that of all releases with this cuDNN. Return "" if they differ,
    or if no such package exists.
    """
    cuda_majors = {
        versions.major(release.cuda)
        for release in _list_releases_with_cudnn(context, built[0])
        if release.cuda
    }
    # the first packages of cuDNN are for CUDA 11
    if len(cuda_majors) != 1 or min(cuda_majors) < 11 or Place.WINDOWS in context.places:
        return ""
    return f"python3 -m pip install 'nvidia-cudnn-cu{cuda_majors.pop()}>={built[0]},<{int(built[1]) + 1}'"


def _make_remedies(context: LogContext, kind: CommonRemedy) -> Sequence[Remedy]:
    """Return the remedies of one kind for this log."""
    if kind is CommonRemedy.RELEASE:
        return _suggest_release(context)
    if kind in (CommonRemedy.LIBRARIES, CommonRemedy.LIBRARY):
        package = find_missing_package(context)
        if package is not None and not package.is_tensorflow:
            return ()
        options = _make_library_remedies(context)
        # the causes with LIBRARY suggest `tfdoctor check` themselves
        others = [option for option in options if option.commands[:1] != ("tfdoctor check",)]
        return (others or options)[:1] if kind is CommonRemedy.LIBRARY else options
    if kind is CommonRemedy.PROFILER:
        return (_COUNTERS_REMEDY if context.log.has("cupti-not-permitted") else _make_cupti_remedy(context),)
    if kind is CommonRemedy.DRIVER_START:
        codes = [event.get("code") for event in context.log.list_events("cuinit")]
        lacks_memory = any("OUT_OF_MEMORY" in code for code in codes)
        return (_HOST_MEMORY_REMEDY if lacks_memory else _LOAD_MODULE_REMEDY,)
    if kind is CommonRemedy.DRIVER:
        return _make_driver_remedies(context)
    if kind is CommonRemedy.HOST_DRIVER:
        text = "On the host: see which image its driver can run."
        return (Remedy(text, (f"tfdoctor recommend --method container{_make_driver_option(context)}",)),)
    if kind is CommonRemedy.STUB:
        return (_make_stub_remedy(context),)
    if kind is CommonRemedy.APPTAINER:
        return _make_apptainer_remedy(context)
    return (_FIXED_REMEDIES[kind],)


def _make_apptainer_remedy(context: LogContext) -> tuple[Remedy, ...]:
    """Return the remedy that runs the program in an official image whose TensorFlow finds its libraries.

    It is the image of the release that wrote the log, or else the newest one.
    """
    release = _find_release(context)
    candidates = (*context.compat.gpu_releases, *([release] if release is not None else []))
    for candidate in reversed(candidates):
        image = context.compat.images.find_official(candidate.version)
        if image is not None and image.recipe.has_working_libraries:
            text = f"With Apptainer, a user without root can run an image of TensorFlow {candidate.version}."
            return (Remedy(text, (f"apptainer exec --nv docker://{image.names[0]} python3 train.py",)),)
    return ()


def _list_search_path(context: LogContext) -> list[str]:
    """Return the folders on LD_LIBRARY_PATH, or an empty list if the log does not show them."""
    return [
        folder.strip().rstrip("/")
        for folder in (find_search_path(context.missing_libraries) or "").split(":")
        if folder.strip()
    ]


def _make_cupti_remedy(context: LogContext) -> Remedy:
    """Return the remedy that adds CUPTI to the search path.

    It is the CUPTI of the first toolkit on the search path in the log, or else of /usr/local/cuda.
    """
    toolkits = [match[1] for folder in _list_search_path(context) if (match := _TOOLKIT_FOLDER.match(folder))]
    toolkit = toolkits[0] if toolkits else "/usr/local/cuda"
    origin = "that the log names" if toolkits else "in /usr/local/cuda"
    return Remedy(
        f"Put the CUDA toolkit's extras/CUPTI/lib64 on LD_LIBRARY_PATH (here of the one {origin}), or do without "
        "the profiler.",
        format_export_lines(f"{toolkit}/extras/CUPTI/lib64", "CUPTI"),
    )


def _make_driver_remedies(context: LogContext) -> tuple[Remedy, ...]:
    """Return the remedies for an old driver: a newer driver, or a TensorFlow that works with it."""
    driver = _find_required_driver(context)
    requirement = f" ({driver} or newer)" if driver else ""
    where = " in Windows" if Place.WSL in context.places else ""
    newer_driver_remedy = Remedy(
        f"Install a newer NVIDIA driver{requirement}{where}, then restart. This shows the installed one.",
        ("nvidia-smi",),
        changes_system=True,
    )
    if context.driver_version is None or context.is_windows:
        return (newer_driver_remedy,)
    # a driver that is new enough for the release is refused for another reason, which other releases meet, too
    fit = find_best_fit(context.compat, _make_host(context)) if driver else None
    name = f"TensorFlow {fit.release.version}, which works with" if fit else "a TensorFlow that works with"
    suggestion = f"Or take {name} driver {context.driver_version}."
    return (newer_driver_remedy, Remedy(suggestion, (_make_recommend_command(context),)))


def _find_required_driver(context: LogContext) -> str | None:
    """Return the oldest driver that the release needs; None if it is not known, or if the log shows a newer one."""
    release = _find_release(context)
    cuda = context.origin.cuda_version or (release.cuda if release is not None else None)
    if cuda is None or "." not in cuda:
        return None
    is_windows = context.is_windows or Place.WSL in context.places
    minimum = context.compat.find_driver_minimum(cuda, "windows" if is_windows else "linux")
    # code that the driver must compile needs the driver of its CUDA
    has_newer_code = any("PTX" in event.text for event in context.log.list_events("driver-insufficient"))
    driver = minimum.toolkit_driver if has_newer_code else minimum.minimum
    if driver is None or (
        context.driver_version is not None and versions.is_at_least(context.driver_version, driver)
    ):
        return None
    return driver


def _make_stub_remedy(context: LogContext) -> Remedy:
    """Return the remedy that removes the stubs from the folders that are searched, with a command if possible."""
    text = (
        "Remove the folder `stubs` from LD_LIBRARY_PATH (or from /etc/ld.so.conf.d, then `ldconfig`); in a container, "
        "start it with GPUs."
    )
    folders = _list_search_path(context)
    remaining = [folder for folder in folders if not folder.endswith("/stubs")]
    if remaining == folders:
        return Remedy(text)
    command = (
        f"export LD_LIBRARY_PATH={shlex.quote(':'.join(remaining))}" if remaining else "unset LD_LIBRARY_PATH"
    )
    return Remedy(text, (command,))


def _make_folder_remedy(context: LogContext) -> tuple[Remedy, ...]:
    """Return the remedy that puts the required CUDA's folder first on the search path, or () if unknown."""
    if context.mismatched_cuda_versions is None or "." not in (
        required := context.mismatched_cuda_versions[1]
    ):
        return ()
    for folder in _list_search_path(context):
        match = _TOOLKIT_FOLDER.match(folder)
        version_suffix = match[2] if match is not None else None
        if version_suffix:
            required_folder = folder.replace(version_suffix, f"-{required}", 1)
            text = f"Or search CUDA {required}'s folder first, where that is installed beside it ({required_folder})."
            return (
                Remedy(
                    text,
                    (f"ls {shlex.quote(required_folder)}", *format_export_lines(required_folder, "CUDA")),
                ),
            )
    return ()


def describe_usual_reason(context: LogContext, cause: Cause) -> str:
    """Return a sentence on the usual reason for a cause, or an empty string if there is none."""
    if cause not in (Cause.LIBS_UNLISTED, Cause.LIBS_NOT_INSTALLED, Cause.IMPORT_MISSING_CUDA_LIB):
        return ""
    release, needs = _find_release(context), _describe_needs(context)
    if release is not None and release.pip_extra is not None:
        return (
            f"{needs}Usually it was installed with plain `pip install {release.package}`, which does not include CUDA; "
            f"`{release.package}[{release.pip_extra}]` does."
        )
    return f"{needs}`pip install` of this TensorFlow does not bring CUDA; usually it is missing or another version."


def _describe_needs(context: LogContext) -> str:
    """Return a sentence on the CUDA and the cuDNN of the releases that can have written the log.

    It is empty if the releases need different ones, or if they are not known.
    """
    release = context.origin.release
    era = context.origin.era or (release.minor if release is not None else "")
    first, _, last = era.partition("-")
    last = last or first
    if not first or not last or era.endswith("+"):
        return ""
    pairs = {
        (release.cuda, versions.major_minor(release.cudnn))
        for release in context.compat.gpu_releases
        if versions.compare(first, release.minor) <= 0 <= versions.compare(last, release.minor)
        if release.cuda and release.cudnn
    }
    if len(pairs) != 1:
        return ""
    ((cuda, cudnn),) = pairs
    return f"TensorFlow {context.origin.version or context.origin.era} needs CUDA {cuda} and cuDNN {cudnn}. "


def _suggest_release(context: LogContext) -> tuple[Remedy, ...]:
    """Return the remedies that recommend a TensorFlow for the GPUs in the log, or else for this machine.

    For a package that was not found, the first is for the version that was asked for.
    """
    newest_text = "See which TensorFlow fits, and how to install it."
    package = find_missing_package(context)
    command = _make_recommend_command(context)
    if package is None:
        return (Remedy(newest_text, (command,)),)
    if not package.is_tensorflow:
        older = find_older_python(context)
        text = (
            f"Install a version of {package.name} that pip lists, beside TensorFlow of the same minor version"
        )
        text += f", or take Python {older} or older." if older else "."
        return (Remedy(text, (f"python3 -m pip index versions {package.name}", "tfdoctor matrix")),)
    if package.version is None:
        python = find_usual_python(context)
        text = (
            f"Use Python {python}, or see which TensorFlow there is for your Python, and how to install it."
        )
        return (Remedy(text if python else newest_text, (command,)),)
    text = f"Use a Python for which TensorFlow {package.version} has a wheel: this says which, and how to install it."
    return (Remedy(text, (f"{command} --tf {shlex.quote(package.version)}",)),)


def _make_recommend_command(context: LogContext) -> str:
    return f"tfdoctor recommend{_make_machine_options(context)}"


def _make_machine_options(context: LogContext) -> str:
    """Return the command-line options that describe the GPUs and the driver in the log, if it names them."""
    gpu_options = "".join(
        f" --gpu {shlex.quote(name)}"
        for name in context.gpu_names[:4]
        if context.compat.find_gpus_by_name(name)
    )
    return f"{gpu_options}{_make_driver_option(context)}"


def _make_driver_option(context: LogContext) -> str:
    return f" --driver {shlex.quote(context.driver_version)}" if context.driver_version is not None else ""


def _find_release(context: LogContext) -> Release | None:
    """Return the release that wrote the log, or the newest that can have written it, or None if unknown."""
    if context.origin.release is not None:
        return context.origin.release
    newest = (context.origin.era or "").rstrip("+").rpartition("-")[2]
    if not newest or (context.origin.era or "").endswith("+"):
        return None
    releases = [release for release in context.compat.gpu_releases if release.minor == newest]
    return releases[-1] if releases else None


def _make_library_remedies(context: LogContext) -> tuple[Remedy, ...]:
    """Return the remedies for missing libraries.

    The first remedy repairs the environment, or if no packages with CUDA exist for the release, it makes an image. The
    others suggest a new environment or image, a suitable release, and the requirements of the release.
    """
    release, version = _find_release(context), context.origin.version
    # without a release of compat/, the log comes from another build of this version
    if context.origin.release is None and version is not None and not context.is_windows:
        other_build_text = (
            f"This TensorFlow {version} was built for other libraries; the one from the package index, "
            f"in a container image, finds its own."
        )
        return (Remedy(other_build_text, (f"tfdoctor build --tf {shlex.quote(version)}",)),)
    if context.is_windows:
        wsl_remedy = Remedy(
            "Use WSL 2: there this makes an environment with TensorFlow and its libraries.",
            ("tfdoctor install",),
        )
        return (wsl_remedy, *_make_requirement_remedy(context, release, version))
    cuda_set = context.compat.cuda_sets.find_for_release(release.version) if release is not None else None
    has_cuda_packages = cuda_set is not None
    repair_remedy = Remedy(THAT_MACHINE_TEXT, ("tfdoctor check",))
    if has_cuda_packages:
        repair_remedy = Remedy(THAT_MACHINE_TEXT, ("tfdoctor check", "tfdoctor fix"))
    if release is None or not release.gpu:
        install_remedy = Remedy(
            "Or make a new environment with TensorFlow and its libraries.", ("tfdoctor install",)
        )
        return (
            repair_remedy,
            install_remedy,
            *_suggest_suitable_release(context),
            *_make_requirement_remedy(context, None, None),
        )
    exact_version = version if version and context.compat.find_release(version) else release.version
    release_argument = shlex.quote(exact_version if version and version != release.minor else release.minor)
    remedies = [repair_remedy, *_make_folder_remedy(context)]
    if not _is_compatible(context, release):
        suggestion = (
            f"Or see what there is of TensorFlow {exact_version} for the card and the driver in this log."
        )
        return (
            *remedies,
            Remedy(suggestion, (f"{_make_recommend_command(context)} --tf {release_argument}",)),
            *_make_requirement_remedy(context, release, version),
        )
    machine_options = _make_machine_options(context)
    if cuda_set is not None:
        cuda = versions.major_minor(cuda_set.cuda)
        suggestion = f"Or make a new environment with TensorFlow {exact_version} and CUDA {cuda}."
        remedies.append(Remedy(suggestion, (f"tfdoctor install --tf {release_argument}{machine_options}",)))
    # Not every patch release has an image: another one of the same minor may.
    official_version = next(
        (
            candidate.version
            for spec in (exact_version, release.minor)
            for candidate in context.compat.select(spec)
            if (image := context.compat.images.find_official(candidate.version)) is not None
            and _is_locked(context, candidate.version, (image.recipe.python,))
        ),
        None,
    )
    has_exact_image = (
        has_cuda_packages
        or bool(context.compat.images.list_ngc(exact_version))
        or _has_base_image(context, release)
    )
    image_version = exact_version if has_exact_image else official_version
    if image_version is not None:
        suggestion = (
            f"uild a container image of TensorFlow {image_version} with its libraries."
            f"{_describe_code(context, release)}"
        )
        if image_version != exact_version and release_argument != release.minor:
            release_argument = image_version
        command = f"tfdoctor build --tf {release_argument}{machine_options}"
        if has_cuda_packages:
            remedies.append(Remedy(f"Or b{suggestion}", (command,)))
        else:
            remedies.insert(0, Remedy(f"B{suggestion}", (command,)))
    else:
        remedies.append(
            Remedy(
                "Or see which release comes nearest.",
                (f"tfdoctor recommend --tf {release_argument}{machine_options}",),
            )
        )
    return (
        *remedies,
        *_suggest_suitable_release(context),
        *_make_requirement_remedy(context, release, version),
    )


def _is_compatible(context: LogContext, release: Release) -> bool:
    """Return whether the release runs on the GPUs and driver in the log, as far as the log names them."""
    return not find_gpu_reasons(context.compat, release, _make_host(context))


def _make_host(context: LogContext) -> Host:
    """Return a machine with the GPUs and the driver in the log, as far as the log names them."""
    gpu_matches = [
        match
        for name in context.gpu_names[:4]
        if (match := context.compat.find_gpus_by_name(name)) is not None
    ]
    gpus = tuple(HostGpu(match.query, match.capabilities[0], match.capabilities[1:]) for match in gpu_matches)
    return Host(cards=gpus, driver=context.driver_version)


def _describe_code(context: LogContext, release: Release) -> str:
    """Return a sentence that says that the release has code for the GPUs in the log.

    Return an empty string if the log names no GPU, or if the release lacks code for one of them.
    """
    gpu_names = context.gpu_names[:4]
    for name in gpu_names:
        match = context.compat.find_gpus_by_name(name)
        codes = (
            {context.compat.find_code(release, capability) for capability in match.capabilities}
            if match is not None
            else set()
        )
        if not codes or not codes <= {"native", "jit"}:
            return ""
    return f" It has code for {' and '.join(gpu_names)}." if gpu_names else ""


def _has_base_image(context: LogContext, release: Release) -> bool:
    """Return whether NVIDIA still publishes a base image for the release, and the release has a lock file."""
    if release.cudnn is None or not _is_locked(context, release.version, release.pythons()):
        return False
    cuda, cudnn = versions.major_minor(release.cuda or ""), versions.major(release.cudnn)
    return bool(context.compat.images.list_tags(cuda, cudnn_major=cudnn, flavour="runtime"))


def _is_locked(context: LogContext, version: str, pythons: Iterable[str]) -> bool:
    """Return whether a TensorFlow GPU package of this version has a lock file for one of these Pythons."""
    releases = [release for release in context.compat.releases if release.version == version and release.gpu]
    return any(is_locked(context.compat, release, python) for release in releases for python in pythons)


def _suggest_suitable_release(context: LogContext) -> tuple[Remedy, ...]:
    """Return the remedy that recommends a release for the first known GPU in the log, if there is one."""
    names = [name for name in context.gpu_names if context.compat.find_gpus_by_name(name)]
    if not names:
        return ()
    return (Remedy(f"Or see which TensorFlow fits a {names[0]}.", (_make_recommend_command(context),)),)


def _make_requirement_remedy(
    context: LogContext, release: Release | None, version: str | None
) -> tuple[Remedy, ...]:
    """Return the remedy that shows the requirements of the release, or of all releases if it is unknown."""
    if release is None or not release.gpu or (version is None and "-" in (context.origin.era or "-")):
        return (Remedy("See what each release needs.", ("tfdoctor matrix",)),)
    exact_version = version or release.minor
    cudnn = f" and cuDNN {release.cudnn}" if release.cudnn else ""
    evidence_text = "lines of its source" if context.origin.basis == "lines" else "names of the libraries"
    caveat = "" if version else f" (the release was deduced from the {evidence_text})"
    text = f"TensorFlow {exact_version} needs CUDA {release.cuda}{cudnn}{caveat}."
    return (Remedy(text, (f"tfdoctor matrix --tf {shlex.quote(exact_version)}",)),)
