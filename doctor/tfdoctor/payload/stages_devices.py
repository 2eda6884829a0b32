# Part of stages.py: import TensorFlow and list its devices, in any release (stages import and visible).
import os
import re
import sys

from stages_output import StageError, format_count, say, summarize_error, format_error

DEFAULT_ROWS = {"GPU": 1024, "CPU": 256}
SMALL_ROWS = 48
TIMED_S = 0.3  # seconds for which a timed call is repeated


class DeviceUnderTest(object):
    """A device under test."""

    def __init__(self, index, kind, name):
        self.index, self.kind, self.name = index, kind, name
        self.details = {}  # such as "device_name" and "compute_capability"

    @property
    def device(self):
        return "/device:%s:%d" % (self.kind, self.index)

    @property
    def capability(self):
        """The compute capability, such as (8, 0); None if it is unknown."""
        match = re.match(r"(\d+)\.(\d+)$", str(self.details.get("compute_capability", "")))
        return (int(match.group(1)), int(match.group(2))) if match else None


class SharedState(object):
    """The state that the stages share."""

    def __init__(self, request):
        self.request = request
        self.device_kind = request.get("device") or "GPU"
        self.expected_speeds = request.get("expected") or {}  # by device index
        self.uses_small_sizes = bool(request.get("small"))
        default_rows = SMALL_ROWS if self.uses_small_sizes else DEFAULT_ROWS.get(self.device_kind, 256)
        self.matrix_rows = int(request.get("size") or default_rows)
        self.timed_seconds = float(request.get("timed", TIMED_S))
        self.tf = None
        self.is_open = False
        self.cards = []

    @property
    def v1(self):
        """The module with the TensorFlow 1 API, which is compat.v1 since 1.13."""
        return getattr(getattr(self.tf, "compat", None), "v1", None) or self.tf

    def config(self):
        """Return a session configuration with memory growth, and without a fallback to the CPU."""
        return self.v1.ConfigProto(
            gpu_options=self.v1.GPUOptions(allow_growth=True), allow_soft_placement=False
        )

    def session(self):
        return self.v1.Session(config=self.config())

    def open(self):
        """Create all devices, because TensorFlow cannot create only some. Raise WrongResult if that fails.

        Do not repeat this after a failure, because TensorFlow 2.21 then hangs.
        """
        if self.is_open:
            return
        try:
            with self.v1.Graph().as_default():
                with self.session():
                    self.is_open = True
        except Exception as cause:
            full_error = format_error(cause)
            error = StageError("TensorFlow cannot make its devices: %s" % summarize_error(full_error))
            error.raw = full_error
            raise error


def get_config_function(tf, name):
    """Return a function of tf.config, or else of tf.config.experimental; None if neither has it."""
    config = getattr(tf, "config", None)
    for module in (config, getattr(config, "experimental", None)):
        if hasattr(module, name):
            return getattr(module, name)
    return None


def create_and_list_devices(run):
    """Create the devices, and return [(index, name, description), ...]. Releases before 1.14 need this."""
    from tensorflow.python.client import device_lib

    try:
        devices = device_lib.list_local_devices(session_config=run.config())
    except TypeError:
        devices = device_lib.list_local_devices()
    return [
        (int(device.name.rsplit(":", 1)[1]), device.name, str(device.physical_device_desc))
        for device in devices
        if device.device_type == run.device_kind
    ]


def parse_device_description(card, description):
    """Add to `card` the details in a description such as "[...] name: Tesla T4, [...]"."""
    for key, label in (("device_name", "name"), ("compute_capability", "compute capability")):
        match = re.search(r"(?:^|, )%s: ([^,]{1,100})" % label, description)
        if match:
            card.details.setdefault(key, match.group(1))


class KerasSettingsRemover(object):
    """A context manager that removes the settings file if importing Keras creates one."""

    def __enter__(self):
        folders = [os.path.join(folder, ".keras") for folder in (os.path.expanduser("~"), "/tmp")]
        if os.environ.get("KERAS_HOME"):
            folders.append(os.environ["KERAS_HOME"])
        self.folders_without_settings = [folder for folder in folders if not os.path.exists(os.path.join(folder, "keras.json"))]
        self.missing_folders = [folder for folder in folders if not os.path.exists(folder)]

    def __exit__(self, *_):
        try:
            for folder in self.folders_without_settings:
                if os.path.exists(os.path.join(folder, "keras.json")):
                    os.remove(os.path.join(folder, "keras.json"))
                    if folder in self.missing_folders:
                        os.rmdir(folder)
        except OSError:  # another process removed or uses it
            pass


def do_import(run):
    """Import TensorFlow, and return a summary and the facts."""
    with KerasSettingsRemover():
        import tensorflow as tf

    run.tf = tf
    version = str(getattr(tf, "__version__", ""))
    if not hasattr(run.v1, "Session"):
        raise StageError("what was imported is no TensorFlow: %s" % getattr(tf, "__path__", "?"))
    say(stage="import", tensorflow=version)
    return "TensorFlow %s on Python %s" % (version, sys.version.split()[0]), {"tensorflow": version}


def do_visible(run):
    """Store the devices of the requested kind in `run.cards`, and return a summary and the facts.

    Raise WrongResult if there are none, except for bench.
    """
    list_devices = get_config_function(run.tf, "list_physical_devices")
    notes = []
    if list_devices is not None:
        devices = list(list_devices(run.device_kind))
        run.cards = [DeviceUnderTest(index, run.device_kind, device.name) for index, device in enumerate(devices)]
        set_growth = get_config_function(run.tf, "set_memory_growth")
        get_details = get_config_function(run.tf, "get_device_details")
        for card, device in zip(run.cards, devices):
            if run.device_kind == "GPU":
                try:
                    set_growth(device, True)
                except Exception as error:
                    notes.append("memory growth: " + summarize_error(format_error(error)))
                try:
                    device_details = get_details(device) if get_details is not None else {}
                except Exception:
                    device_details = {}
                card.details = dict((key, format_detail(value)) for key, value in device_details.items())
    else:
        for index, name, description in create_and_list_devices(run):
            run.cards.append(DeviceUnderTest(index, run.device_kind, name))
            parse_device_description(run.cards[-1], description)
    facts = {
        "devices": [card.name for card in run.cards],
        "details": [card.details for card in run.cards],
    }
    if not run.cards:
        if "bench" in (run.request.get("stages") or ()):  # bench also times the CPU
            return "TensorFlow lists no %s" % run.device_kind, facts
        say(stage="visible", **facts)
        raise StageError("TensorFlow lists no %s" % run.device_kind)
    model_names = sorted(set(str(card.details.get("device_name", "")) for card in run.cards) - set([""]))
    detail = "TensorFlow lists %s" % format_count(len(run.cards), run.device_kind)
    return ": ".join([detail] + ([", ".join(model_names)] if model_names else [])) + "".join("; " + note for note in notes), facts


def format_detail(value):
    """Return a detail as text. A compute capability such as (8, 0) becomes "8.0"."""
    return ".".join(str(part) for part in value) if isinstance(value, tuple) else str(value)
