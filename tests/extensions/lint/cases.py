"""Code, and what `lint` has to report: a mark ends each line that has a finding, and no other line.

The mark is `#! name`; the rest of the line is the code. `# %%` separates the cells of a notebook.
"""

from __future__ import annotations

PYTHON = {
    "unpacked": """
        import os
        name, other = "CUDA_VISIBLE_DEVIES", "x"
        os.environ[name] = "0"  #! misspelt-variable
        first, *rest = "CUDA_VISIBLE_DEVISES", "x"
        os.environ[rest] = "0"
        a, b = "CUDA_VISIBLE_DEVIES", "x", "y"
        os.environ[a] = "0"
        c, d = os.listdir()
        os.environ[c] = "0"
        text: str = "CUDA_VISIBLE_DEVIES"
        os.environ[text] = "0"  #! misspelt-variable
        number: int
        if (key := "NCCL_DEBGU"):
            os.environ[key] = "1"  #! misspelt-variable
        wish = "XLA_FLAG" if c else "MINE"
        os.environ[wish] = "1"
        os.environ |= {"CUDA_VISIBLE_DEVICS": "0"}  #! misspelt-variable
    """,
    "formatted": """
        import os
        os.environ["CUDA_VISIBLE_{}".format("DEVIES")] = "0"  #! misspelt-variable
        os.environ["CUDA_VISIBLE_{0}".format("DEVIES")] = "0"  #! misspelt-variable
        os.environ["CUDA_VISIBLE_{}{}".format("DEV", "IES")] = "0"
        os.environ["CUDA_VISIBLE_{1}".format("DEVIES")] = "0"
        os.environ["CUDA_VISIBLE_{:s}".format("DEVIES")] = "0"
        os.environ["CUDA_VISIBLE_%s" % "DEVIES"] = "0"  #! misspelt-variable
        os.environ["CUDA_VISIBLE_" + "DEVIES"] = "0"  #! misspelt-variable
        os.environ[f"CUDA_VISIBLE_{'DEVIES'}"] = "0"  #! misspelt-variable
        os.environ["_".join(["CUDA", "VISIBLE", "DEVIES"])] = "0"  #! misspelt-variable
    """,
    "other imports": """
        import os.path
        from os import environ as e, system as s, getenv
        import os as o, sys
        e["CUDA_VISIBLE_DEVIES"] = "0"  #! misspelt-variable
        s("export CUDA_VISIBLE_DEVICES=0")  #! variable-set-wrongly
        o.environ["NCCL_DEBGU"] = "1"  #! misspelt-variable
        getenv("CUDA_DEVICE_ODER")  #! misspelt-variable
        from os import *
        environ["XLA_FLAG"] = "1"  #! misspelt-variable
        system("export CUDA_VISIBLE_DEVICES=0")  #! variable-set-wrongly
    """,
    "loops and branches": """
        import os
        import tensorflow as tf
        while True:
            os.environ["CUDA_VISIBLE_DEVIES"] = "0"  #! misspelt-variable
            break
        else:
            os.environ["CUDA_VISIBLE_DEVISES"] = "0"  #! misspelt-variable
        match x:
            case 1:
                os.environ["NCCL_DEBGU"] = "1"  #! misspelt-variable
            case _:
                os.environ["XLA_FLAG"] = "1"  #! misspelt-variable
        def later():
            return lambda: os.environ.get("TF_GPU_ALOCATOR")  #! misspelt-variable
        names = {key: os.environ["CUDA_DEVICE_ODER"] for key in range(2)}  #! misspelt-variable
        found = [os.environ["CUDA_VISIBLE_DEVICS"] for key in range(2) if key]  #! misspelt-variable
        async def f():
            await g(os.environ["TF_CPP_MIN_LOGLEVEL"])  #! misspelt-variable
    """,
    "returned": """
        import os
        def get_name():
            return "CUDA_VISIBLE_DEVIES"
        def get_either(x):
            if x:
                return "CUDA_VISIBLE_DEVIES"
            return "MINE"
        def get_none():
            pass
        os.environ[get_name()] = "0"  #! misspelt-variable
        os.environ[get_either(1)] = "0"
        os.environ[get_none()] = "0"
        class A:
            NAME = "CUDA_VISIBLE_DEVISES"
            def get(self):
                return self.NAME
        os.environ[A.NAME] = "0"
        os.environ[A().get()] = "0"
        @decorate(os.environ["NCCL_DEBGU"])  #! misspelt-variable
        def decorated():
            global NAME
            NAME = "XLA_FLAG"
        decorated()
        os.environ[NAME] = "0"
    """,
    "copies": """
        import os, subprocess
        env = os.environ.copy()
        env.setdefault("CUDA_VISIBLE_DEVIES", "0")  #! misspelt-variable
        env.update(CUDA_VISIBLE_DEVISES="0")  #! misspelt-variable
        env["CUDA_VISIBLE_DEVICES"] = 0  #! variable-set-wrongly
        env["CUDA_DEVICE_ODER"]
        other = env.copy()
        other["NCCL_DEBGU"] = "INFO"  #! misspelt-variable
        subprocess.Popen(["x"], env={"CUDA_VISIBLE_DEVIES": "1"})  #! misspelt-variable
        subprocess.run(["x"], env=dict(os.environ, XLA_FLAG="1"))  #! misspelt-variable
        subprocess.run(["x"], env=os.environ | {"TF_GPU_ALOCATOR": "1"})  #! misspelt-variable
        subprocess.check_call(f"export CUDA_VISIBLE_DEVICES={n}", shell=True)  #! variable-set-wrongly
        subprocess.check_call(f"export CUDA_VISIBLE_DEVICES={n}; python x", shell=True)
        subprocess.run("python x")
        subprocess.run(["bash", "-c", "export CUDA_VISIBLE_DEVICES=1"])
        call(env={"CUDA_VISIBLE_DEVIES": "2"})  #! misspelt-variable
        monkeypatch.setenv("CUDA_VISIBLE_DEVIES", "2")  #! misspelt-variable
        monkeypatch.setenv(name, "2")
    """,
    "attributes": """
        import os
        os.environ.CUDA_VISIBLE_DEVICES = "0"  #! variable-set-wrongly
        os.environ["CUDA_VISIBLE_DEVICES"] == "0"  #! variable-set-wrongly
        os.environ[name] == "0"
        os.other["CUDA_VISIBLE_DEVICES"] == "0"
        os.environ.MINE = "0"
        os.environ["CUDA_VISIBLE_DEVICES"]
        os.environ.clear()
    """,
    "loops": """
        import os
        settings = {"CUDA_VISIBLE_DEVIES": "0", "NCCL_DEBUG": "3"}
        for key, value in settings.items():
            os.environ[key] = value  #! misspelt-variable
        for key in settings.keys():
            os.environ[key] = "1"  #! misspelt-variable
        for key in ("XLA_FLAG", "MINE"):
            os.environ.setdefault(key, "1")  #! misspelt-variable
        names = ["CUDA_VISABLE_DEVICES"]
        os.environ[names[0]] = "0"  #! misspelt-variable
        os.environ[names[3]] = "0"
        os.environ[names[-1]] = "0"  #! misspelt-variable
    """,
    "growth on the first": """
        import tensorflow as tf
        gpus = tf.config.list_physical_devices("GPU")
        for gpu in gpus[:1]:
            tf.config.experimental.set_memory_growth(gpu, True)  #! growth-not-on-all
    """,
    "growth on a copy of all": """
        import tensorflow as tf
        gpus = tf.config.list_physical_devices("GPU")
        for gpu in gpus[:]:
            tf.config.experimental.set_memory_growth(gpu, True)
    """,
    "growth through a counter": """
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
        index = 0
        while index < len(gpus):
            tf.config.experimental.set_memory_growth(gpus[index], True)
            index += 1
    """,
    "growth on the only one": """
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
        assert len(gpus) == 1
        tf.config.experimental.set_memory_growth(gpus[0], True)
    """,
    "growth on one": """
        import tensorflow as tf
        gpus = tf.config.list_physical_devices("GPU")
        tf.config.experimental.set_memory_growth(gpus[0], True)  #! growth-not-on-all
    """,
    # ------------------------------------------------------------ misspelt-variable
    "subscript": """
        import os
        os.environ["CUDA_VISIBLE_DEVIECS"] = "0"  #! misspelt-variable
        os.environ['TF_CPP_MIN_LOG_LEVL'] = "2"  #! misspelt-variable
        os.environ["TF_CPP_LOG_MIN_LEVEL"] = "2"  #! misspelt-variable
        os.environ["cuda_visible_devices"] = "0"  #! misspelt-variable
        os.environ["NCCL_DEBGU"] = "INFO"  #! misspelt-variable
        os.environ["XLA_FLAG"] = "--xla_gpu_cuda_data_dir=/usr"  #! misspelt-variable
        os.environ["LD_LIBARY_PATH_OLD"] = "x"
        import tensorflow as tf
    """,
    "forms": """
        import os as system
        from os import environ, putenv
        environ.setdefault("TF_FORCE_GPU_ALLOW_GROWHT", "true")  #! misspelt-variable
        environ.update({"CUDA_VISIBLE_DEVCIES": "0"})  #! misspelt-variable
        environ.update(CUDA_DEVICE_ODER="PCI_BUS_ID")  #! misspelt-variable
        putenv("CUDA_VISBLE_DEVICES", "0")  #! misspelt-variable
        system.environ |= {"CUDA_VISIBLE_DEVICE": "0"}  #! misspelt-variable
        if system.getenv("TF_GPU_ALOCATOR"):  #! misspelt-variable
            pass
    """,
    "for a child": """
        import os, subprocess
        def launch(rank):
            env = os.environ.copy()
            env["CUDA_VISIBLE_DEVISES"] = str(rank)  #! misspelt-variable
            subprocess.Popen(["python", "w.py"], env=env)
            subprocess.run(["python", "w.py"], env={**os.environ, "TF_CPP_MIN_LOGLEVEL": "1"})  #! misspelt-variable
            subprocess.run("CUDA_VISIBLE_DEVICS=0 python w.py", shell=True)  #! misspelt-variable
    """,
    "names of their own": """
        import os
        os.environ["MY_CUDA_VISIBLE_DEVICES"] = "0"
        os.environ["OLD_TF_CONFIG"] = "0"
        os.environ["NCCL_DEBUG_FILE"] = "0"
        os.environ["TF_CPP_MAX_VLOG_LEVEL"] = "0"
        os.environ["HIP_VISIBLE_DEVICES"] = "0"
        os.environ["NCCL_MIN_NRINGS"] = "4"
        os.environ["TF_CONFIG_DIR"] = "4"
        os.environ["CUDA_ROOT_DIR"] = "4"
        os.environ["TF_DATA_DIR"] = "4"
        os.environ["TFDS_DATA_DIR"] = "4"
        os.environ["XLA_DIR"] = "4"
        print("CUDA_VISIBLE_DEVIES", {"CUDA_VISIBLE_DEVIES": 1})
    """,
    # ------------------------------------------------------------ misspelt-option
    "options": """
        import tensorflow as tf
        v1 = tf.compat.v1
        config = v1.ConfigProto(allow_soft_placment=True)  #! misspelt-option
        config.gpu_options.alow_growth = True  #! misspelt-option
        config.gpu_options.per_process_gpu_memory_fractoin = 0.3  #! misspelt-option
        config.log_device_placment = True  #! misspelt-option
        opts = v1.GPUOptions(allow_grwoth=True)  #! misspelt-option
        s = v1.Session(config=config)
        t = v1.Session(config=v1.ConfigProto(gpu_options=opts))
    """,
    "functions": """
        import tensorflow as tf
        gpus = tf.config.list_phisical_devices("GPU")  #! misspelt-option
        tf.config.experimental.set_memory_grow(gpus, True)  #! misspelt-option
        tf.config.set_visible_device(gpus, "GPU")  #! misspelt-option
        s = tf.distribute.MirorredStrategy()  #! misspelt-option
        tf.config.optimizer.set_jit(True)
        tf.config.experimental.enable_op_determinism()
    """,
    # ------------------------------------------------------------ variable-set-wrongly
    "numbers": """
        import os
        os.environ["CUDA_VISIBLE_DEVICES"] = 1  #! variable-set-wrongly
        os.environ.update({"TF_CPP_MIN_LOG_LEVEL": 3})  #! variable-set-wrongly
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", True)  #! variable-set-wrongly
        os.environ["CUDA_VISIBLE_DEVICES"] = None  #! variable-set-wrongly
        os.environ["CUDA_VISIBLE_DEVICES"] = [0, 1]  #! variable-set-wrongly
        for i in range(2):
            os.environ["CUDA_VISIBLE_DEVICES"] = str(i)
    """,
    "calls": """
        import os
        os.environ('CUDA_VISIBLE_DEVICES') = '0'  #! variable-set-wrongly
    """,
    "shells": """
        import os, subprocess
        os.system("export CUDA_VISIBLE_DEVICES=0")  #! variable-set-wrongly
        os.system("set CUDA_VISIBLE_DEVICES=0")  #! variable-set-wrongly
        os.system("CUDA_VISIBLE_DEVICES=0")  #! variable-set-wrongly
        subprocess.run("export TF_CPP_MIN_LOG_LEVEL=2", shell=True)  #! variable-set-wrongly
        os.system("export CUDA_VISIBLE_DEVICES=0; python train.py")
        os.system("CUDA_VISIBLE_DEVICES=0 python train.py")
        os.system("export FOO=1")
    """,
    "no effect": """
        import os
        os.environ["CUDA_VISIBLE_DEVICES"] == "0"  #! variable-set-wrongly
        os.environ.CUDA_VISIBLE_DEVICES = "0"  #! variable-set-wrongly
    """,
    # ------------------------------------------------------------ variable-set-too-late
    "after the import": """
        import os
        import tensorflow.keras as keras
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  #! variable-set-too-late
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    """,
    "after the import, in a function": """
        import os
        from tensorflow import keras
        def main():
            os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  #! variable-set-too-late
        if __name__ == "__main__":
            main()
    """,
    "import in a function": """
        import os
        def load():
            import tensorflow as tf
            return tf
        def quiet():
            os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        quiet()
        tf = load()
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  #! variable-set-too-late
    """,
    "after the first use": """
        import os
        import tensorflow as tf
        x = tf.constant([1.0])
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"  #! variable-set-too-late
        os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"  #! variable-set-too-late
    """,
    "in one branch": """
        import os, sys
        if len(sys.argv) > 1:
            import tensorflow as tf
            tf.constant(1)
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        os.environ["CUDA_VISIBLE_DEVICES"] = "3"
    """,
    "import that may fail": """
        import os
        try:
            import tensorflow as tf
        except ImportError:
            tf = None
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  #! variable-set-too-late
    """,
    "the loader's": """
        import os
        os.environ["LD_LIBRARY_PATH"] = "/usr/local/cuda/lib64"  #! variable-set-too-late
        import tensorflow as tf
    """,
    "the loader's, for a child": """
        import os, subprocess
        os.environ["LD_LIBRARY_PATH"] = "/usr/local/cuda/lib64"
        import tensorflow as tf
        subprocess.run(["python", "train.py"])
    """,
    # ------------------------------------------------------------ configured-too-late, growth-not-on-all
    "configured late": """
        import tensorflow as tf
        strategy = tf.distribute.MirroredStrategy()
        gpus = tf.config.experimental.list_physical_devices("GPU")
        tf.config.experimental.set_virtual_device_configuration(  #! configured-too-late
            gpus[0], [tf.config.experimental.VirtualDeviceConfiguration(memory_limit=1024)])
    """,
    "configured late, by a function": """
        import tensorflow as tf
        def setup():
            for gpu in tf.config.list_physical_devices("GPU"):
                tf.config.experimental.set_memory_growth(gpu, True)  #! configured-too-late
        print(tf.test.is_gpu_available())
        setup()
    """,
    "growth in a branch": """
        import tensorflow as tf
        gpus = tf.config.list_physical_devices(device_type="GPU")
        if len(gpus) > 0:
            tf.config.experimental.set_memory_growth(gpus[0], enable=True)  #! growth-not-on-all
    """,
    "growth of the only one": """
        import tensorflow as tf
        gpus = tf.config.list_physical_devices("GPU")
        tf.config.set_visible_devices(gpus[1], "GPU")
        tf.config.experimental.set_memory_growth(gpus[1], True)
    """,
    "growth on all": """
        import tensorflow as tf
        gpus = tf.config.list_physical_devices("GPU")
        if len(gpus) == 1:
            tf.config.experimental.set_memory_growth(gpus[0], True)
        for g in gpus:
            tf.config.experimental.set_memory_growth(g, True)
        [tf.config.experimental.set_memory_growth(g, True) for g in gpus]
    """,
    # ------------------------------------------------------------ removed-api
    "removed": """
        import tensorflow as tf
        from tensorflow.contrib.layers import flatten  #! removed-api
        x = tf.placeholder(tf.float32)  #! removed-api
        opt = tf.train.AdamOptimizer(0.1)  #! removed-api
        w = tf.get_variable("w", [2])  #! removed-api
        y = tf.contrib.slim.conv2d(x, 3, [1, 1])  #! removed-api
        z = tf.compat.v1.placeholder(tf.float32)
    """,
    "for both": """
        import tensorflow as tf
        if tf.__version__.startswith("1."):
            sess = tf.Session()
        else:
            sess = tf.compat.v1.Session()
    """,
    "for both, by attribute": """
        import tensorflow as tf
        try:
            Session = tf.Session
        except AttributeError:
            Session = tf.compat.v1.Session
        placeholder = tf.placeholder if hasattr(tf, "placeholder") else tf.compat.v1.placeholder
    """,
    # ------------------------------------------------------------ no-such-device
    "devices": """
        import tensorflow as tf
        with tf.device("gpu:0"):
            a = tf.ones([2])
        with tf.device("/device:GPU:0"), tf.device("/job:worker/task:1/gpu:0"):
            a = tf.ones([2])
        with tf.device("cuda:0"):  #! no-such-device
            a = tf.ones([2])
        with tf.device("/GPU0"):  #! no-such-device
            a = tf.ones([2])
        with tf.device("/device:gpu0"):  #! no-such-device
            a = tf.ones([2])
        with tf.device(None), tf.device("/cpu:0"), tf.device(a.device):
            a = tf.ones([2])
    """,
    "hidden": """
        import os
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"
        import tensorflow as tf
        with tf.device("/GPU:1"):  #! no-such-device
            a = tf.ones([2])
    """,
    # ------------------------------------------------------------ config-unused
    "unused": """
        import tensorflow.compat.v1 as tf
        def train():
            config = tf.ConfigProto()  #! config-unused
            config.gpu_options.allow_growth = True
            with tf.Session() as sess:
                pass
        def test():
            config = tf.ConfigProto()
            config.gpu_options.allow_growth = True
            return tf.Session(config=config)
        def make():
            options = tf.GPUOptions(allow_growth=True)
            return tf.ConfigProto(gpu_options=options)
    """,
    "used elsewhere": """
        import tensorflow.compat.v1 as tf
        config = tf.ConfigProto()
        config.gpu_options.allow_growth = True
        def run():
            with tf.Session(config=config) as sess:
                pass
    """,
    # ------------------------------------------------------------ all-on-one-device
    "towers": """
        import tensorflow as tf
        num_gpus = 2
        out = []
        for i in range(num_gpus):
            with tf.device("/gpu:0"):  #! all-on-one-device
                out.append(tf.ones([2]))
        for i in range(num_gpus):
            with tf.device("/gpu:{}".format(i)):
                out.append(tf.ones([2]))
        for epoch in range(10):
            with tf.device("/gpu:0"):
                out.append(tf.ones([2]))
    """,
    # ------------------------------------------------------------ clusters
    "cluster": """
        import tensorflow as tf
        spec = tf.train.ClusterSpec({
            "ps": ["localhost2222"],  #! cluster-address
            "worker": ["localhost:2223", "localhost:99999"],  #! cluster-address
        })
        server = tf.distribute.Server(spec, job_name="workers", task_index=0)  #! cluster-task
        other = tf.distribute.Server(spec, "worker", 1)
    """,
    "tf_config": """
        import os, json
        os.environ["TF_CONFIG"] = '{"cluster": {"worker": ["a:1", "b"]}}'  #! cluster-address
        config = {"cluster": {"worker": ["a:1", "b:2"]},
                  "task": {"type": "ps", "index": 0}}  #! cluster-task
        os.environ["TF_CONFIG"] = json.dumps(config)
        import tensorflow as tf
    """,
    # ------------------------------------------------------------ hard-coded-devices
    "written out": """
        import tensorflow as tf
        DEVICES = ["/gpu:0", "/gpu:1"]
        a = tf.distribute.MirroredStrategy(DEVICES)  #! hard-coded-devices
        b = tf.distribute.MirroredStrategy(devices=["/gpu:%d" % i for i in range(4)])  #! hard-coded-devices
        c = tf.keras.utils.multi_gpu_model(None, gpus=4)  #! hard-coded-devices
        d = tf.distribute.MirroredStrategy()
        e = tf.distribute.MirroredStrategy(devices=["/cpu:0"])
        f = tf.distribute.MirroredStrategy([g.name for g in tf.config.list_logical_devices("GPU")])
    """,
    # ------------------------------------------------------------ comments, Python 2
    "turned off": """
        import os
        os.environ["CUDA_VISIBLE_DEVIES"] = "0"  # noqa: TFD711
        os.environ["CUDA_VISIBLE_DEVIES"] = "0"  # noqa: misspelt-variable
        os.environ["CUDA_VISIBLE_DEVIES"] = "0"  # noqa
        os.environ["CUDA_VISIBLE_DEVIES"] = "0"  # noqa: E501  #! misspelt-variable
    """,
    "python 2": """
        import os
        print "hello", os.environ
        try:
            os.environ["CUDA_VISIBLE_DEVIES"] = ur"0"  #! misspelt-variable
        except KeyError, error:
            raise ValueError, "x"
        exec "a = 1"
        print >>log, `a`, 0777, 10L <> 3
    """,
}
"""Name of a case: its Python code; the release is unknown."""

