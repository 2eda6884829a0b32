# TensorFlow 1.14.0, Python 3.6, CUDA 10.0, cuDNN 7.4.1.5 (official); made by tfdoctor VERSION.
FROM tensorflow/tensorflow:1.14.0-gpu-py3
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
LABEL org.opencontainers.image.title="TensorFlow 1.14.0 for NVIDIA GPUs" \
      org.opencontainers.image.version="1.14.0" \
      org.opencontainers.image.base.name="tensorflow/tensorflow:1.14.0-gpu-py3" \
      io.tfdoctor.plan="{\"cuda\": \"10.0\", \"cudnn\": \"7.4.1.5\", \"python\": \"3.6\", \"recipe\": \"official\", \"tensorflow\": \"1.14.0\"}" \
      io.tfdoctor.version="VERSION"
USER 1000
WORKDIR /workspace
CMD ["python3"]
