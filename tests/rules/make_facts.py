"""Facts about a healthy machine, and helpers that alter them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfdoctor.compat import Compat
from tfdoctor.core.facts import (
    Absent,
    CudaDevice,
    CudaDriver,
    DeviceNodes,
    Distribution,
    DriverFacts,
    EnvironmentFacts,
    Facts,
    FoundElsewhere,
    KernelModule,
    Known,
    LoadAttempt,
    LoaderFacts,
    MachineFacts,
    Nvml,
    PciGpu,
    PythonFacts,
    Resolution,
    SmiFacts,
    SmiGpu,
    TensorFlowFacts,
    value_of,
)
from tfdoctor.core.versions import is_at_least
from tfdoctor.prediction.build import describe_build, list_opened_sonames
from tfdoctor.prediction.stages import predict
from tfdoctor.rules.base import RuleContext

if TYPE_CHECKING:
    from tfdoctor.core.findings import Finding, Observation, Outcome
    from tfdoctor.rules.base import Rule

COMPAT = Compat.load()
SITE = "/env/lib/python3.11/site-packages"
NOT_FOUND = "cannot open shared object file: No such file or directory"
FOLDERS = {
    "libcudart": "cuda_runtime",
    "libcublas": "cublas",
    "libcublasLt": "cublas",
    "libcufft": "cufft",
    "libcurand": "curand",
    "libcusolver": "cusolver",
    "libcusparse": "cusparse",
    "libcudnn": "cudnn",
}


def healthy(version: str = "2.18.1", *, python: str = "3.11.7", distribution: str = "tensorflow") -> Facts:
    """Return facts about a machine with one H100, driver and TensorFlow with its wheels: the GPU is registered."""
    release = COMPAT.find_release(version, distribution)
    defines = {
        f"TF_{name}_VERSION": value
        for name, value in (release.defines if release is not None else {}).items()
    }
    if release is not None and release.cuda:
        defines.setdefault("TF_CUDA_VERSION", release.cuda)
    tensorflow = TensorFlowFacts(
        package_dir=f"{SITE}/tensorflow",
        core_dir=f"{SITE}/tensorflow",
        version=version,
        distribution=distribution,
        framework=f"{SITE}/tensorflow/libtensorflow_framework.so.2",
        pywrap=f"{SITE}/tensorflow/python/_pywrap_tensorflow_internal.so",
        missing_files=(),
        build_info={"is_cuda_build": "True"},
        cuda_config=defines,
    )
    device = CudaDevice(0, "NVIDIA H100", "GPU-1", "0000:01:00.0", "9.0", 81559, 132)
    driver = CudaDriver(True, "", "/usr/lib/libcuda.so.570.1", 0, "CUDA_SUCCESS", "12.8", 1, (device,))
    smi = SmiFacts(
        "570.1", "12.8", (SmiGpu(0, device.name, device.uuid, device.pci_bus_id, 81559, 10, None, None),)
    )
    sonames = list_opened_sonames(describe_build(tensorflow, COMPAT))
    return Facts(
        machine=MachineFacts(
            system="Linux",
            machine="x86_64",
            kernel="6.1.0",
            distribution="Debian GNU/Linux 12 (bookworm)",
            distribution_id="debian",
            distribution_like=(),
            distribution_version="12",
            cpu_flags=frozenset({"sse4_2", "avx", "avx2"}),
            container=None,
            wsl=None,
            root=False,
        ),
        environment=EnvironmentFacts({}, (), None),
        driver=DriverFacts(
            pci=Known((PciGpu("0000:01:00.0", "2330", "nvidia"),), "/sys/bus/pci/devices"),
            kernel_module=Known(KernelModule("570.1", True), "/proc/driver/nvidia/version"),
            modules=Known(("nvidia", "nvidia_uvm"), "/proc/modules"),
            nodes=Known(DeviceNodes(("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")), "/dev"),
            smi=Known(smi, "nvidia-smi"),
            cuda=Known(driver, "libcuda.so.1"),
            cuda_unhidden=None,
            nvml=Known(Nvml(True, "", "/usr/lib/libnvidia-ml.so.1", 0, "", "570.1", 1), "libnvidia-ml.so.1"),
            driver_files=("/usr/lib/libcuda.so.570.1",),
        ),
        python=Known(_python(python, tensorflow), "/env/bin/python"),
        tensorflow=Known(tensorflow, tensorflow.package_dir),
        loader=Known(
            LoaderFacts(
                caller=tensorflow.framework,
                runpath_folders=tuple(
                    f"{SITE}/nvidia/{folder}/lib" for folder in ("cublas", "cuda_runtime", "cusparse")
                ),
                library_path=(),
                resolutions=tuple(make_resolution(soname) for soname in sonames),
                import_needs=(),
                found=tuple(
                    locate_in_wheel(soname) for soname in sonames if soname.split(".so")[0] in FOLDERS
                ),
            ),
            "the loader's rules",
        ),
        toolkits=(),
        nvcc=Absent("nvcc", "no nvcc on PATH"),
    )


def _python(version: str, tensorflow: TensorFlowFacts) -> PythonFacts:
    minor = ".".join(version.split(".")[:2])
    distributions = (
        Distribution(tensorflow.distribution or "tensorflow", tensorflow.version or "", SITE, "pip"),
        Distribution(
            "numpy", "1.26.4" if is_at_least(tensorflow.version or "0", "2.16") else "1.23.5", SITE, "pip"
        ),
        Distribution(
            "protobuf", "6.31.1" if is_at_least(tensorflow.version or "0", "2.15") else "3.20.3", SITE, "pip"
        ),
        Distribution("nvidia-cuda-nvcc-cu12", "12.5.82", SITE, "pip"),
        *(
            Distribution(name, "1.16.0" if name == "six" else "1.0", SITE, "pip")
            for name in ("absl-py", "wrapt", "six", "gast", "flatbuffers", "opt-einsum", "ml-dtypes")
        ),
    )
    return PythonFacts(
        requested="/env/bin/python",
        executable="/env/bin/python",
        real_executable=f"/usr/bin/python{minor}",
        version=version,
        implementation="CPython",
        bits=64,
        machine="x86_64",
        glibc="2.36",
        prefix="/env",
        base_prefix="/usr",
        abi_flags="",
        platform="linux-x86_64",
        virtual=True,
        conda_prefix=None,
        externally_managed=False,
        sys_path=(SITE,),
        site_packages=(SITE,),
        distributions=distributions,
        conda_packages=(),
        tag="cp311",
    )


def locate_in_wheel(soname: str) -> FoundElsewhere:
    """Return the library's file in NVIDIA's wheel."""
    stem = soname.partition(".so")[0]
    folder = FOLDERS[stem]
    return FoundElsewhere(stem, soname, f"{SITE}/nvidia/{folder}/lib/{soname}", f"nvidia/{folder}")


def make_found(path: str, package: str | None = None) -> FoundElsewhere:
    """Return a library file that was found without the loader's rules."""
    name = path.rpartition("/")[2]
    return FoundElsewhere(name.split(".so")[0], name, path, package)


