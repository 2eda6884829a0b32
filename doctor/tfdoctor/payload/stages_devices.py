# Part of stages.py: TensorFlow, whichever it is, and the devices that it lists (import, visible).
import os
import re
import sys

from stages_output import Wrong, plural, say, short, text

SIZE = {"GPU": 1024, "CPU": 256}
SMALL = 48
TIMED = 0.3  # seconds


class Card(object):
    """One device that is tried."""

    def __init__(self, index, kind, name):
        self.index, self.kind, self.name = index, kind, name
        self.details = {}

    @property
    def device(self):
        return "/device:%s:%d" % (self.kind, self.index)

    @property
    def capability(self):
        """(8, 0); None where it is not known."""
        match = re.match(r"(\d+)\.(\d+)$", str(self.details.get("compute_capability", "")))
        return (int(match.group(1)), int(match.group(2))) if match else None


class Run(object):
    """What the stages share."""

    def __init__(self, wish):
        self.wish = wish
        self.kind = wish.get("device") or "GPU"
        self.expected = wish.get("expected") or {}
        self.small = bool(wish.get("small"))
        self.size = int(wish.get("size") or (SMALL if self.small else SIZE.get(self.kind, 256)))
        self.timed = float(wish.get("timed", TIMED))
        self.tf = None
        self.opened = False
        self.cards = []

    @property
    def v1(self):
        """The names of TensorFlow 1, on 1.13 and later under compat.v1."""
        return getattr(getattr(self.tf, "compat", None), "v1", None) or self.tf

    def config(self):
        """For a session: memory as it is needed, and an error where a device has no kernel rather than the CPU's."""
        return self.v1.ConfigProto(
            gpu_options=self.v1.GPUOptions(allow_growth=True), allow_soft_placement=False
        )

    def session(self):
        return self.v1.Session(config=self.config())

    def open(self):
        """Make the devices, all of them: TensorFlow cannot do less. Raises Wrong: no card can be used then.

        It is tried once: TensorFlow 2.21 hangs the second time.
        """
        if self.opened:
            return
        try:
            with self.v1.Graph().as_default():
                with self.session():
                    self.opened = True
        except Exception as error:
            raw = text(error)
            failed = Wrong("TensorFlow cannot make its devices: %s" % short(raw))
            failed.raw = raw
            raise failed


def public_config(tf, name):
    """tf.config's function of this name, else tf.config.experimental's; None before 1.14."""
    config = getattr(tf, "config", None)
    for owner in (config, getattr(config, "experimental", None)):
        if hasattr(owner, name):
            return getattr(owner, name)
    return None


def list_by_creating(run):
    """[(index, description)] of the devices by device_lib, the only way before 1.14; it makes a context."""
    from tensorflow.python.client import device_lib

    try:
        found = device_lib.list_local_devices(session_config=run.config())
    except TypeError:
        found = device_lib.list_local_devices()
    return [
        (int(one.name.rsplit(":", 1)[1]), one.name, str(one.physical_device_desc))
        for one in found
        if one.device_type == run.kind
    ]


def fill_description(card, description):
    """Fill in what device_lib says: "device: 0, name: Tesla T4, pci bus id: 0000:00:04.0, compute capability: 7.5"."""
    for key, label in (("device_name", "name"), ("compute_capability", "compute capability")):
        match = re.search(r"(?:^|, )%s: ([^,]{1,100})" % label, description)
        if match:
            card.details.setdefault(key, match.group(1))


class no_keras_settings(object):
    """Importing TensorFlow imports Keras, which writes its settings where there are none: they are taken away again."""

    def __enter__(self):
        folders = [os.path.join(folder, ".keras") for folder in (os.path.expanduser("~"), "/tmp")]
        if os.environ.get("KERAS_HOME"):
            folders.append(os.environ["KERAS_HOME"])
        self.new = [folder for folder in folders if not os.path.exists(os.path.join(folder, "keras.json"))]
        self.empty = [folder for folder in folders if not os.path.exists(folder)]

    def __exit__(self, *_):
        try:
            for folder in self.new:
                if os.path.exists(os.path.join(folder, "keras.json")):
                    os.remove(os.path.join(folder, "keras.json"))
                    if folder in self.empty:
                        os.rmdir(folder)
        except OSError:  # it is somebody else's by now
            pass


def do_import(run):
    with no_keras_settings():
        import tensorflow as tf

    run.tf = tf
    version = str(getattr(tf, "__version__", ""))
    if not hasattr(run.v1, "Session"):
        raise Wrong("what was imported is no TensorFlow: %s" % getattr(tf, "__path__", "?"))
    say(stage="import", tensorflow=version)
    return "TensorFlow %s on Python %s" % (version, sys.version.split()[0]), {"tensorflow": version}


def do_visible(run):
    lists = public_config(run.tf, "list_physical_devices")
    notes = []
    if lists is not None:
        devices = list(lists(run.kind))
        run.cards = [Card(index, run.kind, device.name) for index, device in enumerate(devices)]
        growth = public_config(run.tf, "set_memory_growth")
        details = public_config(run.tf, "get_device_details")
        for card, device in zip(run.cards, devices):
            if run.kind == "GPU":
                try:
                    growth(device, True)
                except Exception as error:
                    notes.append("memory growth: " + short(text(error)))
                try:
                    found = details(device) if details is not None else {}
                except Exception:
                    found = {}
                card.details = dict((key, version_text(value)) for key, value in found.items())
    else:
        for index, name, description in list_by_creating(run):
            run.cards.append(Card(index, run.kind, name))
            fill_description(run.cards[-1], description)
    facts = {
        "devices": [card.name for card in run.cards],
        "details": [card.details for card in run.cards],
    }
    if not run.cards:
        if "bench" in (run.wish.get("stages") or ()):  # the CPU has its times, too
            return "TensorFlow lists no %s" % run.kind, facts
        say(stage="visible", **facts)
        raise Wrong("TensorFlow lists no %s" % run.kind)
    names = sorted(set(str(card.details.get("device_name", "")) for card in run.cards) - set([""]))
    detail = "TensorFlow lists %s" % plural(len(run.cards), run.kind)
    return ": ".join([detail] + ([", ".join(names)] if names else [])) + "".join("; " + n for n in notes), facts


def version_text(value):
    return ".".join(str(part) for part in value) if isinstance(value, tuple) else str(value)
