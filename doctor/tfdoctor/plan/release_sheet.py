"""The data sheet of one TensorFlow release: what it needs, what has gone wrong with it, how it is installed. Pure.

It is about no machine: the commands make a fresh environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.advice import Target
from tfdoctor.findings import Remedy
from tfdoctor.fit import Card, Host
from tfdoctor.plan import cpu_fallback
from tfdoctor.plan.models import Recipe
from tfdoctor.plan.recipes import from_conda
from tfdoctor.rules import ALL_RULES, known_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.compat import Compat, Problem, Release
    from tfdoctor.compat.releases import Platform
    from tfdoctor.fit.matrix import MatrixRow

__all__ = ["Sheet", "code_of", "conditions", "pythons", "sheet"]


@dataclass(frozen=True, slots=True)
class Sheet:
    """One release, for a reader."""

    row: MatrixRow
    others: tuple[MatrixRow, ...]
    """The rows of the same version in other distributions."""
    needs: tuple[tuple[str, str], ...]
    """(what, how much), in the order in which a person meets them."""
    steps: tuple[Remedy, ...]
    """Ways to install it, the best one first; every way is complete."""


def sheet(
    compat: Compat,
    rows: Sequence[MatrixRow],
    *,
    capabilities: Sequence[str] = (),
    python: str | None = None,
    system: Platform = "linux",
) -> Sheet:
    """Return the sheet of the rows of one version.

    The row with GPU code, of those `tensorflow`, speaks for it.

    `capabilities`: the cards it is to run on; `python`: the Python it is to be installed in; `system`: whose way to
    install it comes first.
    """
    main = next((row for row in rows if row.release.gpu), rows[0])
    others = tuple(row for row in rows if row is not main)
    steps = _steps(compat, main.release, capabilities, python)
    if system == "windows" and main.release.windows_gpu:
        steps = [*steps[-1:], *steps[:-1]]
    return Sheet(main, others, tuple(_needs(main)), tuple(steps))


def code_of(problem: Problem) -> str:
    """Return the code under which `tfdoctor check` reports a known problem: the rule that sees it on the machine,
    else TFD313.
    """
    if problem.told_by_rules:
        for rule in ALL_RULES:
            if rule is not known_problem.RULE and problem.cause in {cause.value for cause in rule.causes}:
                return rule.code
    return known_problem.RULE.code


def conditions(problem: Problem) -> str:
    """When a problem shows, for the reader; empty: always."""
    words = {
        "capability": "compute capability {}",
        "extra": "installed with [{}]",
        "image": "in the image {}",
        "python": "Python {}",
        "platform": "on {}",
    }
    named = {"windows": "Windows", "linux": "Linux"}
    return "; ".join(words[key].format(named.get(value, value)) for key, value in problem.when.items())


def pythons(texts: Sequence[str]) -> str:
    """Return `3.9, 3.10, 3.11` → `3.9-3.11`, gaps kept."""
    runs: list[list[str]] = []
    for text in texts:
        first, second = (int(number) for number in text.split("."))
        if runs and runs[-1][-1] == f"{first}.{second - 1}":
            runs[-1].append(text)
        else:
            runs.append([text])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _needs(row: MatrixRow) -> list[tuple[str, str]]:
    release = row.release
    needs = [("Python", _python(release))]
    if not release.gpu:
        return [*needs, *_system(release)]
    driver = f"{row.driver_linux} or newer" if row.driver_linux else "not known"
    if row.driver_windows:
        driver += f" (Windows: {row.driver_windows})"
    needs.append(("Driver", driver))
    needs.append(("CUDA", release.cuda or "not known"))
    needs.append(("cuDNN", release.cudnn or "not known"))
    missing = "the import fails" if release.linkage == "needed" else "no GPU is registered"
    needs.append(
        ("Libraries", f"{', '.join(sorted(release.required_libraries))}. Without any one of them {missing}.")
    )
    needs.append(("From the driver", ", ".join(release.driver_libraries)))
    needs.append(("GPUs", _gpus(release)))
    return [*needs, *_system(release)]


def _python(release: Release) -> str:
    linux, windows = pythons(release.linux_pythons), pythons(release.windows_pythons)
    if not windows:
        return f"{linux} (Linux; no Windows wheel)"
    gpu = "" if release.windows_gpu or not release.gpu else ", without GPU code"
    if linux == windows and not gpu:
        return f"{linux} (Linux and Windows)"
    return f"{linux} (Linux); {windows} (Windows{gpu})"


def _gpus(release: Release) -> str:
    if not release.cubin:
        return "not known"
    text = f"machine code for compute capability {', '.join(release.cubin)}"
    if release.ptx_arch_specific:
        special = ", ".join(release.ptx_arch_specific)
        text += f"; newer ones fail where a kernel has only PTX for {special}"
    elif release.ptx:
        text += f"; newer ones compile PTX {release.ptx[-1]} on first use"
    if release.registration_floor:
        text += f". TensorFlow ignores cards below {release.registration_floor}"
    return text + "."


def _system(release: Release) -> list[tuple[str, str]]:
    parts = [f"glibc {release.glibc} or newer" if release.glibc else ""]
    parts.append(f"libstdc++ with GLIBCXX_{release.glibcxx}" if release.glibcxx else "")
    if release.cpu_instructions:
        parts.append(f"a processor with {', '.join(release.cpu_instructions).upper()}")
    text = ", ".join(part for part in parts if part)
    return [("System", text)] if text else []


# ---------------------------------------------------------------- installing


def _steps(compat: Compat, release: Release, capabilities: Sequence[str], python: str | None) -> list[Remedy]:
    target = _make_general_target(compat, capabilities)
    if not release.gpu or not release.required_libraries:
        return [cpu_fallback.make_release_remedy(target, release, python)]
    steps = [_with_pip(target, release, python)]
    image = _make_container_remedy(compat, release)
    if image is not None:
        steps.append(image)
    conda = from_conda(compat, release)
    if conda is not None:
        steps.append(
            Remedy(
                f"Or an image with CUDA from {conda.channel} ({', '.join(conda.packages)}); untested.",
                (f"tfdoctor build --tf {release.version} --recipe {Recipe.CONDA_CUDA.value} --anywhere",),
            )
        )
    if release.windows_gpu:
        steps.append(_on_windows(target, release, python))
    return steps


def _make_container_remedy(compat: Compat, release: Release) -> Remedy | None:
    """Return TensorFlow's own image, where it is known to find its libraries."""
    image = compat.official_image(release.version)
    if image is None or not image.recipe.works:
        return None
    recipe = image.recipe
    cudnn = f", cuDNN {recipe.cudnn}" if recipe.cudnn else ""
    return Remedy(
        f"Or TensorFlow's own image: Ubuntu {recipe.system}, Python {recipe.python}, CUDA {recipe.cuda}{cudnn}, "
        "as its recipe says.",
        (f"docker run --rm -it --gpus all {image.names[0]}",),
    )


