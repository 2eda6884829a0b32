# Making the checkout's private virtual environments; sourced by scripts/tfdoctor, scripts/test and .ci/run.
# Nothing here changes an environment variable of the shell that sources it.

say() { printf '%s\n' "$*" >&2; }

# Whether a command is a Python of 3.10 or newer that runs (pyenv's shims for others are there and do not).
_is_new_enough() {
  command -v "$1" >/dev/null && "$1" -I -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null
}

# Prints the Python to make environments with: the newest on PATH that can. Says what is missing otherwise.
find_python() {
  local name incapable=
  for name in python3.14 python3.13 python3.12 python3.11 python3.10 python3; do
    _is_new_enough "$name" || continue
    if "$name" -I -c 'import venv, ensurepip' 2>/dev/null; then
      command -v "$name"
      return
    fi
    incapable=$name
  done
  if [[ -z $incapable ]]; then
    say "tfdoctor needs Python 3.10 or newer on PATH, and there is none."
  elif command -v apt-get >/dev/null; then
    say "$incapable cannot make virtual environments yet. This brings what it lacks:"
    say
    say "    sudo apt-get install $incapable-venv"
  else
    say "$incapable cannot make virtual environments: its modules venv and ensurepip are missing."
  fi
  return 3
}

# Runs pip of an environment, and shows what it printed only where it fails. The user's own pip settings (index,
# proxy, certificates) hold; those that would put the packages somewhere else, or take modules from somewhere
# else, do not.
pip_of() {
  local folder=$1 output
  shift
  output=$(env -u PYTHONPATH -u PYTHONHOME -u PIP_TARGET -u PIP_PREFIX -u PIP_ROOT PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$folder/bin/python" -m pip "$@" 2>&1) && return
  say "$output"
  return 3
}

# Prints what an environment for this checkout has to match; it is written into the environment last of all.
_state() { printf '%s\n%s\n' "$1" "$(<"$1/pyproject.toml")"; }

# Whether the environment FOLDER is whole and made from the checkout ROOT as it is.
is_ready() {
  local root=$1 folder=$2
  [[ -x $folder/bin/python && -f $folder/complete && $(<"$folder/complete") == "$(_state "$root")" ]]
}

# _fill ROOT FOLDER [GROUP]: the steps; stops at the first that fails.
_fill() {
  local root=$1 folder=$2 group=${3-} python
  python=$(find_python) || return
  say "tfdoctor: making a private environment in ${folder##*/} with $("$python" -I -V); once, within a minute …"
  rm -rf -- "$folder" || return 3
  env -u PYTHONPATH -u PYTHONHOME "$python" -m venv "$folder" >&2 || return 3
  pip_of "$folder" install --quiet --editable "$root" || return
  if [[ -n $group ]]; then
    "$folder/bin/python" -I "$root/scripts/dependency_group.py" "$root/pyproject.toml" "$group" \
      >"$folder/requirements.txt" || return 3
    pip_of "$folder" install --quiet --requirement "$folder/requirements.txt" || return
  fi
  _state "$root" >"$folder/complete.part" && mv -- "$folder/complete.part" "$folder/complete"
}

# make_environment ROOT FOLDER [GROUP]: the checkout, editable, with a dependency group of pyproject.toml.
# Quiet where it is there already. An interrupted or outdated one is made anew; of two runs at once one waits.
make_environment() {
  local root=$1 folder=$2 group=${3-} lock status=0
  is_ready "$root" "$folder" && return
  exec {lock}<"$root/scripts"
  if command -v flock >/dev/null; then flock "$lock"; fi
  if ! is_ready "$root" "$folder"; then
    _fill "$root" "$folder" "$group" || status=$?
    if ((status)); then say "tfdoctor: the private environment could not be made; nothing was run."; fi
  fi
  exec {lock}<&-
  return "$status"
}
