# TensorFlow 1.15.5, Python 3.8, CUDA 12.1.0, cuDNN 8.8.1.3 (ngc); made by tfdoctor VERSION.
FROM nvcr.io/nvidia/tensorflow:23.03-tf1-py3
USER 0
ARG DEBIAN_FRONTEND=noninteractive
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_ROOT_USER_ACTION=ignore
ARG SOURCE_DATE_EPOCH=1609891200

# Every step ends with settle.sh: two builds of this file give the same files.
COPY settle.sh /usr/local/share/tfdoctor/
COPY requirements.txt /usr/local/share/tfdoctor/
RUN since=$(date +%s.%N) \
 && python3 -m pip install --no-cache-dir --no-compile \
      --requirement /usr/local/share/tfdoctor/requirements.txt \
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
LABEL org.opencontainers.image.title="TensorFlow 1.15.5 for NVIDIA GPUs" \
      org.opencontainers.image.description="Python 3.8, CUDA 12.1.0, cuDNN 8.8.1.3" \
      org.opencontainers.image.version="1.15.5" \
      org.opencontainers.image.created="2021-01-06T00:00:00Z" \
      org.opencontainers.image.base.name="nvcr.io/nvidia/tensorflow:23.03-tf1-py3" \
      io.tfdoctor.plan="{\"cuda\": \"12.1.0\", \"cudnn\": \"8.8.1.3\", \"python\": \"3.8\", \"recipe\": \"ngc\", \"tensorflow\": \"1.15.5\"}" \
      io.tfdoctor.version="VERSION"
USER 1000
WORKDIR /workspace
CMD ["python3"]
