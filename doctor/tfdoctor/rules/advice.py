"""Remedies shared by rules: exact commands for this Python, this distribution, these versions.

Pure text from facts and tables. Every path and requirement goes through `quote`.
"""

from __future__ import annotations

import posixpath
import shlex
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.compat import Compat, split_soname
from tfdoctor.facts import value_of
from tfdoctor.findings import Remedy
from tfdoctor.rules import _person as person
from tfdoctor.rules._links import (
    connecting_steps,
    link_commands,
    links_of,
    runpath_target,
)
from tfdoctor.steps import Drop, Install, LinkParts, Prepend

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.compat import Release
    from tfdoctor.facts import FoundElsewhere, Tried
    from tfdoctor.rules.base import Context
    from tfdoctor.steps import Step

CHECK_AGAIN = "tfdoctor check"
FOUND = ("$", "python3 on", "python on")
"""How `PythonFacts.requested` begins where nobody named the Python."""
APT, DNF, ZYPPER, PACMAN = "apt", "dnf", "zypper", "pacman"
MANAGERS = {
    "debian": APT,
    "ubuntu": APT,
    "fedora": DNF,
    "rhel": DNF,
    "centos": DNF,
    "rocky": DNF,
    "almalinux": DNF,
    "amzn": DNF,
    "suse": ZYPPER,
    "opensuse": ZYPPER,
    "opensuse-leap": ZYPPER,
    "sles": ZYPPER,
    "arch": PACMAN,
}


def quote(text: str) -> str:
    """Text as one word of a shell command."""
    return shlex.quote(text)


def sudo(context: Context) -> str:
    """ "sudo ", or nothing where this already runs as root."""
    return person.sudo(context)


def package_manager(context: Context) -> str | None:
    """This distribution's package manager; None where it is not known."""
    machine = context.facts.machine
    for name in (machine.distribution_id, *machine.distribution_like):
        if name in MANAGERS:
            return MANAGERS[name]
    return None


# ---------------------------------------------------------------- pip


def pip_install(context: Context, requirements: Iterable[str], *, options: str = "") -> str:
    """The command that installs into the examined Python, with the program that this person has (`_person`)."""
    return person.install(context, requirements, options)


def pip_uninstall(context: Context, names: Iterable[str]) -> str:
    """The command that removes distributions from the examined Python."""
    return person.uninstall(context, names)


def venv_with(context: Context, requirements: Iterable[str], python: str = "python3") -> tuple[str, ...]:
    """Commands that make a fresh virtual environment with these requirements, beside whatever is there."""
    wanted = " ".join(quote(requirement) for requirement in requirements)
    return (*person.new_environment(context, python, "tf-env", wanted), "tfdoctor check --python tf-env")


def interpreter(context: Context) -> str:
    """The examined Python, to make another environment from."""
    return context.python.executable if context.python is not None else "python3"


def install_commands(context: Context, requirements: Sequence[str]) -> tuple[str, ...]:
    """Commands that install into this Python, or into a fresh environment where the system manages it."""
    python = context.python
    if python is not None and person.needs_another(context):
        return venv_with(context, requirements, python.executable)
    return pip_install(context, requirements), check_again(context)


def check_again(context: Context) -> str:
    """The command that looks at the same Python once more."""
    python, choice = context.python, context.facts.choice
    if python is None and choice is not None and not choice.how.startswith(FOUND):
        return f"{CHECK_AGAIN} --python {quote(choice.path)}"
    if python is None or python.requested.startswith(FOUND):
        return CHECK_AGAIN
    return f"{CHECK_AGAIN} --python {quote(python.executable)}"


# ---------------------------------------------------------------- TensorFlow releases