def _describe_python_source(compat: Compat, python: str) -> str:
    """Return how an old Python is come by; empty if a ready build is a command away."""
    ways = compat.python_builds(python)
    makers = [way for way in ways if way.command is not None]
    if not makers or makers[0].origin == "python-build-standalone":
        return ""
    systems = [way.origin.replace("ubuntu", "Ubuntu") for way in ways if way.package and not way.prerelease]
    have = (
        f"{' and '.join(systems)} {'has' if len(systems) == 1 else 'have'} it; elsewhere " if systems else ""
    )
    named = " or ".join(f"`{way.command}`" for way in makers[::-1])
    return f" Python {python} is old: {have}{named} provides it."


def _with_pip(target: Target, release: Release, python: str | None) -> Remedy:
    chosen = python or _newest_python(target, release)
    extra = advice.extra_installs(target, release, chosen)
    wheels = extra or bool(advice.wheels_for(target, release, release.required_libraries))
    where = "NVIDIA's wheels" if wheels else "conda (Miniforge)"
    text = f"On Linux, with Python {chosen} and the CUDA libraries from {where}."
    text += _describe_python_source(target.compat, chosen)
    return advice.install_release(target, release, text, chosen)


def _on_windows(target: Target, release: Release, python: str | None) -> Remedy:
    chosen = python if python in release.windows_pythons else release.windows_pythons[-1]
    wanted = " ".join(
        f'"{text}"'
        for text in (f"{release.package}=={release.version}", *advice.companion_pins(target.compat, release))
    )
    return Remedy(
        f"On Windows, after NVIDIA's installer of CUDA {release.cuda} and cuDNN {release.cudnn}, whose bin "
        "folders must be on PATH.",
        (
            f"py -{chosen} -m venv tf-env",
            r"tf-env\Scripts\python -m pip install --upgrade pip",
            rf"tf-env\Scripts\python -m pip install {wanted}",
        ),
    )


def _newest_python(target: Target, release: Release) -> str:
    newest_first = tuple(reversed(release.linux_pythons))
    if release.pip_extra is not None:
        for text in newest_first:
            if advice.extra_installs(target, release, text):
                return text
    return newest_first[0]


def _make_general_target(compat: Compat, capabilities: Sequence[str]) -> Target:
    """No machine: remedies come out general, for cards of these capabilities."""
    return Target(
        compat, Host(cards=tuple(Card(f"compute capability {text}", text) for text in capabilities))
    )
