"""Predict the facts of an environment that does not exist yet, for the rules of `check`.

If a rule fails with the facts of a plan, the planner has a defect. If it fails with those of a Dockerfile, the
Dockerfile has one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.facts import (
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
from tfdoctor.planning.models import Method, Recipe
from tfdoctor.prediction.build import describe_build, list_opened_sonames
from tfdoctor.prediction.fit import constraints
from tfdoctor.prediction.fit.models import Host, HostGpu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdoctor.compat import Compat
    from tfdoctor.core.facts import FoundElsewhere
    from tfdoctor.planning.models import Option
    from tfdoctor.prediction.build import Build

__all__ = [
    "LIBRARY_FOLDER",
    "SITE_PACKAGES",
    "EnvironmentSketch",
    "make_facts_from_sketch",
    "make_predicted_facts",
]

COMPLETE_VERSION_DOTS = 2
"""The number of dots in a complete driver version."""
ENVIRONMENT_PREFIX = "/opt/tensorflow"
"""The prefix of the predicted Python environment."""
SITE_PACKAGES = f"{ENVIRONMENT_PREFIX}/lib/python{{}}/site-packages"
"""The site-packages folder; `{}` stands for the Python minor version."""
FACT_SOURCE = "the plan"
"""The source of the predicted facts."""
LIBRARY_FOLDER = "/usr/lib/x86_64-linux-gnu"
"""The system's library folder."""


@dataclass(frozen=True, slots=True)
class EnvironmentSketch:
    """The known properties of an environment that does not exist yet.

    Properties that are not set are assumed to fit TensorFlow.
    """

    tensorflow_version: str | None
    """TensorFlow's version, as in `tf.__version__`; None if unknown."""
    tensorflow_package: str
    """The distribution of TensorFlow."""
    python: str
    """The minor version of Python, such as `"3.11"`."""
    distributions: tuple[tuple[str, str], ...]
    """(name, version) of each distribution in site-packages, including TensorFlow."""
    has_gpu_code: bool | None = None
    """Whether the build has GPU code; None means the value in the release table."""
    path_by_soname: Mapping[str, str | None] = field(default_factory=dict)
    """The file that the loader resolves each soname to; None means that it is missing.

    A soname without an entry resolves to the system's library folder.
    """
    version_by_soname: Mapping[str, str] = field(default_factory=dict)
    """The version that the library file reports, by soname."""
    unused_libraries: tuple[FoundElsewhere, ...] = ()
    """Files of the same libraries in other versions, which the loader does not use."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The environment variables."""
    unversioned_packages: tuple[str, ...] = ()
    """Installed packages of unknown version."""
    is_container: bool = True
    """Whether the environment is in a container."""
    host: Host = field(default_factory=Host)
    """The machine that the environment will run on.

    Unknown properties are assumed to fit: a GPU that the release has code for, and the newest driver.
    """


def make_predicted_facts(compat: Compat, option: Option, host: Host) -> Facts:
    """Return the facts of an environment that is installed as `option` says, on a machine like `host`."""
    release, is_ngc = option.release, option.recipe is Recipe.NGC
    version = release.version
    if is_ngc and option.base is not None:
        version += f"+nv{option.base.image.rpartition(':')[2].split('-')[0]}"
    lock = compat.locks.get_lock(release.package, release.version, option.python)
    locked_packages = lock.packages if lock is not None and not is_ngc else ()
    wheels = option.cuda_set.wheels if option.cuda_set is not None else ()
    site_packages = SITE_PACKAGES.format(option.python)
    wheel_by_soname = {
        soname: compat.find_wheel(soname, versions.major(option.cuda))
        if option.cuda_set is not None
        else None
        for soname in release.required_libraries
    }
    sketch = EnvironmentSketch(
        tensorflow_version=version,
        tensorflow_package=release.package,
        python=option.python,
        distributions=(
            (release.package, option.tensorflow),
            *(
                (locked_package.name, locked_package.version)
                for locked_package in locked_packages
                if locked_package.name != release.package
            ),
            *((wheel.name, wheel.version) for wheel in wheels),
        ),
        has_gpu_code=True,
        path_by_soname={
            soname: f"{site_packages}/{wheel.folder}/{soname}"
            for soname, wheel in wheel_by_soname.items()
            if wheel is not None
        },
        # An image's CUDA and cuDNN may be newer than those that TensorFlow was built with.
        version_by_soname={
            soname: version
            for soname, wheel in wheel_by_soname.items()
            for prefix, version in (("libcudart.", option.cuda), ("libcudnn.", option.cudnn))
            if wheel is None and version and soname.startswith(prefix)
        },
        unversioned_packages=tuple(companion.package for companion in compat.companions) if is_ngc else (),
        is_container=option.method is Method.CONTAINER,
        host=host,
    )
    return make_facts_from_sketch(compat, sketch)


