#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fetches the Debian 12 (bookworm) packages of packages.txt, unpacks them without installing
# anything, and makes the corpus of them.
#
#   usage: sh prepare_corpus.sh WORK [PACKAGE...]
#
# With packages named, only these are fetched: enough to try the scripts.
# Needs: apt-get with current package lists, dpkg, python3, col (bsdextrautils), xz.
# Makes: WORK/corpus/{train,valid}.DOMAIN.txt.xz, WORK/corpus/sources.json; WORK/deb and
#        WORK/unpacked hold the packages and are taken as they are by a later run.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
work=${1:?usage: prepare_corpus.sh WORK [PACKAGE...]}
shift
mkdir -p "$work/deb" "$work/unpacked" "$work/corpus"
cd "$work"

[ $# -gt 0 ] || set -- $(sed 's/#.*//' "$here/packages.txt")

# The first file of a package in deb/; fails when there is none.
archive_of() {
    for file in deb/"$1"_*.deb; do
        [ -f "$file" ] && echo "$file" && return
    done
    return 1
}

fetch() {
    archive_of "$1" >/dev/null || (cd deb && apt-get download -q "$1")
}

# Unpacks aside and renames, so that an interrupted run leaves no half package.
unpack() {
    [ -d "unpacked/$1" ] && return
    rm -rf "unpacked/.$1"
    mkdir "unpacked/.$1"
    dpkg -x "$(archive_of "$1")" "unpacked/.$1"
    mv "unpacked/.$1" "unpacked/$1"
}

for package in "$@"; do
    fetch "$package"
    unpack "$package"
done
python3 "$here/build_corpus.py" unpacked corpus
for file in corpus/*.txt; do
    echo "$file"
done | xargs -P 2 -n 1 xz -T1 -6e -f
ls -l corpus
