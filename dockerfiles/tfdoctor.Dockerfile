# tfdoctor in an image: it examines what is mounted into it, and the driver if the container gets GPUs.
#
#   docker build --file dockerfiles/tfdoctor.Dockerfile --tag tfdoctor .
#   docker run --rm --interactive tfdoctor diagnose - < train.log
#   docker run --rm --volume "$PWD:/work:ro" tfdoctor lint .
#   docker run --rm --gpus all --volume /opt/tf:/opt/tf:ro tfdoctor check --python /opt/tf
#
# The image has only the files of these Debian packages: no package manager, no compiler, no root.
ARG BASE=debian:bookworm-slim
FROM ${BASE} AS build
ENV DEBIAN_FRONTEND=noninteractive
RUN command -v /usr/bin/python3 >/dev/null && /usr/bin/python3 -m pip --version >/dev/null 2>&1 \
 || { apt-get update && apt-get install -y --no-install-recommends python3 python3-pip; }
WORKDIR /src
COPY . .
RUN /usr/bin/python3 -m pip install --no-cache-dir --no-compile --disable-pip-version-check --root-user-action ignore \
      --target /image/opt/tfdoctor . \
 && find /image/opt/tfdoctor -name tests -path '*/site-packages/*' -prune -exec rm -rf {} +
RUN mkdir -p /image/etc /image/tmp /image/work /image/usr/bin /image/usr/lib /image/usr/lib64 /image/usr/sbin \
 && for name in bin lib lib64 sbin; do ln -s "usr/$name" "/image/$name"; done \
 && dpkg -L base-files dash libc6 libbz2-1.0 libcrypt1 libexpat1 libffi8 libgcc-s1 liblzma5 libssl3 libstdc++6 libuuid1 zlib1g \
      python3-minimal python3.11-minimal libpython3.11-minimal libpython3.11-stdlib ca-certificates libc-bin \
    | grep -Ev '^/usr/share/(doc|man|locale|lintian|bash-completion|bug)|^/\.$|/(gconv|test|tests|idlelib|ensurepip|lib2to3|pydoc_data)/|^/(bin|lib|lib64|sbin|tmp)$' \
    | while read -r name; do if [ -f "$name" ] || [ -L "$name" ]; then echo "$name"; fi; done \
    | tar --create --absolute-names --no-recursion --files-from - \
    | tar --extract --absolute-names --keep-directory-symlink --transform 's,^/,/image/,S' \
 && printf 'root:x:0:0::/:/bin/sh\ntfdoctor:x:10001:10001::/tmp:/bin/sh\n' >/image/etc/passwd \
 && printf 'root:x:0:\ntfdoctor:x:10001:\n' >/image/etc/group \
 && chmod 1777 /image/tmp && ldconfig -r /image

FROM scratch
COPY --from=build /image /
ENV PYTHONPATH=/opt/tfdoctor PYTHONDONTWRITEBYTECODE=1 LANG=C.UTF-8 TFDOCTOR_CALLED=tfdoctor
USER 10001:10001
WORKDIR /work
ENTRYPOINT ["/usr/bin/python3", "-m", "tfdoctor"]
CMD ["check"]