WITH_OPTIONS: dict[str, tuple[tuple[int, int] | None, int | None, str]] = {
    "device forms": (
        None,
        2,
        """
        import tensorflow as tf
        with tf.device(''):
            pass
        with tf.device('/'):
            pass
        with tf.device('/cpu:0'):
            pass
        with tf.device('/CPU'):
            pass
        with tf.device('/job:worker/task:1/GPU:0'):
            pass
        with tf.device('/job:worker/replica:0/task:1/device:GPU:*'):
            pass
        with tf.device('GPU:0'):
            pass
        with tf.device('gpu'):
            pass
        with tf.device('/GPU:x'):  #! no-such-device
            pass
        with tf.device('/job:/GPU:0'):  #! no-such-device
            pass
        with tf.device('/gpu:0/gpu:1'):
            pass
        with tf.device('CPU:'):  #! no-such-device
            pass
        with tf.device('/device:XLA_GPU:0'):
            pass
        with tf.device('/device:TPU:0'):
            pass
        with tf.device('/GPU:0/job:worker'):
            pass
        with tf.device('/GPU 0'):  #! no-such-device
            pass
        with tf.device('/GPU:-1'):  #! no-such-device
            pass
        with tf.device('/gpu:1'):
            pass
    """,
    ),
    "several hidden": (
        None,
        2,
        """
        import os
        os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
        import tensorflow as tf
        with tf.device("/GPU:1"):
            pass
        with tf.device("/GPU:2"):  #! no-such-device
            pass
    """,
    ),
    "hidden by a UUID": (
        None,
        2,
        """
        import os
        os.environ["CUDA_VISIBLE_DEVICES"] = "0,GPU-12345678"
        import tensorflow as tf
        with tf.device("/GPU:2"):  #! no-such-device
            pass
    """,
    ),
    "hidden up to an invalid number": (
        None,
        2,
        """
        import os
        os.environ["CUDA_VISIBLE_DEVICES"] = "0,-1,1"
        import tensorflow as tf
        with tf.device("/GPU:1"):  #! no-such-device
            pass
    """,
    ),
    "all hidden": (
        None,
        2,
        """
        import os
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        import tensorflow as tf
        with tf.device("/GPU:0"):  #! no-such-device
            pass
    """,
    ),
    "strings and numbers on a GPU": (
        (1, 15),
        None,
        """
        import tensorflow as tf
        with tf.device("/gpu:0"):
            a = tf.constant("x")  #! no-soft-placement
            b = tf.constant(b)
            c = tf.py_func(f, [a], tf.float32)  #! no-soft-placement
            d = tf.Variable(1, dtype=tf.int32)  #! no-soft-placement
            e = tf.summary.scalar("x", d)  #! no-soft-placement
        s = tf.Session()
        s.run(a)
    """,
    ),
    "soft placement is allowed": (
        (1, 15),
        None,
        """
        import tensorflow as tf
        with tf.device("/gpu:0"):
            a = tf.constant("x")
        s = tf.Session(config=tf.ConfigProto(allow_soft_placement=True))
        s.run(a)
    """,
    ),
    "tf 2 names": (
        (1, 15),
        None,
        """
        import tensorflow as tf
        a = tf.config.list_physical_devices("GPU")  #! removed-api
        b = tf.config.experimental.list_physical_devices("GPU")
        c = tf.distribute.MirroredStrategy()
        s = tf.Session()
        """,
    ),
    "gpus": (
        None,
        2,
        """
        import tensorflow as tf
        for i in range(4):
            with tf.device("/gpu:%d" % i):  #! no-such-device
                a = tf.ones([2])
        with tf.device("/gpu:1"):
            a = tf.ones([2])
        with tf.device(f"/device:GPU:{2}"):  #! no-such-device
            a = tf.ones([2])
        """,
    ),
    "one gpu": (
        None,
        1,
        """
        import tensorflow as tf
        gpus = tf.config.list_physical_devices("GPU")
        tf.config.experimental.set_memory_growth(gpus[0], True)
        """,
    ),
    "pinned": (
        (1, 12),
        None,
        """
        import tensorflow as tf
        with tf.device("/gpu:0"):
            a = tf.constant("text")  #! no-soft-placement
            q = tf.FIFOQueue(3, tf.float32)  #! no-soft-placement
            n = tf.get_variable("n", [], dtype=tf.int32)  #! no-soft-placement
            w = tf.get_variable("w", [2])
            g = tf.Variable(0.0)
        sess = tf.Session()
        """,
    ),
    "pinned softly": (
        (1, 12),
        None,
        """
        import tensorflow as tf
        with tf.device("/gpu:0"):
            a = tf.constant("text")
        config = tf.ConfigProto()
        config.allow_soft_placement = True
        sess = tf.Session(config=config)
        """,
    ),
}
"""Name of a case: (release, number of GPUs, Python code)."""

