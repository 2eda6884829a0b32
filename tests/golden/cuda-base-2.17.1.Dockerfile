# TensorFlow 2.17.1, Python 3.10, CUDA 12.2.2, cuDNN 8.9.6.50 (cuda-base); made by tfdoctor VERSION.
FROM nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04
USER 0
ARG DEBIAN_FRONTEND=noninteractive
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_ROOT_USER_ACTION=ignore
# NVIDIA's apt lists are removed: their key may be retired, and nothing is installed from them.
# hadolint ignore=DL3008
RUN rm -f /etc/apt/sources.list.d/cuda*.list /etc/apt/sources.list.d/nvidia-ml.list \
 && apt-get update \
 && apt-get install -y --no-install-recommends python3.10 python3.10-venv \
 && rm -rf /var/lib/apt/lists/*
COPY tools.txt /usr/local/share/tfdoctor/tools.txt
RUN python3.10 -m venv /opt/tensorflow \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-deps --require-hashes --requirement /usr/local/share/tfdoctor/tools.txt

COPY tensorflow.txt strip.py /usr/local/share/tfdoctor/
RUN /opt/tensorflow/bin/pip install --no-cache-dir --no-deps --require-hashes --no-build-isolation \
      --requirement /usr/local/share/tfdoctor/tensorflow.txt \
 && /opt/tensorflow/bin/python /usr/local/share/tfdoctor/strip.py /opt/tensorflow/lib/python3.10/site-packages \
 && rm -rf /opt/tensorflow/lib/python3.10/site-packages/clang \
      /opt/tensorflow/lib/python3.10/site-packages/tensorflow/include

# The runtime image has no ptxas and no libdevice, which XLA needs.
COPY cuda.txt /usr/local/share/tfdoctor/cuda.txt
RUN /opt/tensorflow/bin/pip install --no-cache-dir --no-deps --require-hashes --requirement /usr/local/share/tfdoctor/cuda.txt \
 && install -d /usr/local/cuda/bin /usr/local/cuda/nvvm \
 && ln -sfn /opt/tensorflow/lib/python3.10/site-packages/nvidia/cuda_nvcc/bin/ptxas /usr/local/cuda/bin/ptxas \
 && ln -sfn /opt/tensorflow/lib/python3.10/site-packages/nvidia/cuda_nvcc/nvvm/libdevice /usr/local/cuda/nvvm/libdevice

RUN (getent passwd 1000 >/dev/null || useradd --create-home --uid 1000 tensorflow) \
 && install -d -o 1000 -g 1000 /workspace
ENV PATH=/opt/tensorflow/bin:$PATH
ENV NVIDIA_VISIBLE_DEVICES=all
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENV NVIDIA_REQUIRE_CUDA="cuda>=12.0"
LABEL org.opencontainers.image.title="TensorFlow 2.17.1 for NVIDIA GPUs" \
      org.opencontainers.image.version="2.17.1" \
      org.opencontainers.image.base.name="nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04" \
      io.tfdoctor.plan="{\"cuda\": \"12.2.2\", \"cudnn\": \"8.9.6.50\", \"python\": \"3.10\", \"recipe\": \"cuda-base\", \"tensorflow\": \"2.17.1\"}" \
      io.tfdoctor.version="VERSION"
USER 1000
WORKDIR /workspace
CMD ["python"]