def extra_installs(context: Context, release: Release, python: str | None = None) -> bool:
    """Whether this release has a CUDA extra and pip can install it on this Python."""
    if release.pip_extra is None:
        return False
    version = python or (context.python.version if context.python is not None else None)
    for problem in context.compat.problems_of(release.package, release.version, area="packaging"):
        wanted = problem.when.get("python")
        if problem.when.get("extra") != release.pip_extra or problem.cause != "no-matching-wheel":
            continue
        if wanted is None or (version is not None and versions.satisfies(version, wanted)):
            return False
    return True


def gpu_requirement(context: Context, release: Release, python: str | None = None) -> tuple[str, ...]:
    """What pip installs to have this release with its CUDA libraries, where they come as wheels."""
    if extra_installs(context, release, python):
        wanted = [f"{release.package}[{release.pip_extra}]=={release.version}"]
        projects = [pin for pin in release.extra_pins if versions.project_of(pin).startswith("nvidia-cudnn-")]
        for pin in projects:
            kept = cudnn_requirement(context, versions.project_of(pin), pin, release.cudnn)
            if kept != pin:
                wanted.append(kept)
        return (*wanted, *companion_pins(release))
    return (
        f"{release.package}=={release.version}",
        *wheels_for(context, release, release.required_libraries),
        *companion_pins(release),
    )


def companion_pins(release: Release) -> tuple[str, ...]:
    """Upper limits for NumPy and protobuf that this release needs and does not ask for itself.

    Without them pip installs today's: `pip install tensorflow==2.10.1` cannot even be imported.
    """
    own = [one for text in release.requires if (one := versions.requirement(text)) is not None]
    pins: dict[str, str] = {}
    for row in Compat.load().companions:
        first = row.breaks.removeprefix(">=").partition(",")[0]
        if not row.breaks.startswith(">=") or not versions.satisfies(release.version, row.tensorflow):
            continue
        asked = [one.specifier for one in own if one.name.lower() == row.package]
        if asked and not any(one.contains(first, prereleases=True) for one in asked):
            continue
        known, limit = versions.upper_limit(pins.get(row.package, "")), versions.upper_limit(row.requirement)
        if known is None or (limit is not None and versions.compare(limit, known) < 0):
            pins[row.package] = row.requirement
    return tuple(pins.values())


def best_release(context: Context, *, python: str | None = None) -> Release | None:
    """The newest GPU release for this Python, its glibc, these cards and this driver, or None.

    Where it does not find its own libraries, the minor before it is taken if that one does.
    """
    facts = context.facts
    version = python or (context.python.version if context.python is not None else None)
    if version is None or facts.machine.machine not in ("x86_64", "AMD64"):
        return None
    glibc = context.python.glibc if context.python is not None else None
    driver = value_of(facts.driver.cuda)
    fitting = [
        row
        for row in context.compat.releases_for_python(version, "linux", gpu=True)
        if row.required_libraries
        and (glibc is None or row.glibc is None or versions.at_least(glibc, row.glibc))
        and all(_runs_on(context, row, card) for card in capabilities(context))
        and (
            driver is None
            or driver.version is None
            or row.cuda is None
            or versions.major(driver.version) >= versions.major(row.cuda)
        )
    ]
    fitting.sort(key=lambda row: (row.parsed, row.package == "tensorflow"), reverse=True)
    newest = next(iter(fitting), None)
    if newest is None or not newest.runpath_misses:
        return newest
    before = [row for row in fitting if row.minor != newest.minor][:1]
    near = before and before[0].parsed.minor == newest.parsed.minor - 1 and not before[0].runpath_misses
    return before[0] if near else newest


def _runs_on(context: Context, release: Release, card: str) -> bool:
    """Whether this release has code for a card, and nothing is known to fail that no pin mends."""
    if context.compat.code_for(release, card) not in {"native", "jit"}:
        return False
    problems = context.compat.problems_of(release.package, release.version, capability=card, area="gpu")
    return not any(
        p.severity == "error" and "capability" in p.when and "extra" not in p.when for p in problems
    )


