# TensorFlow 2.4.3, Python 3.6, CUDA 11.0.3, cuDNN 8.0.4.30 (official); made by tfdoctor VERSION.
FROM tensorflow/tensorflow:2.4.3-gpu
USER 0
ARG DEBIAN_FRONTEND=noninteractive
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_ROOT_USER_ACTION=ignore
ARG SOURCE_DATE_EPOCH=1628553600

# Every step ends with settle.sh: two builds of this file give the same files.
COPY settle.sh /usr/local/share/tfdoctor/
# The key of NVIDIA's apt lists is retired, so that apt-get update would fail.
RUN rm -f /etc/apt/sources.list.d/cuda*.list /etc/apt/sources.list.d/nvidia-ml.list \
 && touch -cd "@$SOURCE_DATE_EPOCH" /etc /etc/apt/sources.list.d
# TensorFlow is in the image: the first line changes nothing then. The second one holds what stands beside it.
COPY release.txt tensorflow.txt /usr/local/share/tfdoctor/
RUN since=$(date +%s.%N) \
 && python3 -m pip install --no-cache-dir --no-compile --no-deps --require-hashes --requirement /usr/local/share/tfdoctor/release.txt \
 && python3 -m pip install --no-cache-dir --no-compile --no-deps --require-hashes --ignore-installed \
      --requirement /usr/local/share/tfdoctor/tensorflow.txt \
 && sh /usr/local/share/tfdoctor/settle.sh "$since" python3

COPY sbom.cdx.json /usr/local/share/tfdoctor/
# A home and a cache that every user may write to, whoever --user names.
RUN since=$(date +%s.%N) \
 && (getent passwd 1000 >/dev/null || useradd --no-log-init --no-create-home --home-dir /home/user --uid 1000 tensorflow) \
 && install -d -m 1777 /home/user /var/cache/cuda \
 && install -d -o 1000 -g 1000 /workspace \
 && touch -cd "@$SOURCE_DATE_EPOCH" /usr/local/share /usr/local/share/tfdoctor /usr/local/share/tfdoctor/* \
 && sh /usr/local/share/tfdoctor/settle.sh "$since"
ENV PATH=/home/user/.local/bin:$PATH
ENV HOME=/home/user
ENV CUDA_CACHE_PATH=/var/cache/cuda
ENV CUDA_CACHE_MAXSIZE=2147483648
ENV NVIDIA_VISIBLE_DEVICES=all
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENV NVIDIA_REQUIRE_CUDA="cuda>=11.0"
LABEL org.opencontainers.image.title="TensorFlow 2.4.3 for NVIDIA GPUs" \
      org.opencontainers.image.description="Python 3.6, CUDA 11.0.3, cuDNN 8.0.4.30" \
      org.opencontainers.image.version="2.4.3" \
      org.opencontainers.image.created="2021-08-10T00:00:00Z" \
      org.opencontainers.image.source="https://github.com/tensorflow/tensorflow" \
      org.opencontainers.image.revision="v2.4.3" \
      org.opencontainers.image.base.name="tensorflow/tensorflow:2.4.3-gpu" \
      io.tfdoctor.plan="{\"cuda\": \"11.0.3\", \"cudnn\": \"8.0.4.30\", \"python\": \"3.6\", \"recipe\": \"official\", \"tensorflow\": \"2.4.3\"}" \
      io.tfdoctor.version="VERSION"
USER 1000
WORKDIR /workspace
CMD ["python3"]