NOTEBOOK = """
%env CUDA_VISIBLE_DEVIES=0  #! misspelt-variable
# %%
!export CUDA_VISIBLE_DEVICES=0  #! variable-set-wrongly
!nvidia-smi
# %%
%matplotlib inline
import tensorflow as tf
tf.ones([2])
# %%
%env TF_CPP_MIN_LOG_LEVEL 3  #! variable-set-too-late
%set_env CUDA_VISIBLE_DEVICES=0  #! variable-set-too-late
"""

SHELL = """#!/bin/bash
export CUDA_VISIBLE_DEVCES=0  #! misspelt-variable
TF_CPP_MIN_LOG_LEVEl=2 python a.py  #! misspelt-variable
docker run -e NVIDIA_VISIBLE_DEVICE=all x  #! misspelt-variable
mpirun -x NCCL_DEBUG=INFO -x NCCL_SOKET_IFNAME=eth0 python a.py  #! misspelt-variable
export CUDA_VISIBLE_DEVICES = 0  #! variable-set-wrongly
$CUDA_VISIBLE_DEVICES=0  #! variable-set-wrongly
# export CUDA_VISIBLE_DEVIES=0
echo "CUDA_VISIBLE_DEVIES=0" 'TF_CPP_MIN_LOG_LEVLE=1'
python t.py --ps_hosts=a:1 --worker_hosts=b:1,c --job_name=worker --task_index=0 &  #! cluster-address
python t.py --ps_hosts=a:1 --worker_hosts=b:1,c:1 --job_name=worker --task_index=2 &  #! cluster-task
python t.py --ps_hosts=a:1 --worker_hosts=b:1,c:1 --job_name=worker --task_index=0 &  #! cluster-task
cuda_visible=1 MY_DEVICES=2 python a.py
"""