def make_resolution(soname: str, path: str = "", via: str = "RUNPATH") -> Resolution:
    """Return a resolution in which the loader finds the library."""
    stem = soname.partition(".so")[0]
    default = locate_in_wheel(soname).path if stem in FOLDERS else f"/usr/lib/{soname}"
    return Resolution(soname, path or default, via, "")


def make_missing(soname: str, **fields: Any) -> Resolution:
    """Return a resolution in which the loader does not find the library."""
    return Resolution(soname, None, "", f"{soname}: {NOT_FOUND}", (soname,), **fields)


def make_rejected(soname: str, path: str, problem: str, *, crash: bool = False) -> Resolution:
    """Return a resolution in which the loader stops at this file."""
    tried = (LoadAttempt(path, problem, "LD_LIBRARY_PATH"),)
    return Resolution(soname, None, "", f"{path}: {problem}", (soname,), tried=tried, crash=crash)


def with_loader(facts: Facts, *changes: Resolution, **fields: Any) -> Facts:
    """Return the facts with these resolutions; `fields` replaces fields of LoaderFacts.

    A library that is not resolved is not listed under `found` either, unless `also_found` lists it.
    """
    loader = value_of(facts.loader)
    assert loader is not None
    by_soname = {resolution.soname: resolution for resolution in changes}
    unresolved = {resolution.soname for resolution in changes if not resolution.ok}
    found_files = tuple(file for file in loader.found if file.name not in unresolved) + tuple(
        fields.pop("also_found", ())
    )
    fields.setdefault("found", found_files)
    loader = replace(
        loader, resolutions=tuple(by_soname.get(old.soname, old) for old in loader.resolutions), **fields
    )
    return replace(facts, loader=Known(loader, "the loader's rules"))


