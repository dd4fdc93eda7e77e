# Shared by the scripts beside it: sourced, not run.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi
say() { printf '%s==> %s%s\n' "$bold" "$*" "$plain"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Folders with cuda.h and nvrtc.h, separated by ';': of the toolkit where there is one, else of the PyPI wheels.
cuda_includes() {
  local toolkit
  for toolkit in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
    if [ -n "$toolkit" ] && [ -f "$toolkit/include/cuda.h" ] && [ -f "$toolkit/include/nvrtc.h" ]; then
      echo "$toolkit/include"
      return
    fi
  done
  local folders
  folders=$(find "$root/.venv" \( -name cuda.h -o -name nvrtc.h \) -path '*nvidia*' -printf '%h\n' 2>/dev/null | sort -u | paste -sd';')
  [ -n "$folders" ] || die "cuda.h and nvrtc.h were not found; run scripts/install-dependencies"
  echo "$folders"
}

# Lathe finds NVRTC and nvdisasm in the wheels through this. Called again by scripts that may have made the folder.
use_venv() { if [ -d "$root/.venv" ]; then export VIRTUAL_ENV="$root/.venv"; fi; }
use_venv

# build PRESET [targets]: configures build/PRESET, and builds the targets (all without any).
build() {
  local preset=$1 targets=()
  shift
  [ $# -eq 0 ] || targets=(--target "$@")
  cmake --preset "$preset" "-DLATHE_CUDA_INCLUDE=$(cuda_includes)" >"/tmp/lathe-configure-$preset.log" 2>&1 ||
    { cat "/tmp/lathe-configure-$preset.log"; die "configuring build/$preset failed"; }
  cmake --build "build/$preset" --parallel "$(nproc)" "${targets[@]}"
}
