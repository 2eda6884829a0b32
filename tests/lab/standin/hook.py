"""The stand-in for nvidia-container-runtime-hook: lab/engine.py puts it on dockerd's PATH under that name.

dockerd has the runtime call it for every container that asks for GPUs. The state comes in on standard input; the
stand-in driver, or the parts of it that NVIDIA_DRIVER_CAPABILITIES names, goes into the container's
/usr/lib/x86_64-linux-gnu. How many GPUs it shows: TFDOCTOR_STANDIN (of dockerd's environment) is a folder with the
file `gpus` and, for each number N, a folder N with the libraries.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

PARTS = {"libcuda.so.1": "compute", "libnvidia-ml.so.1": "utility"}
"""Library → the driver capability that brings it."""


def main() -> None:
    state = json.load(sys.stdin)
    bundle = Path(state["bundle"])
    config = json.loads((bundle / "config.json").read_text(encoding="utf-8"))
    environment = dict(pair.split("=", 1) for pair in config["process"].get("env") or [] if "=" in pair)
    visible = environment.get("NVIDIA_VISIBLE_DEVICES", "all")
    if visible in {"", "none", "void"}:
        return
    standins = Path(os.environ["TFDOCTOR_STANDIN"])
    most = int((standins / "gpus").read_text(encoding="ascii"))
    wanted = most if visible == "all" else len(visible.split(","))
    if wanted > most:
        sys.exit(f"nvidia-container-cli: device error: {visible}: unknown device")
    root = bundle / config["root"]["path"]
    folder = root / "usr" / "lib" / "x86_64-linux-gnu"
    folder.mkdir(parents=True, exist_ok=True)
    parts = set(environment.get("NVIDIA_DRIVER_CAPABILITIES", "all").split(","))
    for library in (standins / str(wanted)).iterdir():
        if {PARTS[library.name], "all"} & parts:
            shutil.copyfile(library, folder / library.name)
    subprocess.run(["/sbin/ldconfig", "-r", str(root)], check=True)


if __name__ == "__main__":
    main()
