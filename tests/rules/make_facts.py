"""A healthy machine as facts, to alter with `dataclasses.replace`, and short cuts for what is usual."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfdoctor.compat import Compat
from tfdoctor.facts import (
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
    LoaderFacts,
    MachineFacts,
    Nvml,
    PciGpu,
    PythonFacts,
    Resolution,
    SmiFacts,
    SmiGpu,
    TensorFlowFacts,
    Tried,
    value_of,
)
from tfdoctor.findings import Observation
from tfdoctor.predict import build_of, list_opened_sonames, predict
from tfdoctor.rules.base import RuleContext
from tfdoctor.versions import is_at_least

if TYPE_CHECKING:
    from tfdoctor.findings import Finding, Outcome
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
    """One H100, a driver for CUDA 12.8, this TensorFlow with its wheels: it registers a GPU."""
    release = COMPAT.release(version, distribution)
    defines = {f"TF_{k}_VERSION": v for k, v in (release.defines if release is not None else {}).items()}
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
    card = CudaDevice(0, "NVIDIA H100", "GPU-1", "0000:01:00.0", "9.0", 81559, 132)
    driver = CudaDriver(True, "", "/usr/lib/libcuda.so.570.1", 0, "CUDA_SUCCESS", "12.8", 1, (card,))
    smi = SmiFacts(
        "570.1", "12.8", (SmiGpu(0, card.name, card.uuid, card.pci_bus_id, 81559, 10, None, None),)
    )
    sonames = list_opened_sonames(build_of(tensorflow, COMPAT))
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
            nodes=Known(DeviceNodes(("nvidia0", "nvidiactl", "nvidia-uvm")), "/dev"),
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
                    f"{SITE}/nvidia/{f}/lib" for f in ("cublas", "cuda_runtime", "cusparse")
                ),
                library_path=(),
                resolutions=tuple(find_matches(s) for s in sonames),
                import_needs=(),
                found=tuple(is_in_wheel_folder(s) for s in sonames if s.split(".so")[0] in FOLDERS),
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


def is_in_wheel_folder(soname: str) -> FoundElsewhere:
    """Where NVIDIA's wheel has it."""
    stem = soname.partition(".so")[0]
    folder = FOLDERS[stem]
    return FoundElsewhere(stem, soname, f"{SITE}/nvidia/{folder}/lib/{soname}", f"nvidia/{folder}")


def at(path: str, package: str | None = None) -> FoundElsewhere:
    """A file that was found without the loader's rules."""
    name = path.rpartition("/")[2]
    return FoundElsewhere(name.split(".so")[0], name, path, package)


def find_matches(soname: str, path: str = "", via: str = "RUNPATH") -> Resolution:
    """The loader gives it."""
    stem = soname.partition(".so")[0]
    default = is_in_wheel_folder(soname).path if stem in FOLDERS else f"/usr/lib/{soname}"
    return Resolution(soname, path or default, via, "")


def make_lost(soname: str, **more: Any) -> Resolution:
    """The loader does not find it."""
    return Resolution(soname, None, "", f"{soname}: {NOT_FOUND}", (soname,), **more)


def stop_process(soname: str, path: str, problem: str, *, crash: bool = False) -> Resolution:
    """The loader stops at this file."""
    tried = (Tried(path, problem, "LD_LIBRARY_PATH"),)
    return Resolution(soname, None, "", f"{path}: {problem}", (soname,), tried=tried, crash=crash)


def with_loader(facts: Facts, *changes: Resolution, **more: Any) -> Facts:
    """Other answers of the loader for these sonames; `more` replaces fields of LoaderFacts.

    A library that is lost is nowhere to be found, unless `found` says where.
    """
    loader = value_of(facts.loader)
    assert loader is not None
    new = {resolution.soname: resolution for resolution in changes}
    gone = {resolution.soname for resolution in changes if not resolution.ok}
    kept = tuple(f for f in loader.found if f.name not in gone) + tuple(more.pop("also_found", ()))
    more.setdefault("found", kept)
    loader = replace(loader, resolutions=tuple(new.get(r.soname, r) for r in loader.resolutions), **more)
    return replace(facts, loader=Known(loader, "the loader's rules"))


