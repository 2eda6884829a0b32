"""What an option will look like from inside once it is made: Facts that no machine was asked for. Pure.

`check`'s own rules judge them: a plan whose predicted facts raise an error is a defect of the planner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import versions
from tfdoctor.facts import (
    Absent,
    CudaDevice,
    CudaDriver,
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
from tfdoctor.fit import Card
from tfdoctor.plan.models import Method, Recipe
from tfdoctor.predict import build_of, opened_sonames

if TYPE_CHECKING:
    from tfdoctor.compat import Compat
    from tfdoctor.fit import Host
    from tfdoctor.plan.models import Option

__all__ = ["predicted_facts"]

PREFIX = "/opt/tensorflow"
SOURCE = "the plan"
_LIBRARIES = "/usr/lib/x86_64-linux-gnu"


def predicted_facts(compat: Compat, option: Option, host: Host) -> Facts:
    """The environment of `option` on a machine with the host's cards and driver.

    What is not known of the host is assumed to fit: a card that the release has code for, the newest driver.
    """
    cards = host.cards or (Card("a card that it has code for", _some_capability(option)),)
    site = f"{PREFIX}/lib/python{option.python}/site-packages"
    tensorflow = _tensorflow(option, site)
    return Facts(
        machine=_machine(option, host),
        environment=EnvironmentFacts({}, (), None),
        driver=_driver(compat, cards, host.driver),
        python=Known(_python(compat, option, site, host), SOURCE),
        tensorflow=Known(tensorflow, SOURCE),
        loader=Known(_loader(compat, option, tensorflow, site), SOURCE),
        toolkits=(),
        nvcc=Absent(SOURCE, "no nvcc"),
    )


def _some_capability(option: Option) -> str:
    return option.release.cubin[-1] if option.release.cubin else "7.0"


def _machine(option: Option, host: Host) -> MachineFacts:
    return MachineFacts(
        system="Linux",
        machine="x86_64",
        kernel="",
        distribution=None,
        distribution_id=None,
        distribution_like=(),
        distribution_version=None,
        cpu_flags=host.cpu_flags,
        container="docker" if option.method is Method.CONTAINER else None,
        wsl=2 if host.wsl else None,
        root=False,
    )


def _driver(compat: Compat, cards: tuple[Card, ...], driver: str | None) -> DriverFacts:
    speaks = compat.newest_cuda_for_driver(driver) if driver is not None else None
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
                path=f"{_LIBRARIES}/libcuda.so.1",
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
            Nvml(True, "", f"{_LIBRARIES}/libnvidia-ml.so.1", 0, "", driver, len(devices), nvml), SOURCE
        ),
    )


def _python(compat: Compat, option: Option, site: str, host: Host) -> PythonFacts:
    release = option.release
    pinned = compat.locks.of(release.package, release.version, option.python)
    distributions = [Distribution(release.package, option.tensorflow, site)]
    if pinned is not None and option.recipe is not Recipe.NGC:
        distributions += [
            Distribution(one.name, one.version, site)
            for one in pinned.packages
            if one.name != release.package
        ]
    if option.cuda_set is not None:
        distributions += [Distribution(wheel.name, wheel.version, site) for wheel in option.cuda_set.wheels]
    return PythonFacts(
        requested=PREFIX,
        executable=f"{PREFIX}/bin/python",
        real_executable=f"/usr/bin/python{option.python}",
        version=f"{option.python}.0",
        implementation="CPython",
        bits=64,
        machine="x86_64",
        glibc=host.glibc if option.method is Method.PIP else None,
        prefix=PREFIX,
        base_prefix="/usr",
        abi_flags="",
        platform="linux-x86_64",
        virtual=True,
        conda_prefix=None,
        externally_managed=False,
        sys_path=(site,),
        site_packages=(site,),
        distributions=tuple(distributions),
        conda_packages=(),
        tag=versions.tag_of_python(option.python),
        modules=tuple(row.package for row in compat.companions) if option.recipe is Recipe.NGC else (),
    )


def _tensorflow(option: Option, site: str) -> TensorFlowFacts:
    release = option.release
    version = release.version
    if option.recipe is Recipe.NGC and option.base is not None:
        version += f"+nv{option.base.image.rpartition(':')[2].split('-')[0]}"
    core = "tensorflow_core" if versions.parse(version).release[:2] in ((1, 15), (2, 0)) else "tensorflow"
    return TensorFlowFacts(
        package_dir=f"{site}/tensorflow",
        core_dir=f"{site}/{core}",
        version=version,
        distribution=release.package,
        framework=f"{site}/{core}/libtensorflow_framework.so.{versions.parse(version).major}",
        pywrap=f"{site}/{core}/python/_pywrap_tensorflow_internal.so",
        missing_files=(),
        build_info={"is_cuda_build": "True"},
        cuda_config={},
    )


def _loader(compat: Compat, option: Option, tensorflow: TensorFlowFacts, site: str) -> LoaderFacts:
    build = build_of(tensorflow, compat)
    resolutions = [
        Resolution(soname, _place(compat, option, soname, site), "ld.so.cache", "")
        for soname in opened_sonames(build)
    ]
    return LoaderFacts(
        caller=tensorflow.framework,
        runpath_folders=(),
        library_path=(),
        resolutions=tuple(resolutions),
        import_needs=(),
        found=(),
    )


def _place(compat: Compat, option: Option, soname: str, site: str) -> str:
    if option.cuda_set is None or soname in ("libcuda.so.1", "libnvidia-ml.so.1"):
        return f"{_LIBRARIES}/{soname}"
    wheel = compat.wheel_for(soname, versions.major(option.cuda))
    return f"{site}/{wheel.folder}/{soname}" if wheel is not None else f"{_LIBRARIES}/{soname}"
