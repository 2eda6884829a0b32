# TensorFlow 2.4.4, Python 3.6, CUDA 11.0.3, cuDNN 8.0.4.30 (official); made by tfdoctor VERSION.
FROM tensorflow/tensorflow:2.4.4-gpu
USER 0
ARG DEBIAN_FRONTEND=noninteractive
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_ROOT_USER_ACTION=ignore
# The key of NVIDIA's apt lists is retired, so that apt-get update would fail.
RUN rm -f /etc/apt/sources.list.d/cuda*.list /etc/apt/sources.list.d/nvidia-ml.list
# TensorFlow is in the image: the first line changes nothing then. The second one holds what stands beside it.
COPY release.txt tensorflow.txt /usr/local/share/tfdoctor/
RUN python3 -m pip install --no-cache-dir --no-deps --require-hashes --requirement /usr/local/share/tfdoctor/release.txt \
 && python3 -m pip install --no-cache-dir --no-deps --require-hashes --ignore-installed \
      --requirement /usr/local/share/tfdoctor/tensorflow.txt

RUN (getent passwd 1000 >/dev/null || useradd --create-home --uid 1000 tensorflow) \
 && install -d -o 1000 -g 1000 /workspace
ENV NVIDIA_VISIBLE_DEVICES=all
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENV NVIDIA_REQUIRE_CUDA="cuda>=11.0"
LABEL org.opencontainers.image.title="TensorFlow 2.4.4 for NVIDIA GPUs" \
      org.opencontainers.image.version="2.4.4" \
      org.opencontainers.image.base.name="tensorflow/tensorflow:2.4.4-gpu" \
      io.tfdoctor.plan="{\"cuda\": \"11.0.3\", \"cudnn\": \"8.0.4.30\", \"python\": \"3.6\", \"recipe\": \"official\", \"tensorflow\": \"2.4.4\"}" \
      io.tfdoctor.version="VERSION"
USER 1000
WORKDIR /workspace
CMD ["python3"]
