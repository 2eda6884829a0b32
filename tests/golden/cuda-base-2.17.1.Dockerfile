# TensorFlow 2.17.1, Python 3.10, CUDA 12.2.2, cuDNN 8.9.6.50 (cuda-base); made by tfdoctor VERSION.
FROM nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04
USER 0
ARG DEBIAN_FRONTEND=noninteractive
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_ROOT_USER_ACTION=ignore
ARG SOURCE_DATE_EPOCH=1729728000

# Every step ends with settle.sh: two builds of this file give the same files.
COPY settle.sh /usr/local/share/tfdoctor/
# NVIDIA's apt lists are removed: their key may be retired, and nothing is installed from them.
# hadolint ignore=DL3008
RUN since=$(date +%s.%N) \
 && rm -f /etc/apt/sources.list.d/cuda*.list /etc/apt/sources.list.d/nvidia-ml.list \
 && apt-get update \
 && apt-get install -y --no-install-recommends python3.10 python3.10-venv \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/ldconfig/aux-cache /var/log/alternatives.log /var/log/apt/* /var/log/dpkg.log \
 && sh /usr/local/share/tfdoctor/settle.sh "$since"
COPY tools.txt /usr/local/share/tfdoctor/tools.txt
RUN since=$(date +%s.%N) \
 && python3.10 -m venv /opt/tensorflow \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes --requirement /usr/local/share/tfdoctor/tools.txt \
 && sh /usr/local/share/tfdoctor/settle.sh "$since" /opt/tensorflow/bin/python 1000 /opt/tensorflow

COPY tensorflow.txt strip.py /usr/local/share/tfdoctor/
RUN since=$(date +%s.%N) \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes --no-build-isolation \
      --requirement /usr/local/share/tfdoctor/tensorflow.txt \
 && /opt/tensorflow/bin/python /usr/local/share/tfdoctor/strip.py /opt/tensorflow/lib/python3.10/site-packages \
 && rm -rf /opt/tensorflow/lib/python3.10/site-packages/clang \
      /opt/tensorflow/lib/python3.10/site-packages/tensorflow/include \
 && sh /usr/local/share/tfdoctor/settle.sh "$since" /opt/tensorflow/bin/python 1000 /opt/tensorflow

# The runtime image has no ptxas and no libdevice, which XLA needs.
COPY cuda.txt /usr/local/share/tfdoctor/cuda.txt
RUN since=$(date +%s.%N) \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes --requirement /usr/local/share/tfdoctor/cuda.txt \
 && install -d /usr/local/cuda/bin /usr/local/cuda/nvvm \
 && ln -sfn /opt/tensorflow/lib/python3.10/site-packages/nvidia/cuda_nvcc/bin/ptxas /usr/local/cuda/bin/ptxas \
 && ln -sfn /opt/tensorflow/lib/python3.10/site-packages/nvidia/cuda_nvcc/nvvm/libdevice /usr/local/cuda/nvvm/libdevice \
 && sh /usr/local/share/tfdoctor/settle.sh "$since" /opt/tensorflow/bin/python 1000 /opt/tensorflow

COPY sbom.cdx.json /usr/local/share/tfdoctor/
# A home and a cache that every user may write to, whoever --user names.
RUN since=$(date +%s.%N) \
 && (getent passwd 1000 >/dev/null || useradd --no-log-init --no-create-home --home-dir /home/user --uid 1000 tensorflow) \
 && install -d -m 1777 /home/user /var/cache/cuda \
 && install -d -o 1000 -g 1000 /workspace \
 && touch -cd "@$SOURCE_DATE_EPOCH" /usr/local/share /usr/local/share/tfdoctor /usr/local/share/tfdoctor/* \
 && sh /usr/local/share/tfdoctor/settle.sh "$since"
ENV PATH=/opt/tensorflow/bin:$PATH
ENV HOME=/home/user
ENV CUDA_CACHE_PATH=/var/cache/cuda
ENV CUDA_CACHE_MAXSIZE=2147483648
ENV NVIDIA_VISIBLE_DEVICES=all
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENV NVIDIA_REQUIRE_CUDA="cuda>=12.0"
LABEL org.opencontainers.image.title="TensorFlow 2.17.1 for NVIDIA GPUs" \
      org.opencontainers.image.description="Python 3.10, CUDA 12.2.2, cuDNN 8.9.6.50" \
      org.opencontainers.image.version="2.17.1" \
      org.opencontainers.image.created="2024-10-24T00:00:00Z" \
      org.opencontainers.image.source="https://github.com/tensorflow/tensorflow" \
      org.opencontainers.image.revision="v2.17.1" \
      org.opencontainers.image.base.name="nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04" \
      io.tfdoctor.plan="{\"cuda\": \"12.2.2\", \"cudnn\": \"8.9.6.50\", \"python\": \"3.10\", \"recipe\": \"cuda-base\", \"tensorflow\": \"2.17.1\"}" \
      io.tfdoctor.version="VERSION"
USER 1000
WORKDIR /workspace
CMD ["python"]
