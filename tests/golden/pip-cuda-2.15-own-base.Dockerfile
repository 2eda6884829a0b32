# TensorFlow 2.15.1, Python 3.11, CUDA 12.2, cuDNN 8.9.4.25 (pip-cuda); made by tfdoctor VERSION.
FROM registry.example:5000/base:12
USER 0
ARG DEBIAN_FRONTEND=noninteractive
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_ROOT_USER_ACTION=ignore
ARG SOURCE_DATE_EPOCH=315532800

# Every step ends with settle.sh: two builds of this file give the same files.
COPY settle.sh /usr/local/share/tfdoctor/
# hadolint ignore=DL3008
RUN since=$(date +%s.%N) \
 && apt-get update \
 && apt-get install -y --no-install-recommends python3.11 python3.11-venv \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/ldconfig/aux-cache /var/log/alternatives.log /var/log/apt/* /var/log/dpkg.log \
 && sh /usr/local/share/tfdoctor/settle.sh "$since"
COPY tools.txt /usr/local/share/tfdoctor/tools.txt
RUN since=$(date +%s.%N) \
 && python3.11 -m venv /opt/tensorflow \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes --requirement /usr/local/share/tfdoctor/tools.txt \
 && sh /usr/local/share/tfdoctor/settle.sh "$since" /opt/tensorflow/bin/python 1000 /opt/tensorflow

# The largest part first: it changes least.
COPY cuda.txt strip.py /usr/local/share/tfdoctor/
RUN since=$(date +%s.%N) \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes --requirement /usr/local/share/tfdoctor/cuda.txt \
 && /opt/tensorflow/bin/python /usr/local/share/tfdoctor/strip.py /opt/tensorflow/lib/python3.11/site-packages/nvidia \
 && rm -rf /opt/tensorflow/lib/python3.11/site-packages/nvidia/*/include \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/*/lib/*.a \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/cublas/lib/libnvblas.so.* \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/cuda_nvcc/nvvm/bin \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/cuda_nvcc/nvvm/lib64 \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc*.alt.so.* \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/cufft/lib/libcufftw.so.* \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/curand/lib/libcurand.so.* \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/cusolver/lib/libcusolverMg.so.* \
 && sh /usr/local/share/tfdoctor/settle.sh "$since" /opt/tensorflow/bin/python 1000 /opt/tensorflow

ARG SOURCE_DATE_EPOCH=1709856000
COPY tensorflow.txt /usr/local/share/tfdoctor/tensorflow.txt
RUN since=$(date +%s.%N) \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes --no-build-isolation \
      --requirement /usr/local/share/tfdoctor/tensorflow.txt \
 && /opt/tensorflow/bin/python /usr/local/share/tfdoctor/strip.py /opt/tensorflow/lib/python3.11/site-packages \
 && rm -rf /opt/tensorflow/lib/python3.11/site-packages/clang \
      /opt/tensorflow/lib/python3.11/site-packages/tensorflow/include \
 && sh /usr/local/share/tfdoctor/settle.sh "$since" /opt/tensorflow/bin/python 1000 /opt/tensorflow

# The loader finds the libraries through its cache, whatever RUNPATH this TensorFlow has; XLA finds ptxas and
# libdevice below /usr/local/cuda.
RUN since=$(date +%s.%N) \
 && printf '%s\n' /opt/tensorflow/lib/python3.11/site-packages/nvidia/cublas/lib \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/cuda_cupti/lib \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/cuda_runtime/lib \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/cudnn/lib \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/cufft/lib \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/curand/lib \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/cusolver/lib \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/cusparse/lib \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/nccl/lib \
      /opt/tensorflow/lib/python3.11/site-packages/nvidia/nvjitlink/lib \
      >/etc/ld.so.conf.d/tfdoctor-cuda.conf \
 && ldconfig \
 && ln -s /opt/tensorflow/lib/python3.11/site-packages/nvidia/cuda_nvcc /usr/local/cuda \
 && sh /usr/local/share/tfdoctor/settle.sh "$since"

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
LABEL org.opencontainers.image.title="TensorFlow 2.15.1 for NVIDIA GPUs" \
      org.opencontainers.image.description="Python 3.11, CUDA 12.2, cuDNN 8.9.4.25" \
      org.opencontainers.image.version="2.15.1" \
      org.opencontainers.image.created="2024-03-08T00:00:00Z" \
      org.opencontainers.image.source="https://github.com/tensorflow/tensorflow" \
      org.opencontainers.image.revision="v2.15.1" \
      org.opencontainers.image.base.name="registry.example:5000/base:12" \
      io.tfdoctor.plan="{\"cuda\": \"12.2\", \"cudnn\": \"8.9.4.25\", \"python\": \"3.11\", \"recipe\": \"pip-cuda\", \"tensorflow\": \"2.15.1\"}" \
      io.tfdoctor.version="VERSION"
USER 1000
WORKDIR /workspace
CMD ["python"]
