# TensorFlow 2.4.4, Python 3.8, CUDA 11.0.3, cuDNN 8.0.5.39 (cuda-base); made by tfdoctor VERSION.
FROM nvidia/cuda:11.0.3-cudnn8-runtime-ubuntu20.04
USER 0
ARG DEBIAN_FRONTEND=noninteractive
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_ROOT_USER_ACTION=ignore
# NVIDIA's apt lists are removed: their key may be retired, and nothing is installed from them.
# hadolint ignore=DL3008
RUN rm -f /etc/apt/sources.list.d/cuda*.list /etc/apt/sources.list.d/nvidia-ml.list \
 && apt-get update \
 && apt-get install -y --no-install-recommends python3.8 python3.8-venv \
 && rm -rf /var/lib/apt/lists/*
COPY tools.txt /usr/local/share/tfdoctor/tools.txt
RUN python3.8 -m venv /opt/tensorflow \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-deps --require-hashes --requirement /usr/local/share/tfdoctor/tools.txt

COPY tensorflow.txt strip.py /usr/local/share/tfdoctor/
RUN /opt/tensorflow/bin/pip install --no-cache-dir --no-deps --require-hashes --no-build-isolation \
      --requirement /usr/local/share/tfdoctor/tensorflow.txt \
 && /opt/tensorflow/bin/python /usr/local/share/tfdoctor/strip.py /opt/tensorflow/lib/python3.8/site-packages \
 && rm -rf /opt/tensorflow/lib/python3.8/site-packages/tensorflow/include

RUN (getent passwd 1000 >/dev/null || useradd --create-home --uid 1000 tensorflow) \
 && install -d -o 1000 -g 1000 /workspace
ENV PATH=/opt/tensorflow/bin:$PATH
ENV NVIDIA_VISIBLE_DEVICES=all
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENV NVIDIA_REQUIRE_CUDA="cuda>=11.0"
LABEL org.opencontainers.image.title="TensorFlow 2.4.4 for NVIDIA GPUs" \
      org.opencontainers.image.version="2.4.4" \
      org.opencontainers.image.base.name="nvidia/cuda:11.0.3-cudnn8-runtime-ubuntu20.04" \
      io.tfdoctor.plan="{\"cuda\": \"11.0.3\", \"cudnn\": \"8.0.5.39\", \"python\": \"3.8\", \"recipe\": \"cuda-base\", \"tensorflow\": \"2.4.4\"}" \
      io.tfdoctor.version="VERSION"
USER 1000
WORKDIR /workspace
CMD ["python"]