def remove_libraries(facts: Facts) -> Facts:
    """Return the facts without any CUDA library, as after a plain `pip install tensorflow`."""
    loader = value_of(facts.loader)
    assert loader is not None
    names = [
        resolution.soname
        for resolution in loader.resolutions
        if resolution.soname.partition(".so")[0] in FOLDERS
    ]
    return with_loader(facts, *(make_missing(name) for name in names), found=(), runpath_folders=())


def with_tensorflow(facts: Facts, **changes: Any) -> Facts:
    """Return the facts with other fields of TensorFlowFacts."""
    tensorflow = value_of(facts.tensorflow)
    assert tensorflow is not None
    return replace(facts, tensorflow=Known(replace(tensorflow, **changes), tensorflow.package_dir))


def with_python(facts: Facts, **changes: Any) -> Facts:
    """Return the facts with other fields of PythonFacts.

    `installed={"numpy": "2.0"}` changes or adds a distribution; None as the version removes it.
    """
    python = value_of(facts.python)
    assert python is not None
    for name, version in changes.pop("installed", {}).items():
        others = tuple(d for d in python.distributions if d.name != name)
        added = () if version is None else (Distribution(name, version, SITE, "pip"),)
        python = replace(python, distributions=(*others, *added))
    return replace(facts, python=Known(replace(python, **changes), python.executable))


def with_machine(facts: Facts, **changes: Any) -> Facts:
    """Return the facts with other fields of MachineFacts."""
    return replace(facts, machine=replace(facts.machine, **changes))


def with_cards(facts: Facts, *capabilities: str) -> Facts:
    """Return the facts with one GPU for each of these compute capabilities."""
    driver = value_of(facts.driver.cuda)
    assert driver is not None
    devices = tuple(
        CudaDevice(index, f"card {index}", None, None, capability, 8000, 40)
        for index, capability in enumerate(capabilities)
    )
    changed = replace(driver, devices=devices, count=len(devices))
    return replace(facts, driver=replace(facts.driver, cuda=Known(changed, "libcuda.so.1")))


def with_environment(facts: Facts, **variables: str) -> Facts:
    """Return the facts with these environment variables only."""
    return replace(facts, environment=replace(facts.environment, variables=variables))


def context(facts: Facts, observed: Observation | None = None) -> RuleContext:
    """Return the context that a rule's check receives."""
    return RuleContext(facts, COMPAT, predict(facts, COMPAT), observed)


def run(rule: Rule, facts: Facts, observed: Observation | None = None) -> Outcome:
    """Return the rule's outcome."""
    return rule.run(context(facts, observed))


def finding(rule: Rule, facts: Facts, observed: Observation | None = None) -> Finding:
    """Return the only finding of the rule."""
    outcome = run(rule, facts, observed)
    assert len(outcome.findings) == 1, outcome
    return outcome.findings[0]


def commands(result: Finding) -> list[str]:
    """Return all commands of the finding's remedies."""
    return [command for remedy in result.remedies for command in remedy.commands]


def without_tensorflow(facts):
    """Return the facts without TensorFlow."""
    python = value_of(facts.python)
    assert python is not None
    facts = with_python(facts, distributions=tuple(d for d in python.distributions if d.name != "tensorflow"))
    return replace(
        facts, tensorflow=Absent("/env/bin/python", "no tensorflow package"), loader=Absent("loader")
    )


def cpu_only(version, distribution="tensorflow", **changes):
    """Return healthy facts, except that TensorFlow is built without GPU support."""
    facts = healthy(version, distribution=distribution)
    return with_tensorflow(facts, build_info={"is_cuda_build": "False"}, cuda_config={}, **changes)


def make_failed_import(error, missing=("libc.so.6",)):
    """Return a library that TensorFlow's import needs and that cannot be loaded."""
    return Resolution("x", f"{SITE}/x", "", error, missing, needed_by=f"{SITE}/x")