def install_release(context: Context, release: Release, text: str, python: str | None = None) -> Remedy:
    """How this release is installed with everything that it needs for a GPU, and that connected.

    `python`: a version other than the examined one's, for which an environment is made.
    """
    requirements = gpu_requirement(context, release, python)
    own = context.python
    if python is None and not person.needs_another(context):
        site = own.site_packages[0] if own is not None and own.site_packages else ""
        commands = install_commands(context, requirements)
    else:
        version = versions.major_minor(python or (own.version if own is not None else "3"))
        site = f"$PWD/tf-env/lib/python{version}/site-packages"
        interpreter = own.executable if python is None and own is not None else f"python{version}"
        commands = venv_with(context, requirements, interpreter)
    return Remedy(text, (*commands[:-1], *connecting(context, release, site), commands[-1]))


def connecting(context: Context, release: Release, site: str) -> tuple[str, ...]:
    """What a fresh installation of this release in `site` still needs so that the loader finds its CUDA.

    Links where it does not look into NVIDIA's wheels, conda's libraries below 2.5; `site` may start with "$PWD".
    """
    needed = release.required_libraries
    if not site or release.cuda is None or not needed:
        return ()
    if not wheels_for(context, release, needed):
        return _conda_folder(release.cuda, release.cudnn)
    return link_commands(connecting_steps(release, site, wheel_places(context, release.cuda, needed)))


def another_release(context: Context, text: str) -> list[Remedy]:
    """The newest release that works on this Python, where it is another one than the installed."""
    release, build = best_release(context), context.build
    if release is None or (build is not None and build.version == release.version):
        return []
    return [install_release(context, release, text.format(release=f"TensorFlow {release.version}"))]


# ---------------------------------------------------------------- NVIDIA's wheels


def cuda_requirements(context: Context, sonames: Sequence[str]) -> tuple[str, ...]:
    """NVIDIA's wheels that bring these libraries to this TensorFlow, pinned as its own extra pins them.

    Empty where there are none for its CUDA (11.0 and older), or where one of the libraries is in no wheel.
    """
    build = context.build
    if build is None or build.cuda is None:
        return ()
    release = build.release if build.exact else None
    return _wheels(
        context, sonames, release=release, cuda=build.cuda, cudnn=build.cudnn, version=build.version
    )


def wheels_for(context: Context, release: Release, sonames: Sequence[str]) -> tuple[str, ...]:
    """The same for a release that is not installed."""
    if release.cuda is None:
        return ()
    return _wheels(
        context,
        sonames,
        release=release,
        cuda=release.cuda,
        cudnn=release.cudnn,
        version=release.version,
    )


def wheel_project(context: Context, soname: str, cuda: str) -> tuple[str, str] | None:
    """(project, folder below site-packages) of the wheel that has this very soname for this CUDA major."""
    major = versions.major(cuda)
    wheel, parts = context.compat.wheel_for(soname, major), split_soname(soname)
    if wheel is None or parts is None:
        return None
    has = context.compat.soname_for(parts[0], context.compat.cuda_of_wheels.get(major, cuda))
    if has is not None and has != soname:
        return None
    return wheel.project, wheel.folder


def _wheels(
    context: Context,
    sonames: Sequence[str],
    *,
    release: Release | None,
    cuda: str,
    cudnn: str | None,
    version: str | None,
) -> tuple[str, ...]:
    wheels = [wheel_project(context, soname, cuda) for soname in sonames]
    # Below 2.5 something is missing from the wheels of every CUDA: half a set helps nobody.
    if not wheels or any(wheel is None for wheel in wheels):
        return ()
    if version is not None and versions.numbers(version)[:2] < (2, 5):
        return ()
    pins = {versions.project_of(pin): pin for pin in (release.extra_pins if release is not None else ())}
    wanted: dict[str, None] = {}
    for wheel in wheels:
        if wheel is not None:
            requirement = pins.get(wheel[0], wheel[0])
            if wheel[0].startswith("nvidia-cudnn-"):
                built = release.cudnn if release is not None and release.cudnn else cudnn
                requirement = cudnn_requirement(context, wheel[0], requirement, built)
            wanted.setdefault(requirement, None)
    return tuple(wanted)


