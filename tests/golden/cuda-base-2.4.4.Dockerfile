# TensorFlow 2.4.4, Python 3.8, CUDA 11.0.3, cuDNN 8.0.5.39 (cuda-base); made by tfdoctor VERSION.
FROM nvidia/cuda:11.0.3-cudnn8-runtime-ubuntu20.04
USER 0
ARG DEBIAN_FRONTEND=noninteractive
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_ROOT_USER_ACTION=ignore
ARG SOURCE_DATE_EPOCH=1635724800

# Every step ends with settle.sh: two builds of this file give the same files.
COPY settle.sh /usr/local/share/tfdoctor/
# NVIDIA's apt lists are removed: their key may be retired, and nothing is installed from them.
# hadolint ignore=DL3008
RUN since=$(date +%s.%N) \
 && rm -f /etc/apt/sources.list.d/cuda*.list /etc/apt/sources.list.d/nvidia-ml.list \
 && apt-get update \
 && apt-get install -y --no-install-recommends python3.8 python3.8-venv \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/ldconfig/aux-cache /var/log/alternatives.log /var/log/apt/* /var/log/dpkg.log \
 && sh /usr/local/share/tfdoctor/settle.sh "$since"
COPY tools.txt /usr/local/share/tfdoctor/tools.txt
RUN since=$(date +%s.%N) \
 && python3.8 -m venv /opt/tensorflow \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes --requirement /usr/local/share/tfdoctor/tools.txt \
 && sh /usr/local/share/tfdoctor/settle.sh "$since" /opt/tensorflow/bin/python 1000 /opt/tensorflow

COPY tensorflow.txt strip.py /usr/local/share/tfdoctor/
RUN since=$(date +%s.%N) \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes --no-build-isolation \
      --requirement /usr/local/share/tfdoctor/tensorflow.txt \
 && /opt/tensorflow/bin/python /usr/local/share/tfdoctor/strip.py /opt/tensorflow/lib/python3.8/site-packages \
 && rm -rf /opt/tensorflow/lib/python3.8/site-packages/tensorflow/include \
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
ENV NVIDIA_REQUIRE_CUDA="cuda>=11.0"
LABEL org.opencontainers.image.title="TensorFlow 2.4.4 for NVIDIA GPUs" \
      org.opencontainers.image.description="Python 3.8, CUDA 11.0.3, cuDNN 8.0.5.39" \
      org.opencontainers.image.version="2.4.4" \
      org.opencontainers.image.created="2021-11-01T00:00:00Z" \
      org.opencontainers.image.source="https://github.com/tensorflow/tensorflow" \
      org.opencontainers.image.revision="v2.4.4" \
      org.opencontainers.image.base.name="nvidia/cuda:11.0.3-cudnn8-runtime-ubuntu20.04" \
      io.tfdoctor.plan="{\"cuda\": \"11.0.3\", \"cudnn\": \"8.0.5.39\", \"python\": \"3.8\", \"recipe\": \"cuda-base\", \"tensorflow\": \"2.4.4\"}" \
      io.tfdoctor.version="VERSION"
USER 1000
WORKDIR /workspace
CMD ["python"]
