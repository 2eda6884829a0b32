# TensorFlow 2.10.1, Python 3.10, CUDA 11.8, cuDNN 8.6.0.163 (pip-cuda); made by tfdoctor VERSION.
FROM python:3.10-slim-bookworm
USER 0
ARG DEBIAN_FRONTEND=noninteractive
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_ROOT_USER_ACTION=ignore
ARG PIP_INDEX_URL=https://mirror.example/simple/
ARG PIP_CERT=/usr/local/share/tfdoctor/ca.crt
COPY ca.crt /usr/local/share/tfdoctor/ca.crt
COPY tools.txt /usr/local/share/tfdoctor/tools.txt
RUN python3 -m venv /opt/tensorflow \
 && /opt/tensorflow/bin/pip install --no-cache-dir --no-deps --require-hashes --requirement /usr/local/share/tfdoctor/tools.txt

# The largest part first: it changes least.
COPY cuda.txt strip.py /usr/local/share/tfdoctor/
RUN /opt/tensorflow/bin/pip install --no-cache-dir --no-deps --require-hashes --requirement /usr/local/share/tfdoctor/cuda.txt \
 && /opt/tensorflow/bin/python /usr/local/share/tfdoctor/strip.py /opt/tensorflow/lib/python3.10/site-packages/nvidia \
 && rm -rf /opt/tensorflow/lib/python3.10/site-packages/nvidia/*/include \
      /opt/tensorflow/lib/python3.10/site-packages/nvidia/*/lib/*.a \
      /opt/tensorflow/lib/python3.10/site-packages/nvidia/cublas/lib/libnvblas.so.* \
      /opt/tensorflow/lib/python3.10/site-packages/nvidia/cuda_nvcc/nvvm/bin \
      /opt/tensorflow/lib/python3.10/site-packages/nvidia/cuda_nvcc/nvvm/lib64 \
      /opt/tensorflow/lib/python3.10/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc*.alt.so.* \
      /opt/tensorflow/lib/python3.10/site-packages/nvidia/cufft/lib/libcufftw.so.* \
      /opt/tensorflow/lib/python3.10/site-packages/nvidia/cusolver/lib/libcusolverMg.so.*

COPY tensorflow.txt /usr/local/share/tfdoctor/tensorflow.txt
RUN /opt/tensorflow/bin/pip install --no-cache-dir --no-deps --require-hashes --no-build-isolation \
      --requirement /usr/local/share/tfdoctor/tensorflow.txt \
 && /opt/tensorflow/bin/python /usr/local/share/tfdoctor/strip.py /opt/tensorflow/lib/python3.10/site-packages \
 && rm -rf /opt/tensorflow/lib/python3.10/site-packages/clang \
      /opt/tensorflow/lib/python3.10/site-packages/tensorflow/include

# The loader finds the libraries through its cache, whatever RUNPATH this TensorFlow has; XLA finds ptxas and
# libdevice below /usr/local/cuda.
RUN printf '%s\n' /opt/tensorflow/lib/python3.10/site-packages/nvidia/cublas/lib \
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
 && ln -s /opt/tensorflow/lib/python3.10/site-packages/nvidia/cuda_nvcc /usr/local/cuda

COPY constraints.txt requirements.txt /usr/local/share/tfdoctor/
RUN /opt/tensorflow/bin/pip install --no-cache-dir --constraint /usr/local/share/tfdoctor/constraints.txt \
      --requirement /usr/local/share/tfdoctor/requirements.txt
RUN (getent passwd 1000 >/dev/null || useradd --create-home --uid 1000 tensorflow) \
 && install -d -o 1000 -g 1000 /workspace
ENV PATH=/opt/tensorflow/bin:$PATH
ENV NVIDIA_VISIBLE_DEVICES=all
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENV NVIDIA_REQUIRE_CUDA="cuda>=11.0"
LABEL org.opencontainers.image.title="TensorFlow 2.10.1 for NVIDIA GPUs" \
      org.opencontainers.image.version="2.10.1" \
      org.opencontainers.image.base.name="python:3.10-slim-bookworm" \
      io.tfdoctor.plan="{\"cuda\": \"11.8\", \"cudnn\": \"8.6.0.163\", \"python\": \"3.10\", \"recipe\": \"pip-cuda\", \"tensorflow\": \"2.10.1\"}" \
      io.tfdoctor.version="VERSION"
USER 1000
WORKDIR /workspace
CMD ["python"]
