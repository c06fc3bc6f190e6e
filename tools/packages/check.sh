#!/usr/bin/env bash
# Installs the packages in dist/ into fresh, minimal Debians, and asks there what each command
# answers about the demonstration's recording: the answers must equal this host's. Needs root.
set -eu
cd "$(dirname "$0")/../.."
export PATH="$PWD/.venv/bin:$PATH"
root=$PWD/target/packages/roots
demo=samples/recordings/demo.data
say() { echo "packages: $*"; }
command -v mmdebstrap >/dev/null || { say "mmdebstrap is missing: apt-get install mmdebstrap" >&2; exit 1; }

questions=('hist --json' 'stages --json' 'flame --offcpu -o -')
mkdir -p "$root"
for i in "${!questions[@]}"; do
  fusetools ${questions[i]} -i "$demo" >"$root/expected.$i" 2>/dev/null
done

# COMMAND: asks in the root $folder; the answers must equal this host's.
asked() {
  for i in "${!questions[@]}"; do
    inside $1 ${questions[i]} -i /demo.data >"$root/answer.$i" 2>"$root/errors" ||
      { cat "$root/errors" >&2; exit 1; }
    sed 's#/demo.data#demo.data#g' "$root/answer.$i" >"$root/answer"
    sed "s#$demo#demo.data#g" "$root/expected.$i" | cmp "$root/answer" - ||
      { say "$suite: $1 ${questions[i]} differs from this host's" >&2; exit 1; }
  done
  inside $1 doctor >"$root/doctor" 2>&1 || true
  grep -q '^This host' "$root/doctor" || { cat "$root/doctor" >&2; exit 1; }
}
inside() {
  unshare --mount sh -c 'mount -t proc proc "$0/proc"; exec chroot "$0" "$@"' "$folder" "$@"
}

for suite in ${*:-bullseye bookworm trixie}; do
  folder=$root/$suite
  rm -rf "$folder"
  say "$suite: a minimal system"
  mmdebstrap --quiet --variant minbase --include python3,python3-venv,man-db "$suite" "$folder" \
    >"$root/$suite.log" 2>&1 || { tail -n 20 "$root/$suite.log" >&2; exit 1; }
  cp "$demo" "$folder/demo.data"
  cp dist/*_amd64.deb "$folder/fusetools.deb"
  mkdir "$folder/wheels"
  cp dist/*manylinux*x86_64.whl target/packages/bundled/*.whl "$folder/wheels/"
  say "$suite: fusetools.deb"
  inside apt-get -qq install -y --no-install-recommends /fusetools.deb >"$root/$suite.log" 2>&1 ||
    { tail -n 20 "$root/$suite.log" >&2; exit 1; }
  asked fusetools
  inside man fusetools-hist >/dev/null
  inside apt-get -qq purge -y fusetools >"$root/$suite.log" 2>&1
  [ ! -e "$folder/usr/lib/fusetools" ] || { say "$suite: purge left /usr/lib/fusetools" >&2; exit 1; }
  say "$suite: the wheel"
  inside python3 -m venv /venv
  inside /venv/bin/pip install --quiet --no-index --find-links /wheels fusetools-trace
  asked /venv/bin/fusetools
  say "$suite: the single file"
  cp dist/fusetools-*-x86_64.pyz "$folder/fusetools.pyz"
  asked "python3 /fusetools.pyz"
  rm -rf "$folder"
done
say "all equal"