def cudnn_requirement(context: Context, project: str, pinned: str, built: str | None = None) -> str:
    """A cuDNN requirement that this build loads (its major) and that still has code for these cards."""
    if built is None:
        return pinned
    major = versions.major(built)
    old = [card for card in capabilities(context) if not versions.at_least(card, "7.5")]
    kepler = [card for card in capabilities(context) if not versions.at_least(card, "5.0")]
    if pinned == project:
        if major == 8 and kepler and project.endswith("-cu11"):
            return f"{project}>=8.5,<{context.compat.cudnn_end(kepler[0], 8)}"  # 8.9 has nothing below 5.0
        least = built if "." in built else str(major)
        pinned = f"{project}>={least},<{major + 1}"
    if old and major == 9 and "==" not in pinned:
        end = context.compat.cudnn_end(old[0], 9)  # 9.11 dropped Maxwell, Pascal and Volta
        return f"{project}>=9.3,<{end}" if end is not None else pinned
    return pinned


def site_packages(context: Context) -> str:
    """Where this TensorFlow lies and its wheels go; empty where that is not known."""
    if context.tensorflow is not None:
        return posixpath.dirname(context.tensorflow.package_dir)
    if context.python is not None and context.python.site_packages:
        return context.python.site_packages[0]
    return ""


def wheel_places(context: Context, cuda: str, sonames: Sequence[str]) -> dict[str, str]:
    """Soname → the folder below site-packages into which NVIDIA's wheel puts it; without those of no wheel."""
    wheels = {name: wheel_project(context, name, cuda) for name in sonames}
    return {name: wheel[1] for name, wheel in wheels.items() if wheel is not None}


def registered_wheel(context: Context, requirement: str) -> str | None:
    """`"name==version"` of a wheel that is registered beside TensorFlow and is what the requirement asks for."""
    project = versions.project_of(requirement)
    own = context.python.distribution(project) if context.python is not None else None
    if own is None or own.location != site_packages(context) or not versions.is_version(own.version):
        return None
    asked = versions.requirement(requirement)
    fits = asked is not None and asked.specifier.contains(own.version, prereleases=True)
    return f"{project}=={own.version}" if fits else None


def bring_wheels(
    context: Context, requirements: Sequence[str]
) -> tuple[tuple[Install, ...], tuple[str, ...]]:
    """(steps, commands) that bring wheels whose libraries are missed, also those that are registered all the same:
    pip takes these for installed."""
    again = tuple(pin for one in requirements if (pin := registered_wheel(context, one)) is not None)
    fresh = tuple(one for one in requirements if registered_wheel(context, one) is None)
    steps: list[Install] = []
    commands: list[str] = []
    if fresh:
        steps.append(Install(fresh))
        commands.append(pip_install(context, fresh))
    if again:
        steps.append(Install(again, again=True, dependencies=False))
        commands.append(pip_install(context, again, options="--force-reinstall --no-deps"))
    return tuple(steps), tuple(commands)


