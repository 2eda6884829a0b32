# Ends a step: all that it changed gets one time, SOURCE_DATE_EPOCH, so that two builds give the same files.
# Arguments: when the step began (seconds since 1970); after pip: the Python that compiles what was installed; for a
# virtual environment: the number of its owner, who may install more, and its folder.
set -e
# Files get the time of the kernel's last tick, which may lie before the clock that the step read.
since=$((${1%.*} - 1)) python=$2 owner=$3 folder=$4

if [ -n "$python" ]; then
  # What is compiled notes the time of its source, and is compiled anew by each program where that is not the same.
  # So is what an import has compiled: its bytes depend on what else that program did.
  find / -xdev -newermt "@$since" -name '*.py' -exec touch -d "@$SOURCE_DATE_EPOCH" {} + -print >/tmp/sources
  find / -xdev -newermt "@$since" -path '*/__pycache__/*.cpython-*.pyc' \
    | sed 's,/__pycache__/\(.*\)\.cpython-[^/]*$,/\1.py,' >>/tmp/sources
  sort -u -o /tmp/sources /tmp/sources
  export PYTHONDONTWRITEBYTECODE=1  # not what this imports
  # From 3.7 on it would note a hash instead, and read every source at each import: a fifth more time for TensorFlow.
  mode="--invalidation-mode timestamp"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 7))' || mode=
  # A source for another Python than this one does not compile: it is left as it is.
  PYTHONHASHSEED=0 "$python" -m compileall -q -f $mode -i /tmp/sources >/dev/null || true
  rm -f /tmp/sources
fi
if [ -n "$owner" ]; then
  chown -Rh --from=0 "$owner" "$folder"
fi
# The loader's second cache notes the number and time of each library's file. It is made empty, not removed: that a file
# of the base is gone would be noted in the layer with the time of its removal.
find /var/cache/ldconfig -newermt "@$since" -name aux-cache -exec truncate -s 0 {} + 2>/dev/null || true
# /etc has the time of the container, in which the engine made files. What cannot be changed is the engine's; so are its
# own two files. These, and what a COPY has just made, would be in this layer only where no second lies between.
find / -xdev ! -path /.dockerenv ! -path /etc/mtab ! -path /usr/local/share ! -path '*/share/tfdoctor*' \( -newermt "@$since" -o -path /etc \) -exec touch -chd "@$SOURCE_DATE_EPOCH" {} + || true
