# CUDA and cuDNN come from conda-forge: no wheel has these versions. Only their libraries are taken over.
FROM mambaorg/micromamba:1.5.8 AS cuda
COPY ca.crt /usr/local/share/tfdoctor/ca.crt
RUN CONDA_OVERRIDE_CUDA=11.0 micromamba create --yes --prefix /tmp/cuda --override-channels \
      --channel conda-forge --ssl-verify /usr/local/share/tfdoctor/ca.crt cudatoolkit=11.0 cudnn=8.0 \
 && install -d /tmp/libraries \
 && cp -a /tmp/cuda/lib/libcu*.so* /tmp/cuda/lib/libnv*.so* /tmp/libraries

# TensorFlow 2.4.4, Python 3.8, CUDA 11.0, cuDNN 8.0 (conda-cuda); made by tfdoctor VERSION.
FROM python:3.8-slim-bookworm
USER 0
ARG DEBIAN_FRONTEND=noninteractive
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_ROOT_USER_ACTION=ignore
ARG SOURCE_DATE_EPOCH=315532800
ARG PIP_CERT=/usr/local/share/tfdoctor/ca.crt

# Every step ends with settle.sh: two builds of this file give the same files.
COPY ca.crt settle.sh /usr/local/share/tfdoctor/
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

ARG SOURCE_DATE_EPOCH=1635724800
COPY tensorflow.txt strip.py /usr/local/share/tfdoctor/
RUN since=$(date +%s.%N) \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes --no-build-isolation \
      --requirement /usr/local/share/tfdoctor/tensorflow.txt \
 && /opt/tensorflow/bin/python /usr/local/share/tfdoctor/strip.py /opt/tensorflow/lib/python3.8/site-packages \
 && sh /usr/local/share/tfdoctor/settle.sh "$since" /opt/tensorflow/bin/python 1000 /opt/tensorflow

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
LABEL org.opencontainers.image.title="TensorFlow 2.4.4 for NVIDIA GPUs" \
      org.opencontainers.image.description="Python 3.8, CUDA 11.0, cuDNN 8.0" \
      org.opencontainers.image.version="2.4.4" \
      org.opencontainers.image.created="2021-11-01T00:00:00Z" \
      org.opencontainers.image.source="https://github.com/tensorflow/tensorflow" \
      org.opencontainers.image.revision="v2.4.4" \
      org.opencontainers.image.base.name="python:3.8-slim-bookworm" \
      io.tfdoctor.plan="{\"cuda\": \"11.0\", \"cudnn\": \"8.0\", \"python\": \"3.8\", \"recipe\": \"conda-cuda\", \"tensorflow\": \"2.4.4\"}" \
      io.tfdoctor.version="VERSION"
USER 1000
WORKDIR /workspace
CMD ["python"]
