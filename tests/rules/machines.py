"""Machines that are made in code, for what no recorded machine shows."""

from __future__ import annotations

from dataclasses import replace

from rules.hiding_facts import (
    ACTIVATE,
    CUSTOM,
    FOREIGN,
    HIDE,
    with_foreign_numpy,
    with_hidden_gpus,
    with_shadowing_library,
    with_two_tensorflows,
)
from rules.make_facts import (
    NOT_FOUND,
    SITE,
    cpu_only,
    healthy,
    make_failed_import,
    make_found,
    make_missing,
    make_rejected,
    make_resolution,
    remove_libraries,
    with_cards,
    with_environment,
    with_loader,
    with_machine,
    with_python,
    with_tensorflow,
    without_tensorflow,
)
from rules.owners_facts import CU12, CU13, CUDNN, _add_distributions, _make_cudnn, _make_shared
from tfdoctor.core.facts import (
    MODULE_PATH,
    Absent,
    CudaToolkit,
    Distribution,
    Facts,
    Known,
    LoadAttempt,
    Origin,
    Resolution,
)
from tfdoctor.core.facts.files import ChangedFile
from tfdoctor.core.facts.imports import ImportResult, RehearsalFacts, RehearsalReason, Shadow

CUDA_11_8 = "/usr/local/cuda-11.8"
CUDA_11_SONAMES = (
    "libcudart.so.11.0",
    "libcublas.so.11",
    "libcublasLt.so.11",
    "libcufft.so.10",
    "libcusolver.so.11",
    "libcusparse.so.11",
)
OLD_GPU_RELEASE = healthy("1.13.1", distribution="tensorflow-gpu", python="3.7.5")


def make_machines() -> dict[str, Facts]:
    """Return the machines by name."""
    return {
        "made-healthy": healthy(),
        **make_library_machines(),
        **make_import_machines(),
        **make_package_machines(),
        **make_hiding_machines(),
    }


