#!/usr/bin/env bash
# Collects what runs on a GPU out of a build folder, for a machine that has a GPU but not the packages to build:
#   scripts/gpu_bundle.sh BUILD... TO     TO is a folder, or an archive by its name: bundle.tar.xz
# Of a program in several build folders the first one counts.
# TO/bin has the programs, stripped; TO/lib the shared libraries that they load, without those of the C and C++ compilers
# and of the driver; TO/commit, TO/source_dir and TO/program_path say where they come from. Then, on the other machine, in the root of a
# checkout: BUILD=TO scripts/gpu_check.sh test sanitize measure
set -euo pipefail

readonly MOST_MIB=100
if (($# < 2)); then
  echo "usage: $0 BUILD... TO" >&2
  exit 2
fi
builds=("${@:1:$#-1}")
archive=
to=${*: -1}
if [[ $to == *.tar.* ]]; then
  archive=$(realpath -m "$to")
  to=$(mktemp -d)/bundle
  trap 'rm -rf "$(dirname "$to")"' EXIT
fi
sources=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "${builds[0]}/CMakeCache.txt")
rm -rf "$to"
mkdir -p "$to/bin" "$to/lib"

mapfile -t programs < <(
  find "${builds[@]}" -type f -executable -not -path '*/CMakeFiles/*' \
    \( -name switchyard -o -name 'bench_gpu_*' -o -name 'test_*cuda*' -o -name test_device \))
((${#programs[@]} > 0)) || { echo "$0: no programs in ${builds[*]}; build them first" >&2; exit 1; }
for program in "${programs[@]}"; do
  stripped=$to/bin/$(basename "$program")
  [[ -e $stripped ]] || strip -o "$stripped" "$program"
done

# Versions of these on the other machine are at least as new, or it could not run PyTorch.
readonly SYSTEM='/(ld-linux|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcuda)[.-]'
ldd "${programs[@]}" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | grep -vE "$SYSTEM" |
  xargs -r cp -L -t "$to/lib"
strip --strip-unneeded "$to"/lib/*.so* 2>/dev/null || true

git -C "$sources" describe --always --dirty --exclude '*' > "$to/commit" 2>/dev/null || echo unknown > "$to/commit"
echo "$sources" > "$to/source_dir"
printf '%s\n' "${programs[@]}" | grep -m1 '/switchyard$' | xargs -r realpath > "$to/program_path" || true
mib=$(($(du -sk "$to" | cut -f1) / 1024))
echo "$to: $(find "$to/bin" -type f | wc -l) programs, $(find "$to/lib" -type f | wc -l) libraries, $mib MiB"
if [[ -n $archive ]]; then
  tar -C "$(dirname "$to")" -caf "$archive" bundle
  echo "$archive: $(($(stat -c %s "$archive") / 1048576)) MiB"
fi
((mib <= MOST_MIB)) || { echo "$0: more than $MOST_MIB MiB" >&2; exit 1; }