def bring_libraries(context: Context, sonames: Sequence[str]) -> list[Remedy]:
    """How these libraries come to this TensorFlow, and what then connects them."""
    build = context.build
    if build is None:
        return []
    if context.tensorflow is not None and context.tensorflow.conda_build and _from_conda(context):
        return _conda_libraries(context)
    requirements = cuda_requirements(context, sonames)
    if not requirements:
        return [
            *_conda_libraries(context),
            *another_release(context, "Use {release}, whose CUDA libraries come as wheels."),
        ]
    release = build.release if build.exact else None
    steps, install = bring_wheels(context, requirements)
    if set(sonames) >= set(build.required) and release is not None:
        if extra_installs(context, release):
            install = (pip_install(context, gpu_requirement(context, release)),)
        chosen = context.compat.cuda_set(release.version)
        if chosen is not None and not any(step.again for step in steps):
            steps = (Install(chosen.pins, dependencies=False, lock=chosen.id),)
    places = wheel_places(context, build.cuda or "", sonames)
    site = site_packages(context)
    links = connecting_steps(release, site, places) if release is not None and site else ()
    remedies = [
        Remedy(
            "Install NVIDIA's wheels; this TensorFlow looks into them by itself."
            if not links
            else f"Install NVIDIA's wheels, and link what TensorFlow {build.version} does not find of them into a "
            "folder where it looks.",
            (*install, *link_commands(links), check_again(context)),
            steps=(*steps, *links),
        )
    ]
    if links or release is None:
        missed = places if release is None or not release.runpath_misses else release.runpath_misses
        folders = dict.fromkeys(f"{site}/{places[name]}" for name in missed if name in places)
        text = "Instead of the links, name the folders before Python starts."
        if release is None:
            remedies, text = [], "Install NVIDIA's wheels and name their folders before Python starts."
        remedies.append(name_folders(context, folders, text, first=install, steps=steps))
    return remedies


def _from_conda(context: Context) -> bool:
    python, tensorflow = context.python, context.tensorflow
    if python is None or tensorflow is None or python.conda_prefix is None:
        return False
    owner = python.distribution(tensorflow.distribution or "")
    return owner is None or owner.installer != "pip"


def _conda_libraries(context: Context) -> list[Remedy]:
    """CUDA of 11.0 and older comes as conda packages; newer for a TensorFlow that conda itself installed."""
    build, python = context.build, context.python
    if build is None or build.cuda is None:
        return []
    cuda = versions.major_minor(build.cuda)
    if python is not None and python.conda_prefix is not None:
        prefix = python.conda_prefix
        channel, wanted = _conda_packages(cuda, build.cudnn)
        return [
            name_folders(
                context,
                [f"{prefix}/lib"],
                f"Install CUDA {cuda} and its cuDNN from conda, and name the folder before Python starts.",
                first=(f"conda install --prefix {quote(prefix)} -c {channel} {wanted}",),
                steps=None,
            )
        ]
    return [
        Remedy(
            f"CUDA {cuda} has no wheels; conda (Miniforge) has it. Make a folder with its libraries and "
            "name it before Python starts.",
            (*_conda_folder(cuda, build.cudnn), check_again(context)),
        )
    ]


def _conda_packages(cuda: str, cudnn: str | None) -> tuple[str, str]:
    """(channel, packages) that have this CUDA and a cuDNN for it."""
    if versions.major(cuda) >= 12:
        return "conda-forge", f"cuda-version={cuda} cuda-libraries cudnn"
    beside = Compat.load().conda_cudnn(cuda, cudnn)
    channel = "conda-forge" if versions.at_least(cuda, "10.0") else "defaults"
    return channel, f"cudatoolkit={cuda} {f'cudnn={beside}' if beside else 'cudnn'}"


def _conda_folder(cuda: str, cudnn: str | None) -> tuple[str, str]:
    """Commands that make a folder with this CUDA beside everything else, and name it."""
    cuda = versions.major_minor(cuda)
    channel, wanted = _conda_packages(cuda, cudnn)
    return (
        f'conda create --prefix "$HOME/cuda-{cuda}" -c {channel} {wanted}',
        export_path([f"$HOME/cuda-{cuda}/lib"]),
    )


# ---------------------------------------------------------------- the loader


