# Making the checkout's private virtual environments; sourced by the shell scripts of the project.
# Nothing here changes an environment variable of the shell that sources it.

# Prints the absolute entries of PATH: through another one, a program of the working folder would run. Until it is
# called, scripts call programs with `command -p`, which does not search PATH.
absolute_path() {
  local path=:$PATH:
  while [[ $path =~ :(|[^/:][^:]*): ]]; do path=${path/"${BASH_REMATCH[0]}"/:}; done
  path=${path#:} path=${path%:}
  printf '%s\n' "${path:-/usr/bin:/bin}"
}

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
    if command -v apt-get >/dev/null; then
      say "Where the distribution has one (Debian 12, Ubuntu 22.04 and newer), this brings it:"
      say
      say "    sudo apt-get install python3 python3-venv"
    fi
  elif command -v apt-get >/dev/null; then
    say "$incapable cannot make virtual environments yet. This brings what it lacks:"
    say
    say "    sudo apt-get install $incapable-venv"
  else
    say "$incapable cannot make virtual environments: its modules venv and ensurepip are missing."
  fi
  return 3
}

# Prints where the proxy that pip uses comes from, and nothing if there is none. Its address may have a password in it.
# SETTINGS: of `pip config list`.
_proxy() {
  local name
  if [[ $1 =~ proxy=\'[^\']+\' ]]; then printf "pip's setting" && return; fi
  for name in HTTPS_PROXY https_proxy ALL_PROXY all_proxy; do
    if [[ -n ${!name-} ]]; then printf '%s' "$name" && return; fi
  done
}

# _trouble LINE PROXY: what a line of pip's says of the network, and what to do; nothing where it says nothing of it.
_trouble() {
  local line=$1 proxy=$2 bundle=/etc/ssl/certs/ca-certificates.crt what hint
  case $line in
    *CERTIFICATE_VERIFY_FAILED* | *SSLCertVerificationError* | *'certificate verify failed'*)
      what="the package index shows a certificate that nobody vouches for here: your network has an authority of its own."
      if [[ ! -r $bundle ]]; then bundle=/path/to/authority.pem; fi
      hint="name the file that has it (PEM): PIP_CERT=$bundle $0" ;;
    *'407 '* | *'Proxy Authentication Required'*)
      what="the proxy${proxy:+ of $proxy} wants a user and a password."
      hint="HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT $0" ;;
    *'Name or service not known'* | *'name resolution'* | *'nodename nor servname'* | *NameResolutionError*)
      what="the package index cannot be reached."
      if [[ -z $proxy ]]; then
        what="the package index's name is not known here: there is no network, or only one through a proxy."
        hint="HTTPS_PROXY=http://HOST:PORT $0"
      fi ;;
    *'imed out'* | *TimeoutError*)
      what="the package index does not answer." ;;
    *'connection broken by'* | *'onnection refused'* | *'etwork is unreachable'* | *'o route to host'* \
      | *': Failed to parse: '*) # the last: of a proxy's password with a slash
      what="the package index cannot be reached." ;;
    *) return 0 ;;
  esac
  if [[ -z ${hint-} && -n $proxy ]]; then
    what="${what%.} through the proxy of $proxy."
    hint="is it the right one? HTTPS_PROXY=http://HOST:PORT $0, or without any: env -u HTTPS_PROXY -u https_proxy $0"
  elif [[ -z ${hint-} ]]; then
    hint="is there a proxy? HTTPS_PROXY=http://HOST:PORT $0. A mirror? PIP_INDEX_URL=URL $0"
  fi
  printf '%s\nhint: %s\n' "$what" "$hint"
}

