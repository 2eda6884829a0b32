# TensorFlow 1.15.5, Python 3.8, CUDA 12.1.0, cuDNN 8.8.1.3 (ngc); made by tfdoctor VERSION.
FROM nvcr.io/nvidia/tensorflow:23.03-tf1-py3
USER 0
ARG DEBIAN_FRONTEND=noninteractive
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_ROOT_USER_ACTION=ignore
COPY requirements.txt /usr/local/share/tfdoctor/
RUN python3 -m pip install --no-cache-dir \
      --requirement /usr/local/share/tfdoctor/requirements.txt
RUN (getent passwd 1000 >/dev/null || useradd --create-home --uid 1000 tensorflow) \
 && install -d -o 1000 -g 1000 /workspace
ENV NVIDIA_VISIBLE_DEVICES=all
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
LABEL org.opencontainers.image.title="TensorFlow 1.15.5 for NVIDIA GPUs" \
      org.opencontainers.image.version="1.15.5" \
      org.opencontainers.image.base.name="nvcr.io/nvidia/tensorflow:23.03-tf1-py3" \
      io.tfdoctor.plan="{\"cuda\": \"12.1.0\", \"cudnn\": \"8.8.1.3\", \"python\": \"3.8\", \"recipe\": \"ngc\", \"tensorflow\": \"1.15.5\"}" \
      io.tfdoctor.version="VERSION"
USER 1000
WORKDIR /workspace
CMD ["python3"]