def make_facts_from_sketch(compat: Compat, sketch: EnvironmentSketch) -> Facts:
    """Return the facts that `check` would collect in the environment of a sketch."""
    host, tensorflow = sketch.host, _make_tensorflow_facts(sketch)
    build = describe_build(tensorflow, compat)
    cubins = build.release.cubin if build.release is not None else ()
    cards = host.cards or (HostGpu("a card that it has code for", cubins[-1] if cubins else "7.0"),)
    return Facts(
        machine=_make_machine_facts(sketch),
        environment=EnvironmentFacts(dict(sketch.variables), (), None),
        driver=_make_driver_facts(compat, cards, host),
        python=Known(_make_python_facts(sketch), FACT_SOURCE),
        tensorflow=Known(tensorflow, FACT_SOURCE),
        loader=Known(_make_loader_facts(sketch, tensorflow, build), FACT_SOURCE),
        toolkits=(CudaToolkit("/usr/local/cuda", None, libdevice=True, ptxas=True),),
        nvcc=Absent(FACT_SOURCE, "no nvcc"),
    )


def _make_machine_facts(sketch: EnvironmentSketch) -> MachineFacts:
    return MachineFacts(
        system="Linux",
        machine="x86_64",
        kernel="",
        distribution=None,
        distribution_id=None,
        distribution_like=(),
        distribution_version=None,
        cpu_flags=sketch.host.cpu_flags,
        container="docker" if sketch.is_container else None,
        wsl=2 if sketch.host.is_wsl else None,
        root=False,
    )


def _make_driver_facts(compat: Compat, cards: tuple[HostGpu, ...], host: Host) -> DriverFacts:
    """Return the facts of the host's driver. If it is not known, assume the newest one."""
    driver = host.driver
    if driver is not None and driver.count(".") < COMPLETE_VERSION_DOTS:
        # A branch stands for its newest driver. This number is higher than every known version of a branch.
        driver = f"{driver}.9999"
    cuda = (
        compat.find_newest_cuda_for_driver(driver, constraints.find_platform(host))
        if driver is not None
        else None
    )
    if driver is None:
        cuda = max((release.version for release in compat.cuda_releases), key=versions.parse_numbers)
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
    nvml_devices = tuple(
        NvmlDevice(
            index=device.ordinal,
            name=device.name,
            uuid=None,
            pci_bus_id=device.pci_bus_id,
            memory_total_mib=device.memory_mib,
            memory_used_mib=0,
        )
        for device in devices
    )
    return DriverFacts(
        pci=Absent(FACT_SOURCE, "the plan has no PCI bus"),
        kernel_module=Known(KernelModule(driver, open_kernel=True), FACT_SOURCE)
        if driver
        else Unknown("not asked"),
        modules=Known(("nvidia", "nvidia_uvm"), FACT_SOURCE),
        nodes=Known(DeviceNodes(("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")), FACT_SOURCE),
        smi=Absent(FACT_SOURCE, "nvidia-smi was not asked"),
        cuda=Known(
            CudaDriver(
                loaded=True,
                load_error="",
                path=f"{LIBRARY_FOLDER}/libcuda.so.1",
                init=0,
                init_name="CUDA_SUCCESS",
                version=versions.major_minor(cuda) if cuda is not None else None,
                count=len(devices),
                devices=devices,
            ),
            FACT_SOURCE,
        ),
        cuda_unhidden=None,
        nvml=Known(
            Nvml(
                loaded=True,
                load_error="",
                path=f"{LIBRARY_FOLDER}/libnvidia-ml.so.1",
                init=0,
                init_error="",
                driver_version=driver,
                count=len(devices),
                devices=nvml_devices,
            ),
            FACT_SOURCE,
        ),
    )


