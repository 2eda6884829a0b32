# tfdoctor in an image: it examines what is mounted into it, and the driver if the container gets GPUs.
#
#   docker build --file dockerfiles/tfdoctor.Dockerfile --tag tfdoctor .
#   docker run --rm --interactive tfdoctor diagnose - < train.log
#   docker run --rm --volume "$PWD:/work:ro" tfdoctor lint .
#   docker run --rm --gpus all --volume /opt/tf:/opt/tf:ro tfdoctor check --python /opt/tf
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE} AS build
WORKDIR /src
COPY . .
RUN python3 -m venv --without-pip /opt/tfdoctor \
 && python3 -m pip --python /opt/tfdoctor/bin/python install --no-cache-dir --no-compile .

FROM ${BASE}
COPY --from=build /opt/tfdoctor /opt/tfdoctor
RUN useradd --uid 10001 --no-create-home --home-dir /nonexistent tfdoctor
USER 10001
WORKDIR /work
ENTRYPOINT ["/opt/tfdoctor/bin/tfdoctor"]
CMD ["check"]
