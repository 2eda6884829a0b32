# CUDA and cuDNN come from conda-forge: no wheel has these versions. Only their libraries are taken over.
FROM mambaorg/micromamba:1.5.8 AS cuda
RUN CONDA_OVERRIDE_CUDA=10.0 micromamba create --yes --prefix /tmp/cuda --override-channels \
      --channel conda-forge cudatoolkit=10.0 cudnn=7.6 \
 && install -d /tmp/libraries \
 && cp -a /tmp/cuda/lib/libcu*.so* /tmp/cuda/lib/libnv*.so* /tmp/libraries

# TensorFlow 1.14.0, Python 3.7, CUDA 10.0, cuDNN 7.6 (conda-cuda); made by tfdoctor VERSION.
FROM python:3.7-slim-bookworm
USER 0
ARG DEBIAN_FRONTEND=noninteractive
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_ROOT_USER_ACTION=ignore
ARG SOURCE_DATE_EPOCH=315532800

# Every step ends with settle.sh: two builds of this file give the same files.
COPY settle.sh /usr/local/share/tfdoctor/
COPY --from=cuda /tmp/libraries /opt/cuda/lib
RUN since=$(date +%s.%N) \
 && echo /opt/cuda/lib >/etc/ld.so.conf.d/tfdoctor-cuda.conf \
 && ldconfig \
 && sh /usr/local/share/tfdoctor/settle.sh "$since"

COPY tools.txt /usr/local/share/tfdoctor/tools.txt
RUN since=$(date +%s.%N) \
 && python3 -m venv /opt/tensorflow \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes --requirement /usr/local/share/tfdoctor/tools.txt \
 && sh /usr/local/share/tfdoctor/settle.sh "$since" /opt/tensorflow/bin/python 1000 /opt/tensorflow

ARG SOURCE_DATE_EPOCH=1560902400
COPY tensorflow.txt strip.py /usr/local/share/tfdoctor/
RUN since=$(date +%s.%N) \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes --no-build-isolation \
      --requirement /usr/local/share/tfdoctor/tensorflow.txt \
 && /opt/tensorflow/bin/python /usr/local/share/tfdoctor/strip.py /opt/tensorflow/lib/python3.7/site-packages \
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
LABEL org.opencontainers.image.title="TensorFlow 1.14.0 for NVIDIA GPUs" \
      org.opencontainers.image.description="Python 3.7, CUDA 10.0, cuDNN 7.6" \
      org.opencontainers.image.version="1.14.0" \
      org.opencontainers.image.created="2019-06-19T00:00:00Z" \
      org.opencontainers.image.source="https://github.com/tensorflow/tensorflow" \
      org.opencontainers.image.revision="v1.14.0" \
      org.opencontainers.image.base.name="python:3.7-slim-bookworm" \
      io.tfdoctor.plan="{\"cuda\": \"10.0\", \"cudnn\": \"7.6\", \"python\": \"3.7\", \"recipe\": \"conda-cuda\", \"tensorflow\": \"1.14.0\"}" \
      io.tfdoctor.version="VERSION"
USER 1000
WORKDIR /workspace
CMD ["python"]
