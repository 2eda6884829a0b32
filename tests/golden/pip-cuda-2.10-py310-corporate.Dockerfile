# TensorFlow 2.10.1, Python 3.10, CUDA 11.8, cuDNN 8.6.0.163 (pip-cuda); made by tfdoctor VERSION.
FROM python:3.10-slim-bookworm
USER 0
ARG DEBIAN_FRONTEND=noninteractive
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_ROOT_USER_ACTION=ignore
ARG SOURCE_DATE_EPOCH=315532800
ARG PIP_INDEX_URL=https://mirror.example/simple/
ARG PIP_CERT=/usr/local/share/tfdoctor/ca.crt

# Every step ends with settle.sh: two builds of this file give the same files.
COPY ca.crt settle.sh /usr/local/share/tfdoctor/
COPY tools.txt /usr/local/share/tfdoctor/tools.txt
RUN since=$(date +%s.%N) \
 && python3 -m venv /opt/tensorflow \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes --requirement /usr/local/share/tfdoctor/tools.txt \
 && sh /usr/local/share/tfdoctor/settle.sh "$since" /opt/tensorflow/bin/python 1000 /opt/tensorflow

# The largest part first: it changes least.
COPY cuda.txt strip.py /usr/local/share/tfdoctor/
RUN since=$(date +%s.%N) \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes --requirement /usr/local/share/tfdoctor/cuda.txt \
 && /opt/tensorflow/bin/python /usr/local/share/tfdoctor/strip.py /opt/tensorflow/lib/python3.10/site-packages/nvidia \
 && rm -rf /opt/tensorflow/lib/python3.10/site-packages/nvidia/*/lib/*.a \
      /opt/tensorflow/lib/python3.10/site-packages/nvidia/cuda_nvcc/nvvm/bin \
      /opt/tensorflow/lib/python3.10/site-packages/nvidia/cuda_nvcc/nvvm/lib64 \
 && sh /usr/local/share/tfdoctor/settle.sh "$since" /opt/tensorflow/bin/python 1000 /opt/tensorflow

ARG SOURCE_DATE_EPOCH=1668556800
COPY tensorflow.txt /usr/local/share/tfdoctor/tensorflow.txt
RUN since=$(date +%s.%N) \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes --no-build-isolation \
      --requirement /usr/local/share/tfdoctor/tensorflow.txt \
 && /opt/tensorflow/bin/python /usr/local/share/tfdoctor/strip.py /opt/tensorflow/lib/python3.10/site-packages \
 && rm -rf /opt/tensorflow/lib/python3.10/site-packages/clang \
 && sh /usr/local/share/tfdoctor/settle.sh "$since" /opt/tensorflow/bin/python 1000 /opt/tensorflow

# The loader finds the libraries through its cache, whatever RUNPATH this TensorFlow has; XLA finds ptxas and
# libdevice below /usr/local/cuda.
RUN since=$(date +%s.%N) \
 && printf '%s\n' /opt/tensorflow/lib/python3.10/site-packages/nvidia/cublas/lib \
      /opt/tensorflow/lib/python3.10/site-packages/nvidia/cuda_cupti/lib \
      /opt/tensorflow/lib/python3.10/site-packages/nvidia/cuda_nvrtc/lib \
      /opt/tensorflow/lib/python3.10/site-packages/nvidia/cuda_runtime/lib \
      /opt/tensorflow/lib/python3.10/site-packages/nvidia/cudnn/lib \
      /opt/tensorflow/lib/python3.10/site-packages/nvidia/cufft/lib \
      /opt/tensorflow/lib/python3.10/site-packages/nvidia/curand/lib \
      /opt/tensorflow/lib/python3.10/site-packages/nvidia/cusolver/lib \
      /opt/tensorflow/lib/python3.10/site-packages/nvidia/cusparse/lib \
      >/etc/ld.so.conf.d/tfdoctor-cuda.conf \
 && ldconfig \
 && ln -s /opt/tensorflow/lib/python3.10/site-packages/nvidia/cuda_nvcc /usr/local/cuda \
 && sh /usr/local/share/tfdoctor/settle.sh "$since"

COPY constraints.txt requirements.txt /usr/local/share/tfdoctor/
RUN since=$(date +%s.%N) \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-compile --constraint /usr/local/share/tfdoctor/constraints.txt \
      --requirement /usr/local/share/tfdoctor/requirements.txt \
 && sh /usr/local/share/tfdoctor/settle.sh "$since" /opt/tensorflow/bin/python 1000 /opt/tensorflow
COPY sbom.cdx.json /usr/local/share/tfdoctor/
# A home and a cache that every user may write to, whoever --user names.
RUN since=$(date +%s.%N) \
 && (getent passwd 1000 >/dev/null || useradd --no-log-init --no-create-home --home-dir /home/user --uid 1000 tensorflow) \
 && install -d -m 1777 /home/user /var/cache/cuda \
 && install -d -o 1000 -g 1000 /workspace \
 && rm -f /usr/local/share/tfdoctor/ca.crt \
 && touch -cd "@$SOURCE_DATE_EPOCH" /usr/local/share /usr/local/share/tfdoctor /usr/local/share/tfdoctor/* \
 && sh /usr/local/share/tfdoctor/settle.sh "$since"
ENV PATH=/opt/tensorflow/bin:$PATH
ENV HOME=/home/user
ENV CUDA_CACHE_PATH=/var/cache/cuda
ENV CUDA_CACHE_MAXSIZE=2147483648
ENV NVIDIA_VISIBLE_DEVICES=all
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENV NVIDIA_REQUIRE_CUDA="cuda>=11.0"
LABEL org.opencontainers.image.title="TensorFlow 2.10.1 for NVIDIA GPUs" \
      org.opencontainers.image.description="Python 3.10, CUDA 11.8, cuDNN 8.6.0.163" \
      org.opencontainers.image.version="2.10.1" \
      org.opencontainers.image.created="2022-11-16T00:00:00Z" \
      org.opencontainers.image.source="https://github.com/tensorflow/tensorflow" \
      org.opencontainers.image.revision="v2.10.1" \
      org.opencontainers.image.base.name="python:3.10-slim-bookworm" \
      io.tfdoctor.plan="{\"cuda\": \"11.8\", \"cudnn\": \"8.6.0.163\", \"python\": \"3.10\", \"recipe\": \"pip-cuda\", \"tensorflow\": \"2.10.1\"}" \
      io.tfdoctor.version="VERSION"
USER 1000
WORKDIR /workspace
CMD ["python"]