_WORKER = "python t.py --job_name=worker --task_index=0"
_VARIABLE = (
    """export TF_CONFIG='{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}'"""
)
STARTED_ONCE = {
    "if": f'if [ -n "$D" ]; then\n  {_WORKER}\n  exit\nfi\n{_WORKER}\n',
    "else": f'if [ -n "$D" ]; then {_WORKER}; else {_WORKER} --debug; fi\n',
    "elif": f"if a; then\n  x\nelif b; then\n  {_WORKER}\nelse\n  {_WORKER}\nfi\n",
    "case": f'case "$1" in\n  a) {_WORKER} ;;\n  b)\n    {_WORKER}\n    ;;\nesac\n',
    "and": f'[ -n "$D" ] && {_WORKER} --debug\n[ -n "$D" ] || {_WORKER}\n',
    "or": f"{_WORKER} ||\n  {_WORKER} --again\n",
    "function": f"one() {{\n  {_WORKER}\n}}\ntwo() {{\n  {_WORKER}\n}}\n$1\n",
    "exit": f"{_WORKER}\nexit\n{_WORKER}\n",
    "variable": f"if a; then\n  {_VARIABLE}\nelse\n  {_VARIABLE}\nfi\npython t.py\n",
}
"""Scripts that contain a task twice and start it once."""
STARTED_TWICE = {
    "background": f"{_WORKER} &\n{_WORKER} &\n",
    "beside-an-if": f"if a; then\n  echo\nelse\n  echo b\nfi\n{_WORKER} &\n{_WORKER}\n",
    "in-one-branch": f"if a; then\n  {_WORKER} &\n  {_WORKER}\nelse\n  echo\nfi\n",
    "in-one-case": f"case $1 in\n a)\n  {_WORKER} &\n  {_WORKER} ;;\nesac\n",
    "after-cd": f"cd a && {_WORKER} &\ncd b && {_WORKER} &\n",
    "group": f"{{ {_WORKER} & }}\n{{ {_WORKER} & }}\n",
    "word-alone": f"echo if case exit\n{_WORKER} &\n{_WORKER} &\n",
}