def export_path(folders: Iterable[str], name: str = "LD_LIBRARY_PATH") -> str:
    """The line that puts folders on a search path, before what is on it; they may begin with "$HOME/" or "$PWD/"."""
    parts, rest = list(folders), f"${{{name}:+:${name}}}"
    of_shell = [part.startswith(("$HOME/", "$PWD/")) for part in parts]
    if all(of_shell):
        return f'export {name}="{":".join(parts)}{rest}"'
    if not any(of_shell):
        return f'export {name}={quote(":".join(parts))}"{rest}"'
    words = (f'"{part}"' if shell else quote(part) for part, shell in zip(parts, of_shell, strict=True))
    return f'export {name}={":".join(words)}"{rest}"'


def name_folders(
    context: Context,
    folders: Iterable[str],
    text: str,
    *,
    first: Sequence[str] = (),
    steps: Sequence[Step] | None = (),
) -> Remedy:
    """LD_LIBRARY_PATH for this shell, and the line that keeps it for this environment.

    `first` and `steps`: what comes before it; None: that can only be done by hand.
    """
    named = tuple(folders)
    line = export_path(named)
    where, commands = keep_line(context, line)
    done = (*steps, Prepend("LD_LIBRARY_PATH", named)) if steps is not None else ()
    return Remedy(f"{text} {where}", (*first, line, check_again(context), *commands), steps=done)


def keep_line(context: Context, line: str) -> tuple[str, tuple[str, ...]]:
    """How a line of the shell is kept: conda's activate.d, a virtual environment's activate, ~/.profile."""
    python = context.python
    if person.place(context) is person.Place.CLOSED:
        python = None
    if python is not None and python.conda_prefix is not None:
        folder = f"{python.conda_prefix}/etc/conda/activate.d"
        script = quote(f"{folder}/tensorflow-cuda.sh")
        return (
            "The last two lines keep it for this conda environment.",
            (f"mkdir -p {quote(folder)}", f"echo {quote(line)} >> {script}"),
        )
    if python is not None and python.virtual:
        return (
            "The last line keeps it for this virtual environment.",
            (f"echo {quote(line)} >> {quote(f'{python.prefix}/bin/activate')}",),
        )
    return "The last line keeps it for each login.", (f"echo {quote(line)} >> ~/.profile",)


def drop_folders(context: Context, bad: Sequence[Tried]) -> Remedy | None:
    """LD_LIBRARY_PATH without the folders through which these files are reached; None where that is not the way."""
    if not bad or not all(tried.via.startswith("LD_LIBRARY_PATH") for tried in bad):
        return None
    return off_the_path(context, tuple(dict.fromkeys(posixpath.dirname(tried.path) for tried in bad)))


def off_the_path(context: Context, folders: Sequence[str]) -> Remedy | None:
    """LD_LIBRARY_PATH without these folders, nor entries that are empty; None where they are not on it."""
    entries = _entries(context)
    if not entries and context.loader is not None:
        entries = list(context.loader.library_path)
    text = f"Take {', '.join(folders)} off LD_LIBRARY_PATH where TensorFlow runs."
    return _without(context, entries, [e for e in entries if (e.rstrip("/") or "/") in folders], text)


def without_folder(context: Context, word: str, text: str) -> Remedy | None:
    """LD_LIBRARY_PATH without the folders whose path has `word` in it; None without any."""
    entries = _entries(context)
    return _without(context, entries, [entry for entry in entries if word in f"{entry}/"], text)


def _entries(context: Context) -> list[str]:
    """What is on LD_LIBRARY_PATH, empty entries left out."""
    value = context.facts.environment.variables.get("LD_LIBRARY_PATH", "")
    return [entry for entry in value.replace(";", ":").split(":") if entry]


def _without(context: Context, entries: Sequence[str], wrong: Sequence[str], text: str) -> Remedy | None:
    if not wrong:
        return None
    kept = [entry for entry in entries if entry not in wrong]
    command = f"export LD_LIBRARY_PATH={quote(':'.join(kept))}" if kept else "unset LD_LIBRARY_PATH"
    steps = (Drop("LD_LIBRARY_PATH", tuple(dict.fromkeys(wrong))),)
    return Remedy(text, (command, check_again(context)), steps=steps)