def make_library_machines() -> dict[str, Facts]:
    """Return machines with something wrong in the CUDA libraries."""
    sparse = f"{SITE}/nvidia/cusparse/lib/libcusparse.so.12"
    nvjitlink = f"{SITE}/nvidia/nvjitlink/lib/libnvJitLink.so.12"
    cufft = f"{SITE}/nvidia/cufft/lib/libcufft.so.11"
    lacks_nvjitlink = Resolution(
        "libcusparse.so.12",
        sparse,
        "RUNPATH",
        f"libnvJitLink.so.12: {NOT_FOUND}",
        ("libnvJitLink.so.12",),
        sparse,
    )
    old_nvjitlink = replace(
        make_resolution("libcusparse.so.12", sparse),
        error=f"{sparse}: undefined symbol: __nvJitLinkAddData_12_5",
        really_missing=("libcusparse.so.12",),
        tried=(LoadAttempt(nvjitlink, "", "RUNPATH of libcusparse.so.12"),),
    )
    damaged_dependency = Resolution(
        "libcusolver.so.11",
        f"{SITE}/nvidia/cusolver/lib/libcusolver.so.11",
        "RUNPATH",
        f"{nvjitlink}: file too short",
        ("libnvJitLink.so.12",),
        tried=(LoadAttempt(nvjitlink, "file too short", "RUNPATH"),),
    )
    toolkit = replace(
        with_loader(
            remove_libraries(healthy()),
            found=tuple(make_found(f"{CUDA_11_8}/lib64/{name}") for name in CUDA_11_SONAMES),
        ),
        toolkits=(CudaToolkit(CUDA_11_8, "11.8", libdevice=True, ptxas=True),),
    )
    torch = Distribution("torch", "2.9.0", SITE, "pip", pins=("nvidia-cudnn-cu13==9.13.0.50",))
    both_cudnns = with_python(
        healthy(), shared=(_make_shared(CUDNN, CU12, CU13, now=CU13),), installed=dict((CU12, CU13))
    )
    cublas = Distribution("nvidia-cublas-cu12", "12.5.3.2", SITE, "pip")
    cut = ChangedFile("nvidia/cublas/lib/libcublas.so.12", 100, 50, cut=True)
    lost_part = _make_cudnn("9.3.0.75", lost=("nvidia/cudnn/lib/libcudnn_ops.so.9",))
    old_cuda = "/usr/local/cuda-12.2/lib64"
    without_cufft = with_loader(healthy(), make_missing("libcufft.so.11"))
    sonames_2_16 = ("libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11", "libcudnn.so.8")
    return {
        "made-without-libraries": remove_libraries(healthy()),
        "made-without-libraries-2.14": remove_libraries(healthy("2.14.1")),
        "made-without-libraries-2.21": remove_libraries(healthy("2.21.0")),
        **{
            f"made-without-libraries-{version}": remove_libraries(healthy(version, python=python))
            for version, python in (
                ("2.3.4", "3.8.10"),
                ("2.4.4", "3.8.10"),
                ("2.12.1", "3.11.7"),
                ("2.15.0", "3.11.7"),  # the extra of this release cannot be installed
                ("2.15.1", "3.11.7"),
            )
        },
        "made-without-libraries-2.14-python-3.10": remove_libraries(healthy("2.14.1", python="3.10.2")),
        "made-without-libraries-2.20-card-6.1": with_cards(remove_libraries(healthy("2.20.0")), "6.1"),
        "made-without-libraries-managed": with_python(
            remove_libraries(healthy()), virtual=False, externally_managed=True
        ),
        "made-without-cufft": without_cufft,
        "made-cufft-wheel-without-its-file": _add_distributions(
            without_cufft, Distribution("nvidia-cufft-cu12", "11.2.3.61", SITE, "pip")
        ),
        "made-cufft-of-a-toolkit": with_loader(
            without_cufft, also_found=(make_found("/usr/local/cuda-12.4/lib64/libcufft.so.11"),)
        ),
        "made-cufft-behind-a-space": with_loader(
            without_cufft, also_found=(make_found("/my libs/libcufft.so.11"),)
        ),
        "made-cufft-of-conda": with_python(
            with_loader(
                healthy("2.10.1"),
                make_missing("libcufft.so.10"),
                also_found=(make_found("/opt/conda/lib/libcufft.so.10"),),
            ),
            conda_prefix="/opt/conda",
            virtual=False,
        ),
        "made-cusolver-off-the-runpath": with_loader(
            healthy("2.21.0"),
            make_missing("libcusolver.so.11"),
            also_found=(make_found(f"{SITE}/nvidia/cusolver/lib/libcusolver.so.11"),),
        ),
        "made-2.16.1-with-a-wrong-runpath": with_loader(
            healthy("2.16.1"),
            *(make_missing(soname) for soname in sonames_2_16),
            also_found=tuple(make_found(f"{SITE}/nvidia/x/lib/{soname}") for soname in sonames_2_16),
            runpath_folders=(f"{SITE}/nvidia/cuda_runtime/lib",),
        ),
        "made-other-cuda": toolkit,
        "made-other-cuda-on-the-path": with_loader(toolkit, library_path=(f"{CUDA_11_8}/lib64",)),
        "made-libraries-off-the-path": with_loader(
            remove_libraries(healthy()),
            found=healthy().loader.value.found,  # type: ignore[union-attr]
        ),
        "made-32-bit-library": with_loader(
            healthy(),
            make_rejected("libcufft.so.11", "/usr/lib32/libcufft.so.11", "wrong ELF class: ELFCLASS32"),
        ),
        "made-without-cudnn": with_loader(healthy(), make_missing("libcudnn.so.9")),
        "made-cudnn-8": with_loader(
            healthy(),
            make_missing("libcudnn.so.9"),
            also_found=(make_found(f"{SITE}/nvidia/cudnn/lib/libcudnn.so.8"),),
        ),
        "made-old-cudnn": with_python(healthy(), installed={"nvidia-cudnn-cu12": "9.1.0.70"}),
        "made-cudnn-without-a-part": with_loader(
            _add_distributions(healthy(), lost_part),
            make_resolution("libcudnn.so.9", f"{SITE}/tensorflow/../nvidia/cudnn/lib/libcudnn.so.9"),
        ),
        "made-without-nvjitlink": with_loader(healthy(), lacks_nvjitlink),
        "made-nvjitlink-off-the-path": with_loader(
            healthy(), lacks_nvjitlink, also_found=(make_found("/usr/local/cuda/lib64/libnvJitLink.so.12"),)
        ),
        "made-old-nvjitlink": with_python(
            with_loader(with_tensorflow(healthy(), version="2.20.0"), old_nvjitlink),
            installed={"nvidia-nvjitlink-cu12": "12.5.82"},
        ),
        "made-library-for-newer-glibc": with_loader(
            healthy(),
            replace(
                lacks_nvjitlink,
                error=f"/lib/libc.so.6: version `GLIBC_2.99' not found (required by {SITE}/x)",
            ),
        ),
        "made-shadowing-library": with_shadowing_library(),
        "made-damaged-dependency": with_loader(healthy(), damaged_dependency),
        "made-damaged-library-first": with_loader(
            healthy(),
            make_rejected("libcufft.so.11", "/old/libcufft.so.11", "file too short", crash=True),
            also_found=(make_found(cufft),),
        ),
        "made-damaged-wheel": with_loader(
            healthy(), make_rejected("libcufft.so.11", cufft, "invalid ELF header")
        ),
        "made-unreadable-library": with_loader(
            healthy(),
            make_rejected("libcufft.so.11", "/usr/local/cuda/lib64/libcufft.so.11", "Permission denied"),
        ),
        "made-older-cuda-first": with_loader(
            with_python(healthy(), installed={"nvidia-cublas-cu12": "12.5.3.2"}),
            make_resolution("libcublas.so.12", f"{old_cuda}/libcublas.so.12", "LD_LIBRARY_PATH"),
            also_found=(
                make_found(f"{old_cuda}/libcublas.so.12"),
                make_found(f"{old_cuda}/libcublas.so.12.2.5.6"),
            ),
            library_path=(old_cuda, "/keep"),
        ),
        "made-two-cudnn-wheels": both_cudnns,
        "made-two-cudnn-wheels-and-torch": _add_distributions(both_cudnns, torch),
        "made-old-cudnn-pin": _add_distributions(
            healthy(), replace(torch, pins=("nvidia-cudnn-cu12==9.1.0.70",)), _make_cudnn("9.3.0.75")
        ),
        "made-truncated-file": _add_distributions(healthy(), replace(cublas, changed=(cut,))),
        "made-lost-file": _add_distributions(
            healthy(), replace(cublas, lost=("nvidia/cublas/lib/libcublas.so.12",))
        ),
        "made-without-nvcc": with_python(healthy(), installed={"nvidia-cuda-nvcc-cu12": None}),
        "made-nvcc-elsewhere": replace(
            with_python(healthy(), installed={"nvidia-cuda-nvcc-cu12": None}),
            toolkits=(CudaToolkit("/opt/cuda", "12.5", libdevice=True, ptxas=True),),
        ),
    }