# Reads what pip prints: shows what it is at, where somebody looks on, and names the first trouble with the network at
# once, not when pip has given up. All of it goes into FILE; the last line is FILE.named where something was named.
_watched() {
  local log=$1 proxy=$2 line held= said= waited= status
  : >"$log"
  rm -f -- "$log.named"
  while true; do
    status=0
    IFS= read -r -t 10 line || status=$?
    if ((status > 128)); then # nothing came, which may be the network or a slow disk: whatever it is, it is said
      if [[ -z $waited$said ]]; then
        if [[ -t 2 ]]; then printf '\r\033[K' >&2; fi
        say "tfdoctor: pip has been silent for 10 seconds${proxy:+ (it goes through the proxy of $proxy)}; waiting …"
        waited=yes
      fi
      held+=$line
      continue
    fi
    line=$held$line held=
    if ((status)) && [[ -z $line ]]; then break; fi
    printf '%s\n' "$line" >>"$log"
    if [[ -z $said ]]; then
      said=$(_trouble "$line" "$proxy")
      if [[ -n $said ]]; then
        if [[ -t 2 ]]; then printf '\r\033[K' >&2; fi
        say "tfdoctor: $said"
        : >"$log.named"
      fi
    fi
    if [[ -t 2 && $line =~ ^\ *(Collecting|Downloading|Installing|Building)\ ([^\ ]+) ]]; then
      printf '\r\033[K  %s %.60s' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]##*/}" >&2
    fi
  done
  if [[ -t 2 ]]; then printf '\r\033[K' >&2; fi
}

# Runs pip of an environment. The user's own pip settings (index, proxy, certificates) hold; those that would put the
# packages somewhere else, or take modules from somewhere else, do not. Where it fails and the reason was not named,
# all that it printed is shown.
pip_of() {
  local folder=$1 log=$1/pip.log settings
  local -a clean patience=()
  shift
  clean=(env -u PYTHONPATH -u PYTHONHOME -u PIP_TARGET -u PIP_PREFIX -u PIP_ROOT -u PIP_QUIET PIP_USER=0
    PIP_REQUIRE_VIRTUALENV=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PYTHONUNBUFFERED=1)
  settings=$("${clean[@]}" "$folder/bin/python" -I -m pip config list 2>/dev/null) || settings=
  # pip's own are 15 seconds, six times, for each package: minutes of silence.
  if [[ $settings != *timeout=* ]]; then patience+=(--timeout 8); fi
  if [[ $settings != *retries=* ]]; then patience+=(--retries 2); fi
  "${clean[@]}" "$folder/bin/python" -I -u -m pip "$@" "${patience[@]}" --progress-bar off 2>&1 </dev/null |
    _watched "$log" "$(_proxy "$settings")"
  if ((PIPESTATUS[0] == 0)); then return; fi
  if [[ -e $log.named ]]; then
    say "tfdoctor: pip gave up; what it said stands in $log"
  else
    cat -- "$log" >&2
  fi
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
  local root=$1 folder=$2 group=${3-} python shown=${2#"$1"/}
  python=$(find_python) || return
  say "tfdoctor: making a private environment in $shown with $("$python" -I -V); once, within a minute …"
  rm -rf -- "$folder" || return 3
  env -u PYTHONPATH -u PYTHONHOME "$python" -I -m venv "$folder" >&2 || return 3
  # In two steps: what builds it first, for pip says nothing of the network while it makes a place to build in.
  pip_of "$folder" install 'hatchling>=1.26' editables || return
  pip_of "$folder" install --no-build-isolation --editable "$root" || return
  if [[ -n $group ]]; then
    "$folder/bin/python" -I "$root/scripts/dependency_group.py" "$root/pyproject.toml" "$group" \
      >"$folder/requirements.txt" || return 3
    pip_of "$folder" install --requirement "$folder/requirements.txt" || return
  fi
  _state "$root" >"$folder/complete.part" && mv -- "$folder/complete.part" "$folder/complete"
}

# folder_for ROOT NAME: prints where an environment of this checkout is or can be: in it, else (it may be somebody
# else's, as on a cluster) in the user's cache.
folder_for() {
  local root=$1 folder=$1/$2 cache=${XDG_CACHE_HOME:-${HOME:-}/.cache} sum
  if is_ready "$root" "$folder" || [[ -w $root && (! -e $folder || -w $folder) ]]; then
    printf '%s' "$folder"
    return
  fi
  sum=$(printf '%s' "$root" | cksum)
  folder=$cache/tfdoctor/${2#.}-${sum%% *}
  if ! is_ready "$root" "$folder" && ! mkdir -p -- "$folder" 2>/dev/null; then
    say "tfdoctor: neither $root nor $cache can be written to: there is no place for the private environment."
    say "hint: name a folder that you may write to: XDG_CACHE_HOME=FOLDER $0"
    return 3
  fi
  printf '%s' "$folder"
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
