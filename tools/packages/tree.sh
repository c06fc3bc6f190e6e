#!/usr/bin/env bash
# Usage: tree.sh PYTHON WHEEL LIB FOLDER: puts fusetools as a system package installs it into
# FOLDER. The package brings the Python packages that it needs in its own folder LIB, since those
# of older distributions are too old; Python itself is the distribution's.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=$1 wheel=$2 lib=$3 folder=$4

mkdir -p "$folder$lib" "$folder/usr/bin" "$folder/usr/share"
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
for part in "$wheel" "$(dirname "$0")"/../../target/packages/bundled/*.whl; do
  python3 -m zipfile -e "$part" "$unpacked"
done
mv "$unpacked"/*.data/data/share/man "$folder/usr/share/"
rm -r "$unpacked"/*.data
mv "$unpacked"/* "$folder$lib/"
sed "s#@PYTHON@#$python#; s#@LIB@#$lib#" "$here/fusetools.in" >"$folder/usr/bin/fusetools"
chmod -R u=rwX,go=rX "$folder"
chmod 755 "$folder/usr/bin/fusetools"
find "$folder$lib" -name '*.so' -exec chmod 755 {} +
gzip -9n "$folder"/usr/share/man/man1/*.1

completion() { # SHELL FILE
  mkdir -p "$(dirname "$folder$2")"
  _FUSETOOLS_COMPLETE=$1_source fusetools >"$folder$2"
}
completion bash /usr/share/bash-completion/completions/fusetools
completion zsh /usr/share/zsh/vendor-completions/_fusetools
completion fish /usr/share/fish/vendor_completions.d/fusetools.fish