DOCKERFILE = """FROM tensorflow/tensorflow:2.15.0-gpu
ENV CUDA_VISIBLE_DEVIES 0  #! misspelt-variable
ENV A=1 \\
    NVIDIA_DRIVER_CAPABILITES=all \\
    B=2
RUN export TF_CPP_MIN_LOG_LEVEL=2  #! variable-set-wrongly
RUN export TF_CPP_MIN_LOG_LEVEL=2 && python a.py
"""

YAML = """services:
  a:
    image: x
    environment:
      - CUDA_VISIBLE_DEVIES=0  #! misspelt-variable
      - PLAIN
    command: python CUDA_VISIBLE_DEVIES
  b:
    environment:
      TF_FORCE_GPU_ALLOW_GROTH: "true"  #! misspelt-variable
      TF_CONFIG: '{"cluster": {"worker": ["a"]}}'  #! cluster-address
    labels:
      CUDA_VISIBLE_DEVIES: a label
---
spec:
  containers:
    - env:
        - name: NCCL_DEBG  #! misspelt-variable
          value: INFO
"""

OTHER_FILES = {
    "shell": r"""#!/bin/bash
CUDA_VISIBLE_DEVIES=0  #! misspelt-variable
FOO=1
MINE=$CUDA_VISIBLE_DEVIES
env CUDA_VISIBLE_DEVISES=0 python a.py  #! misspelt-variable
env -u CUDA_VISIBLE_DEVISES python a.py
unset CUDA_VISIBLE_DEVIES
declare -x NCCL_DEBGU=1  #! misspelt-variable
CUDA_VISIBLE_DEVICES=0  #! variable-set-wrongly
python a.py
sbatch --export=ALL,XLA_FLAG=1,MINE=2 job.sh  #! misspelt-variable
srun --export=NONE python a.py
export CUDA_DEVICE_ODER  #! misspelt-variable
docker run --env CUDA_VISIBLE_DEVICS=0 -e NCCL_DEBUG x  #! misspelt-variable
docker run --env=TF_GPU_ALOCATOR=x x  #! misspelt-variable
TF_CONFIG='{"cluster": {"worker": ["a"]}}' python a.py  #! cluster-address
export TF_CONFIG="{\"cluster\": {\"worker\": [\"b\"]}}"  #! cluster-address
""",
    "yaml": r"""env:
  - name: CUDA_VISIBLE_DEVIES  #! misspelt-variable
    value: "0"
  - name: TF_CONFIG
    value: '{"cluster": {"worker": ["a"]}}'  #! cluster-address
  - {name: MINE, value: 1}
environment: {NCCL_DEBGU: 1}  #! misspelt-variable
command: ["sh", "-c", "export CUDA_VISIBLE_DEVISES=0; python a.py"]  #! misspelt-variable
run: |
  export XLA_FLAG=1  #! misspelt-variable
  python a.py
""",
    "env": r"""CUDA_VISIBLE_DEVIES=0  #! misspelt-variable
# NCCL_DEBGU=1
export XLA_FLAG="1"  #! misspelt-variable
NCCL_DEBUG = 1
TF_CONFIG='{"cluster": {"worker": ["a"]}}'  #! cluster-address
""",
    "dockerfile": r"""FROM a
ENV CUDA_VISIBLE_DEVIES=0 MINE=1  #! misspelt-variable
ENV NCCL_DEBGU 1  #! misspelt-variable
ARG XLA_FLAG=1
RUN export CUDA_VISIBLE_DEVICES=0  #! variable-set-wrongly
RUN export CUDA_VISIBLE_DEVICES=0 && python a.py
RUN ["sh", "-c", "export CUDA_VISIBLE_DEVICES=0"]
CMD CUDA_VISIBLE_DEVICS=0 python a.py
ENTRYPOINT ["env", "TF_GPU_ALOCATOR=x", "python"]
""",
}
"""Files that are not Python, by their kind."""
