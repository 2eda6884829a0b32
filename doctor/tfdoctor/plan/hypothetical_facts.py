"""What does not exist yet, as it will look from inside once it is made: Facts that no machine was asked for. Pure.

`check`'s own rules judge them. A plan whose predicted facts raise an error is a defect of the planner; those of a
Dockerfile tell what is wrong with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.facts import (
    Absent,
    CudaDevice,
    CudaDriver,
    CudaToolkit,
    DeviceNodes,
    Distribution,
    DriverFacts,
    EnvironmentFacts,
    Facts,
    KernelModule,
    Known,
    LoaderFacts,
    MachineFacts,
    Nvml,
    NvmlDevice,
    PythonFacts,
    Resolution,
    TensorFlowFacts,
    Unknown,
)
from tfdoctor.fit import Card, Host, constraints
from tfdoctor.plan.models import Method, Recipe
from tfdoctor.predict import build_of, list_opened_sonames

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.compat import Compat
    from tfdoctor.facts import FoundElsewhere
    from tfdoctor.plan.models import Option
    from tfdoctor.predict import Build

__all__ = ["LIBRARIES", "SITE", "Sketch", "make_predicted_facts", "make_sketched_facts"]

FULL = 2
"""Points in the version of a driver that is given in full."""
PREFIX = "/opt/tensorflow"
SITE = f"{PREFIX}/lib/python{{}}/site-packages"
SOURCE = "the plan"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


@dataclass(frozen=True, slots=True)
class Sketch:
    """An environment that does not exist yet, as far as it is decided. What is not said of it is assumed to fit."""

    version: str | None
    """TensorFlow's own, as its `tf.__version__` will say."""
    package: str
    """Its distribution."""
    python: str
    """`"3.11"`."""
    distributions: tuple[tuple[str, str], ...]
    """(name, version) of what lies in its site-packages, TensorFlow among it."""
    gpu: bool | None = None
    """Whether the build says that it has GPU code; None: the release table does."""
    paths: Mapping[str, str | None] = field(default_factory=dict)
    """Soname → the file that the loader gives; None: it gives none. Others come from the system's folder."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Soname → the version that its file tells of itself."""
    found: tuple[FoundElsewhere, ...] = ()
    """Libraries of the same families in other versions."""
    variables: Mapping[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    """Packages that are there in versions that are not known."""
    container: bool = True
    host: Host = field(default_factory=Host)
    """Where it will run. What is not known of it is assumed to fit: a card that the release has code for, the newest
    driver."""


def make_predicted_facts(compat: Compat, option: Option, host: Host) -> Facts:
    """Return the environment of `option` on a machine with the host's cards and driver."""
    release, ngc = option.release, option.recipe is Recipe.NGC
    version = release.version
    if ngc and option.base is not None:
        version += f"+nv{option.base.image.rpartition(':')[2].split('-')[0]}"
    pinned = compat.locks.get_lock(release.package, release.version, option.python)
    locked = pinned.packages if pinned is not None and not ngc else ()
    wheels = option.cuda_set.wheels if option.cuda_set is not None else ()
    site = SITE.format(option.python)
    places = {
        name: compat.wheel_for(name, versions.major(option.cuda)) if option.cuda_set is not None else None
        for name in release.required_libraries
    }
    sketch = Sketch(
        version,
        release.package,
        option.python,
        (
            (release.package, option.tensorflow),
            *((one.name, one.version) for one in locked if one.name != release.package),
            *((wheel.name, wheel.version) for wheel in wheels),
        ),
        gpu=True,
        paths={name: f"{site}/{wheel.folder}/{name}" for name, wheel in places.items() if wheel is not None},
        modules=tuple(row.package for row in compat.companions) if ngc else (),
        container=option.method is Method.CONTAINER,
        host=host,
    )
    return make_sketched_facts(compat, sketch)


def make_sketched_facts(compat: Compat, sketch: Sketch) -> Facts:
    """Return what `check` would see in it."""
    host, tensorflow = sketch.host, _tensorflow(sketch)
    build = build_of(tensorflow, compat)
    code = build.release.cubin if build.release is not None else ()
    cards = host.cards or (Card("a card that it has code for", code[-1] if code else "7.0"),)
    return Facts(
        machine=_machine(sketch),
        environment=EnvironmentFacts(dict(sketch.variables), (), None),
        driver=_driver(compat, cards, host),
        python=Known(_python(sketch), SOURCE),
        tensorflow=Known(tensorflow, SOURCE),
        loader=Known(_loader(sketch, tensorflow, build), SOURCE),
        toolkits=(CudaToolkit("/usr/local/cuda", None, libdevice=True, ptxas=True),),
        nvcc=Absent(SOURCE, "no nvcc"),
    )


def _machine(sketch: Sketch) -> MachineFacts:
    return MachineFacts(
        system="Linux",
        machine="x86_64",
        kernel="",
        distribution=None,
        distribution_id=None,
        distribution_like=(),
        distribution_version=None,
        cpu_flags=sketch.host.cpu_flags,
        container="docker" if sketch.container else None,
        wsl=2 if sketch.host.wsl else None,
        root=False,
    )


def _driver(compat: Compat, cards: tuple[Card, ...], host: Host) -> DriverFacts:
    driver = host.driver
    if driver is not None and driver.count(".") < FULL:
        driver = f"{driver}.9999"  # of a branch its newest is meant, which nobody knows: above all that a table has
    speaks = (
        compat.newest_cuda_for_driver(driver, constraints.find_platform(host)) if driver is not None else None
    )
    if driver is None:
        speaks = max((row.version for row in compat.cuda_releases), key=versions.numbers)
    devices = tuple(
        CudaDevice(
            ordinal=index,
            name=card.name,
            uuid=None,
            pci_bus_id=f"0000:{index + 1:02x}:00.0",
            compute_capability=card.capability,
            memory_mib=16384,
            multiprocessors=64,
        )
        for index, card in enumerate(cards)
    )
    nvml = tuple(NvmlDevice(d.ordinal, d.name, None, d.pci_bus_id, d.memory_mib, 0) for d in devices)
    return DriverFacts(
        pci=Absent(SOURCE, "the plan has no PCI bus"),
        kernel_module=Known(KernelModule(driver, open_kernel=True), SOURCE)
        if driver
        else Unknown("not asked"),
        modules=Known(("nvidia", "nvidia_uvm"), SOURCE),
        nodes=Known(DeviceNodes(("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")), SOURCE),
        smi=Absent(SOURCE, "nvidia-smi was not asked"),
        cuda=Known(
            CudaDriver(
                loaded=True,
                load_error="",
                path=f"{LIBRARIES}/libcuda.so.1",
                init=0,
                init_name="CUDA_SUCCESS",
                version=versions.major_minor(speaks) if speaks is not None else None,
                count=len(devices),
                devices=devices,
            ),
            SOURCE,
        ),
        cuda_unhidden=None,
        nvml=Known(
            Nvml(True, "", f"{LIBRARIES}/libnvidia-ml.so.1", 0, "", driver, len(devices), nvml), SOURCE
        ),
    )


def _python(sketch: Sketch) -> PythonFacts:
    site = SITE.format(sketch.python)
    return PythonFacts(
        requested=PREFIX,
        executable=f"{PREFIX}/bin/python",
        real_executable=f"/usr/bin/python{sketch.python}",
        version=f"{sketch.python}.0",
        implementation="CPython",
        bits=64,
        machine="x86_64",
        glibc=None if sketch.container else sketch.host.glibc,
        prefix=PREFIX,
        base_prefix="/usr",
        abi_flags="",
        platform="linux-x86_64",
        virtual=True,
        conda_prefix=None,
        externally_managed=False,
        sys_path=(site,),
        site_packages=(site,),
        distributions=tuple(Distribution(name, version, site) for name, version in sketch.distributions),
        conda_packages=(),
        tag=versions.tag_of_python(sketch.python),
        modules=sketch.modules,
    )


def _tensorflow(sketch: Sketch) -> TensorFlowFacts:
    site, version = SITE.format(sketch.python), sketch.version
    numbers = versions.numbers(version) if version is not None else ()
    core = "tensorflow_core" if numbers[:2] in ((1, 15), (2, 0)) else "tensorflow"
    return TensorFlowFacts(
        package_dir=f"{site}/tensorflow",
        core_dir=f"{site}/{core}",
        version=version,
        distribution=sketch.package,
        framework=f"{site}/{core}/libtensorflow_framework.so.{numbers[0] if numbers else 2}",
        pywrap=f"{site}/{core}/python/_pywrap_tensorflow_internal.so",
        missing_files=(),
        build_info={} if sketch.gpu is None else {"is_cuda_build": str(sketch.gpu)},
        cuda_config={},
    )


def _loader(sketch: Sketch, tensorflow: TensorFlowFacts, build: Build) -> LoaderFacts:
    resolutions = [_resolution(sketch, name) for name in list_opened_sonames(build)]
    lost = tuple(one.soname for one in resolutions if not one.ok)
    linked = bool(lost) and build.linkage == "needed"
    return LoaderFacts(
        caller=tensorflow.framework,
        runpath_folders=(),
        library_path=(),
        resolutions=tuple(resolutions),
        import_needs=(Resolution(lost[0], None, "", _format_dlerror(lost[0]), lost),) if linked else (),
        found=sketch.found,
    )


def _resolution(sketch: Sketch, soname: str) -> Resolution:
    path = sketch.paths.get(soname, f"{LIBRARIES}/{soname}")
    if path is None:
        return Resolution(soname, None, "", _format_dlerror(soname), (soname,))
    return Resolution(soname, path, "ld.so.cache", "", version=sketch.versions.get(soname))


def _format_dlerror(soname: str) -> str:
    """Return what dlerror() would say."""
    return f"{soname}: cannot open shared object file: No such file or directory"