def remove_libraries(facts: Facts) -> Facts:
    """The same with none of the CUDA libraries: the plain `pip install tensorflow`."""
    loader = value_of(facts.loader)
    assert loader is not None
    names = [r.soname for r in loader.resolutions if r.soname.partition(".so")[0] in FOLDERS]
    return with_loader(facts, *(make_lost(name) for name in names), found=(), runpath_folders=())


def with_tensorflow(facts: Facts, **changes: Any) -> Facts:
    """Other fields of TensorFlowFacts."""
    tensorflow = value_of(facts.tensorflow)
    assert tensorflow is not None
    return replace(facts, tensorflow=Known(replace(tensorflow, **changes), tensorflow.package_dir))


def with_python(facts: Facts, **changes: Any) -> Facts:
    """Other fields of PythonFacts; `installed={"numpy": "2.0"}` changes or adds, None removes."""
    python = value_of(facts.python)
    assert python is not None
    for name, version in changes.pop("installed", {}).items():
        kept = tuple(d for d in python.distributions if d.name != name)
        more = () if version is None else (Distribution(name, version, SITE, "pip"),)
        python = replace(python, distributions=(*kept, *more))
    return replace(facts, python=Known(replace(python, **changes), python.executable))


def with_machine(facts: Facts, **changes: Any) -> Facts:
    """Other fields of MachineFacts."""
    return replace(facts, machine=replace(facts.machine, **changes))


def with_cards(facts: Facts, *capabilities: str) -> Facts:
    """Cards of these compute capabilities."""
    driver = value_of(facts.driver.cuda)
    assert driver is not None
    cards = tuple(
        CudaDevice(i, f"card {i}", None, None, capability, 8000, 40)
        for i, capability in enumerate(capabilities)
    )
    answer = replace(driver, devices=cards, count=len(cards))
    return replace(facts, driver=replace(facts.driver, cuda=Known(answer, "libcuda.so.1")))


def with_environment(facts: Facts, **variables: str) -> Facts:
    """Environment variables."""
    return replace(facts, environment=replace(facts.environment, variables=variables))


def context(facts: Facts, observed: Observation | None = None) -> RuleContext:
    """What a rule is given."""
    return RuleContext(facts, COMPAT, predict(facts, COMPAT), observed)


def run(rule: Rule, facts: Facts, observed: Observation | None = None) -> Outcome:
    """The rule's outcome."""
    return rule.run(context(facts, observed))


def finding(rule: Rule, facts: Facts, observed: Observation | None = None) -> Finding:
    """The rule's one finding."""
    outcome = run(rule, facts, observed)
    assert len(outcome.findings) == 1, outcome
    return outcome.findings[0]


def commands(one: Finding) -> list[str]:
    """Everything that it says to type."""
    return [command for remedy in one.remedies for command in remedy.commands]


def absent(facts):
    python = value_of(facts.python)
    assert python is not None
    facts = with_python(facts, distributions=tuple(d for d in python.distributions if d.name != "tensorflow"))
    return replace(
        facts, tensorflow=Absent("/env/bin/python", "no tensorflow package"), loader=Absent("loader")
    )


def cpu(version, distribution="tensorflow", **changes):
    facts = healthy(version, distribution=distribution)
    return with_tensorflow(facts, build_info={"is_cuda_build": "False"}, cuda_config={}, **changes)


def make_failed_import(error, missing=("libc.so.6",)):
    return Resolution("x", f"{SITE}/x", "", error, missing, needed_by=f"{SITE}/x")


SAW_ONE = Observation(True, True, 1, (), 5.0)
"""One GPU, and it computed."""
