"""Run one average pooling on the first GPU, which needs cuDNN but no kernel of TensorFlow's; for any TensorFlow.

Prints the result or the error; TensorFlow's messages about cuDNN are in its log.
"""

import importlib
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"

import numpy as np

tf = importlib.import_module("tensorflow")
tf = getattr(getattr(tf, "compat", tf), "v1", tf)
if hasattr(tf, "disable_eager_execution"):
    tf.disable_eager_execution()
with tf.device("/gpu:0"):
    images = tf.placeholder(tf.float32, (1, 2, 4, 4))
    pooled = tf.nn.avg_pool(images, [1, 1, 2, 2], [1, 1, 2, 2], "VALID", data_format="NCHW")
options = tf.ConfigProto(gpu_options=tf.GPUOptions(allow_growth=True))
with tf.Session(config=options) as session:
    try:
        print("computed", session.run(pooled, {images: np.ones((1, 2, 4, 4))}).sum())
    except Exception as error:
        print(type(error).__name__, str(error)[:300])
