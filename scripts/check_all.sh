#!/usr/bin/env bash
# The quick checks of the tree: format, floors, sizes, conditionals, quotes in docs; with --tidy also clang-tidy over the release build.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "== format"
git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -r clang-format --dry-run --Werror
for check in layers sizes conditionals quotes; do
  echo "== $check"
  python3 "scripts/check_$check.py"
done

if [[ "${1:-}" == --tidy ]]; then
  echo "== clang-tidy"
  cmake --preset release >/dev/null
  git ls-files 'src/*.cpp' | grep -v '/cuda' |
    xargs -P "$(nproc)" -n 4 clang-tidy -p build/release --quiet --warnings-as-errors='*' \
      --extra-arg=-Wno-unknown-warning-option 2>/dev/null
fi
