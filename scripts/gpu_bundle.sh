#!/usr/bin/env bash
# Collects what runs on a GPU out of a build folder, for a machine that has a GPU but not the packages to build:
#   scripts/gpu_bundle.sh BUILD TO        TO is a folder, or an archive by its name: bundle.tar.xz
# TO/bin has the programs, stripped; TO/lib the shared libraries that they load, without those of the C and C++ compilers
# and of the driver; TO/commit and TO/source_dir say where they come from. Then, on the other machine, in the root of a
# checkout: BUILD=TO scripts/gpu_check.sh test sanitize measure
set -euo pipefail

readonly MOST_MIB=50
if (($# != 2)); then
  echo "usage: $0 BUILD TO" >&2
  exit 2
fi
build=$(realpath "$1")
archive=
to=$2
if [[ $2 == *.tar.* ]]; then
  archive=$(realpath -m "$2")
  to=$(mktemp -d)/bundle
  trap 'rm -rf "$(dirname "$to")"' EXIT
fi
root=$(realpath "$(dirname "$0")/..")
rm -rf "$to"
mkdir -p "$to/bin" "$to/lib"

mapfile -t programs < <(
  find "$build" -type f -executable \( -name switchyard -o -name 'bench_gpu_*' -o -name 'test_*cuda*' -o -name test_device \) \
    -not -path '*/CMakeFiles/*' | sort)
((${#programs[@]} > 0)) || { echo "$0: no programs in $build; build it first" >&2; exit 1; }
for program in "${programs[@]}"; do
  strip -o "$to/bin/$(basename "$program")" "$program"
done

# Versions of these on the other machine are at least as new, or it could not run PyTorch.
readonly SYSTEM='/(ld-linux|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcuda)[.-]'
ldd "${programs[@]}" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | grep -vE "$SYSTEM" |
  xargs -r cp -L -t "$to/lib"
strip --strip-unneeded "$to"/lib/*.so* 2>/dev/null || true

git -C "$root" describe --always --dirty --exclude '*' > "$to/commit" 2>/dev/null || echo unknown > "$to/commit"
echo "$root" > "$to/source_dir"
mib=$(($(du -sk "$to" | cut -f1) / 1024))
echo "$to: ${#programs[@]} programs, $(find "$to/lib" -type f | wc -l) libraries, $mib MiB"
if [[ -n $archive ]]; then
  tar -C "$(dirname "$to")" -caf "$archive" bundle
  echo "$archive: $(($(stat -c %s "$archive") / 1048576)) MiB"
fi
((mib <= MOST_MIB)) || { echo "$0: more than $MOST_MIB MiB" >&2; exit 1; }