def make_import_machines() -> dict[str, Facts]:
    """Return machines on which `import tensorflow` fails."""
    libstdcxx = f"/old/lib/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by {SITE}/x)"
    glibc = f"/lib/libc.so.6: version `GLIBC_2.27' not found (required by {SITE}/x)"
    cublas = make_missing("libcublas.so.10.0")
    return {
        "made-old-libstdcxx": with_loader(
            healthy(), import_needs=(make_failed_import(libstdcxx),), library_path=("/old/lib", "/b")
        ),
        "made-old-libstdcxx-of-conda": with_python(
            with_loader(
                healthy(), import_needs=(make_failed_import(libstdcxx.replace("/old", "/opt/conda")),)
            ),
            conda_prefix="/opt/conda",
        ),
        "made-old-glibc": with_python(
            with_loader(healthy("2.21.0"), import_needs=(make_failed_import(glibc),)), glibc="2.24"
        ),
        "made-without-libgomp": with_loader(
            OLD_GPU_RELEASE,
            import_needs=(make_failed_import(f"libgomp.so.1: {NOT_FOUND}", ("libgomp.so.1",)),),
        ),
        "made-import-needs-cublas": with_loader(
            OLD_GPU_RELEASE, cublas, import_needs=(replace(cublas, needed_by="x"),)
        ),
        "made-import-needs-cublas-off-the-path": with_loader(
            OLD_GPU_RELEASE,
            cublas,
            import_needs=(cublas,),
            also_found=(make_found("/usr/local/cuda-10.0/lib64/libcublas.so.10.0"),),
        ),
        "made-without-avx": with_machine(healthy(), cpu_flags=frozenset({"sse4_2", "hypervisor"})),
        "made-new-numpy": with_python(healthy("2.15.1"), installed={"numpy": "2.0.2"}),
        "made-numpy-1.20": with_python(healthy("2.4.4"), installed={"numpy": "1.20.3"}),
        "made-without-numpy": with_python(healthy("2.15.1"), installed={"numpy": None}),
        "made-old-protobuf": with_python(healthy("2.20.0"), installed={"protobuf": "5.28.0"}),
        "made-pure-python-protobuf": with_environment(
            with_python(healthy("2.10.1"), installed={"protobuf": "4.25.3"}),
            PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python",
        ),
        "made-without-termcolor": with_python(
            healthy("2.20.0"), absent=("termcolor",), installed={"termcolor": None}
        ),
        "made-new-h5py": with_python(healthy("2.4.4", python="3.8.10"), installed={"h5py": "3.1.0"}),
    }