def ldconfig(context: Context, folders: Sequence[str]) -> Remedy:
    """How the loader is told of folders for every program."""
    root = sudo(context)
    lines = " ".join(quote(folder) for folder in folders)
    return Remedy(
        "Tell the loader of it for every program.",
        (
            f"printf '%s\\n' {lines} | {root}tee /etc/ld.so.conf.d/tensorflow-cuda.conf",
            f"{root}ldconfig",
        ),
        changes_system=True,
    )


def link_into_runpath(context: Context, found: Sequence[FoundElsewhere]) -> Remedy | None:
    """Relative links that put libraries of NVIDIA's wheels where TensorFlow's own RUNPATH looks.

    The least intrusive cure: nothing to set, nothing outside the environment is touched. None where
    TensorFlow looks in no folder beside them, or they are not from wheels.
    """
    loader = context.loader
    if loader is None or not found:
        return None
    steps: dict[Step, None] = {}
    for library in found:
        site, inside, _ = library.path.partition("/nvidia/")
        own = posixpath.dirname(library.path)
        wheels = [f for f in loader.runpath_folders if f.startswith(f"{site}/nvidia/")]
        folder = runpath_target(wheels or [f for f in loader.runpath_folders if f.startswith(f"{site}/")])
        if not inside or folder is None:
            return None
        steps[links_of(library.name, own, folder) if wheels else LinkParts(own, "*.so*", folder)] = None
    return Remedy(
        "Link the libraries into a folder where TensorFlow looks (the links can simply be deleted again).",
        (*link_commands(steps), check_again(context)),
        steps=tuple(steps),
    )


# ---------------------------------------------------------------- cards and their driver


def capabilities(context: Context) -> tuple[str, ...]:
    """The compute capabilities of the cards, from the driver; else from their PCI ids."""
    driver = value_of(context.facts.driver.cuda)
    known = (
        tuple(d.compute_capability for d in driver.devices if d.compute_capability)
        if driver is not None
        else ()
    )
    if known:
        return known
    cards = value_of(context.facts.driver.pci) or ()
    found = (context.compat.gpu_by_pci_id(card.device_id) for card in cards if card.device_id)
    return tuple(gpu.capability for gpu in found if gpu is not None)


def driver_install(context: Context) -> Remedy:
    """How this distribution installs NVIDIA's driver."""
    manager = package_manager(context)
    machine = context.facts.machine
    if manager == APT and machine.distribution_id == "ubuntu":
        commands: tuple[str, ...] = ("sudo ubuntu-drivers install", "sudo reboot")
    elif manager == APT:
        commands = (
            "sudo apt-get update",
            "sudo apt-get install linux-headers-$(uname -r) nvidia-driver",
            "sudo reboot",
        )
    elif manager == DNF and machine.distribution_id == "fedora":
        commands = ("sudo dnf install akmod-nvidia xorg-x11-drv-nvidia-cuda", "sudo reboot")
    elif manager == DNF:
        commands = ("sudo dnf module install nvidia-driver:latest-dkms", "sudo reboot")
    elif manager == ZYPPER:
        commands = ("sudo zypper install-new-recommends --repo NVIDIA", "sudo reboot")
    elif manager == PACMAN:
        commands = ("sudo pacman -S nvidia nvidia-utils", "sudo reboot")
    else:
        commands = ()
    needs = ""
    if manager == APT and machine.distribution_id == "debian":
        needs = " The package is in Debian's non-free component, which must be in your apt sources."
    elif manager == DNF and machine.distribution_id == "fedora":
        needs = " The packages are RPM Fusion's, whose nonfree repository must be enabled."
    elif manager in (DNF, ZYPPER):
        needs = " NVIDIA's repository for this distribution must be enabled."
    return Remedy(f"Install NVIDIA's driver, then restart.{needs}", commands, changes_system=True)