def _make_python_facts(sketch: EnvironmentSketch) -> PythonFacts:
    site_packages = SITE_PACKAGES.format(sketch.python)
    return PythonFacts(
        requested=ENVIRONMENT_PREFIX,
        executable=f"{ENVIRONMENT_PREFIX}/bin/python",
        real_executable=f"/usr/bin/python{sketch.python}",
        version=f"{sketch.python}.0",
        implementation="CPython",
        bits=64,
        machine="x86_64",
        glibc=None if sketch.is_container else sketch.host.glibc,
        prefix=ENVIRONMENT_PREFIX,
        base_prefix="/usr",
        abi_flags="",
        platform="linux-x86_64",
        virtual=True,
        conda_prefix=None,
        externally_managed=False,
        sys_path=(site_packages,),
        site_packages=(site_packages,),
        distributions=tuple(
            Distribution(name, version, site_packages) for name, version in sketch.distributions
        ),
        conda_packages=(),
        tag=versions.format_python_tag(sketch.python),
        modules=sketch.unversioned_packages,
    )


def _make_tensorflow_facts(sketch: EnvironmentSketch) -> TensorFlowFacts:
    site_packages, version = SITE_PACKAGES.format(sketch.python), sketch.tensorflow_version
    numbers = versions.parse_numbers(version) if version is not None else ()
    # Only these minors have a separate core package.
    core = "tensorflow_core" if numbers[:2] in ((1, 15), (2, 0)) else "tensorflow"
    return TensorFlowFacts(
        package_dir=f"{site_packages}/tensorflow",
        core_dir=f"{site_packages}/{core}",
        version=version,
        distribution=sketch.tensorflow_package,
        framework=f"{site_packages}/{core}/libtensorflow_framework.so.{numbers[0] if numbers else 2}",
        pywrap=f"{site_packages}/{core}/python/_pywrap_tensorflow_internal.so",
        missing_files=(),
        build_info={} if sketch.has_gpu_code is None else {"is_cuda_build": str(sketch.has_gpu_code)},
        cuda_config={},
    )


def _make_loader_facts(sketch: EnvironmentSketch, tensorflow: TensorFlowFacts, build: Build) -> LoaderFacts:
    resolutions = [_make_resolution(sketch, soname) for soname in list_opened_sonames(build)]
    missing = tuple(resolution.soname for resolution in resolutions if not resolution.ok)
    import_fails = bool(missing) and build.linkage == "needed"
    return LoaderFacts(
        caller=tensorflow.framework,
        runpath_folders=(),
        library_path=(),
        resolutions=tuple(resolutions),
        import_needs=(Resolution(missing[0], None, "", _format_dlerror(missing[0]), missing),)
        if import_fails
        else (),
        found=sketch.unused_libraries,
    )


def _make_resolution(sketch: EnvironmentSketch, soname: str) -> Resolution:
    path = sketch.path_by_soname.get(soname, f"{LIBRARY_FOLDER}/{soname}")
    if path is None:
        return Resolution(soname, None, "", _format_dlerror(soname), (soname,))
    return Resolution(soname, path, "ld.so.cache", "", version=sketch.version_by_soname.get(soname))


def _format_dlerror(soname: str) -> str:
    """Return the message of dlerror() for a missing library."""
    return f"{soname}: cannot open shared object file: No such file or directory"