def make_package_machines() -> dict[str, Facts]:
    """Return machines with another TensorFlow package than they need, or none."""
    return {
        "made-without-tensorflow": without_tensorflow(healthy()),
        "made-without-tensorflow-managed": with_python(
            without_tensorflow(healthy()), virtual=False, externally_managed=True
        ),
        "made-tensorflow-without-files": replace(
            healthy(), tensorflow=Absent("python", "no tensorflow package")
        ),
        "made-tensorflow-with-a-lost-file": with_tensorflow(
            healthy(), missing_files=("python/_pywrap_tensorflow_internal.so",)
        ),
        "made-python-3.14": with_python(without_tensorflow(healthy()), version="3.14.0"),
        "made-python-3.2": with_python(without_tensorflow(healthy()), version="3.2.6"),
        "made-cpu-only-1.15": with_cards(with_python(cpu_only("1.15.5"), version="3.7.5"), "7.0"),
        "made-cpu-only-2.0": with_cards(with_python(cpu_only("2.0.4"), version="3.7.5"), "7.0"),
        "made-cpu-only-1.14": with_cards(with_python(cpu_only("1.14.0"), version="3.7.5"), "7.0"),
        "made-cpu-only-2.18": cpu_only("2.18.1", "tensorflow-cpu"),
        "made-cpu-only-conda": with_python(
            cpu_only("2.10.0", conda_build="eigen_py310h1"), conda_prefix="/opt/conda"
        ),
        "made-cpu-only-windows": with_machine(cpu_only("2.15.1"), system="Windows", machine="AMD64"),
        "made-same-files": with_python(healthy("2.10.1"), installed={"tensorflow-gpu": "2.10.1"}),
        "made-cpu-package-over-it": with_python(cpu_only("2.18.1"), installed={"tensorflow-cpu": "2.18.1"}),
        "made-nightly-over-it": with_python(healthy(), installed={"tf-nightly": "2.22.0.dev20260101"}),
        "made-pip-leftover": with_python(healthy(), installed={"~ensorflow": "2.10.1"}),
        "made-unknown-release": with_tensorflow(healthy(), version="2.30.0"),
        "made-card-too-new": with_cards(healthy("2.18.1"), "12.0"),
        "made-card-too-old": with_cards(healthy("2.20.0"), "5.0"),
        "made-card-8.6-2.14": with_cards(healthy("2.14.1"), "8.6"),
    }


def make_hiding_machines() -> dict[str, Facts]:
    """Return machines on which a variable, a file or a folder hides something."""
    numpy = Distribution("numpy", "2.4.6", SITE, "pip")
    shadow = Shadow("numpy", "/home/user/code/numpy.py", SITE)
    failure = ImportResult(
        "numpy", "module 'numpy' has no attribute 'integer'", "AttributeError", file=shadow.taken
    )
    rehearsal = RehearsalFacts((RehearsalReason("numpy", "…"),), (failure,))
    pth = Origin(
        MODULE_PATH, "start", FOREIGN, f"{SITE}/zz.pth", 1, f"import sys; sys.path.insert(0, '{FOREIGN}')"
    )
    foreign = with_foreign_numpy(numpy)
    line = f"os.environ['{HIDE}'] = '-1'"
    return {
        "made-hidden-by-startup-file": with_hidden_gpus(Origin(HIDE, "start", None, CUSTOM, 3, line)),
        "made-hidden-by-other-startup-file": with_hidden_gpus(
            Origin(HIDE, "start", None, "/usr/lib/python3/dist-packages/sitecustomize.py", 3, line)
        ),
        "made-hidden-by-activation": with_hidden_gpus(
            Origin(HIDE, "activation", None, ACTIVATE, 82, f"export {HIDE}=-1")
        ),
        "made-hidden-by-startup-file-that-chooses": with_hidden_gpus(
            Origin(HIDE, "start", None, CUSTOM, 3, f"os.environ['{HIDE}'] = choose()")
        ),
        "made-hidden-by-machine": with_hidden_gpus(Origin(HIDE, "machine", None, "/etc/environment", 4)),
        "made-hidden-by-slurm": with_hidden_gpus(Origin(HIDE, "shell"), value="", scheduler="slurm"),
        "made-enabled-device-types": with_environment(healthy(), TF_ENABLED_DEVICE_TYPES="CPU"),
        "made-numpy-on-pythonpath": foreign,
        "made-numpy-on-pythonpath-fails": with_foreign_numpy(
            error="No module named 'numpy._core._multiarray_umath'"
        ),
        "made-numpy-by-pth-file": replace(
            foreign, environment=replace(foreign.environment, variables={}, origins=(pth,))
        ),
        "made-numpy-py": replace(
            with_python(healthy(), shadows=(shadow,)), rehearsal=Known(rehearsal, "a child")
        ),
        "made-two-tensorflows": with_two_tensorflows("/team:/mine", origin="activation"),
        "made-two-tensorflows-without-libraries": remove_libraries(with_two_tensorflows()),
    }
