#!/usr/bin/env bash
# Builds what users install into dist/: wheels for four platforms, the source distribution, a single
# file, Debian and RPM packages, an SBOM, checksums. Usage: build.sh [TARGET …], Rust's names of platforms.
set -eu
cd "$(dirname "$0")/../.."
here=tools/packages
targets=("$@")
[ $# -gt 0 ] || targets=({x86_64,aarch64}-unknown-linux-{gnu,musl})
root=$PWD/target/packages
dist=$PWD/dist
mkdir -p "$root" "$dist"
say() { echo "packages: $*"; }

tools=(dpkg-buildpackage:dpkg-dev dh:debhelper rpmbuild:rpm)
for target in "${targets[@]}"; do # debhelper looks into libraries with the architecture's own binutils
  tools+=("${target%%-*}-linux-gnu-objdump:binutils-$(tr _ - <<<"${target%%-*}")-linux-gnu")
done
for tool in "${tools[@]}"; do
  command -v "${tool%%:*}" >/dev/null || [[ " ${needed:-} " == *" ${tool#*:} "* ]] ||
    needed="${needed:-} ${tool#*:}"
done
[ -z "${needed:-}" ] || { say "these are missing: apt-get install$needed" >&2; exit 1; }
if [ ! -e "$root/venv/.done" ]; then
  say "tools into $root/venv"
  python3 -m venv "$root/venv"
  "$root/venv/bin/pip" install --quiet build 'setuptools>=77' 'setuptools-rust>=1.10' \
    cargo-zigbuild ziglang auditwheel shiv cyclonedx-bom click
  touch "$root/venv/.done"
fi
export PATH="$root/venv/bin:$PWD/.venv/bin:$HOME/.cargo/bin:$PATH"
version=$(python3 -c 'import re; print(re.search(r"__version__ = \"(.*)\"", open("fusetools/__init__.py").read())[1])')
export DEBFULLNAME=${DEBFULLNAME:-fusetools developers}
export DEBEMAIL=${DEBEMAIL:-$(git config user.email)}
maintainer="$DEBFULLNAME <$DEBEMAIL>"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

# A copy of what is committed: no build of it touches the working tree.
source=$root/source
rm -rf "$source"
mkdir -p "$source"
git archive HEAD | tar -x -C "$source"

say "source distribution"
(cd "$source" && python -m build --no-isolation --sdist --outdir "$dist" .) >"$root/sdist.log" 2>&1 ||
  { tail -n 20 "$root/sdist.log" >&2; exit 1; }

# Pure Python, for the system packages. Python 3.9 is the oldest that they serve.
rm -rf "$root/bundled"
pip download --quiet --no-deps --only-binary :all: --platform any --python-version 3.9 \
  --dest "$root/bundled" 'click>=8.1' 'tomli>=2.0'

wheel() { # TARGET PLATFORM LINKED: compiles for LINKED, a TARGET with the version of its C library
  say "wheel for $2"
  rustup target add "$1" >"$root/$1.log" 2>&1
  printf '[bdist_wheel]\nplat_name = %s\n' "$2" >"$root/$1.cfg"
  rm -rf "$source/build"
  # musl's own targets link statically, which no extension module can.
  if ! (cd "$source" && DIST_EXTRA_CONFIG="$root/$1.cfg" CARGO="$OLDPWD/$here/cargo" \
      CARGO_TARGET_DIR="$root/cargo" CARGO_BUILD_TARGET="$3" PYO3_CROSS_PYTHON_VERSION=3.9 \
      RUSTFLAGS="$([[ $1 != *musl ]] || echo -C target-feature=-crt-static)" \
      python -m build --no-isolation --wheel --outdir "$dist" .) >>"$root/$1.log" 2>&1; then
    tail -n 20 "$root/$1.log" >&2
    exit 1
  fi
  if [[ $1 == *musl ]]; then # auditwheel would look for musl's C library on this host
    rm -rf "$root/unpacked"
    python -m zipfile -e "$dist"/*"$2".whl "$root/unpacked"
    find "$root/unpacked" -name '*.so' -exec readelf -d {} + |
      sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u >"$root/needed"
    [ "$(cat "$root/needed")" = libc.so ] || { say "$2 needs: $(xargs <"$root/needed")" >&2; exit 1; }
    return
  fi
  auditwheel show "$dist"/*"$2".whl | tr '\n' ' ' | grep -q "\"$2\"" ||
    { say "not a wheel for $2:" >&2; auditwheel show "$dist"/*"$2".whl >&2; exit 1; }
}

system_packages() { # DEBIAN RPM PLATFORM: from the wheel for PLATFORM
  say "packages for $1"
  local folder=$root/$1 file=$dist/fusetools_trace-$version-cp39-abi3-$3.whl
  rm -rf "$folder"
  mkdir -p "$folder/deb" "$folder/rpm"
  "$here/tree.sh" /usr/bin/python3 "$file" /usr/lib/fusetools "$folder/deb/tree"
  cp -r "$here/debian" "$folder/deb/"
  sed -i "s/@MAINTAINER@/$maintainer/" "$folder/deb/debian/control"
  sed 's/^$/./; s/^/ /' LICENSE >"$folder/licence"
  sed -i -e "/@LICENSE@/{r $folder/licence" -e 'd}' "$folder/deb/debian/copyright"
  printf 'fusetools (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$(date -uR -d "@$SOURCE_DATE_EPOCH")" >"$folder/deb/debian/changelog"
  (cd "$folder/deb" && dpkg-buildpackage --host-arch "$1" -b -us -uc -d) >"$folder/deb.log" 2>&1 ||
    { tail -n 20 "$folder/deb.log" >&2; exit 1; }
  mv "$folder"/fusetools_*.deb "$dist/"
  ! command -v lintian >/dev/null || lintian --allow-root --fail-on warning "$dist"/fusetools_*_"$1".deb

  "$here/tree.sh" /usr/bin/python3.9 "$file" /usr/lib/fusetools "$folder/rpm/tree"
  install -D -m 644 LICENSE "$folder/rpm/tree/usr/share/doc/fusetools/LICENSE"
  tar -C "$folder/rpm/tree" --owner 0 --group 0 --sort name -cf "$folder/rpm/tree.tar" .
  sed "s/@MAINTAINER@/$maintainer/; s/@DATE@/$(LC_ALL=C date -u -d "@$SOURCE_DATE_EPOCH" '+%a %b %d %Y')/" \
    "$here/fusetools.spec" >"$folder/rpm/fusetools.spec"
  rpmbuild -bb --quiet --target "$2-linux" --define "upstream $version" \
    --define "_sourcedir $folder/rpm" --define "_topdir $folder/rpm/top" \
    "$folder/rpm/fusetools.spec" >"$folder/rpm.log" 2>&1 ||
    { tail -n 20 "$folder/rpm.log" >&2; exit 1; }
  mv "$folder"/rpm/top/RPMS/*/*.rpm "$dist/"
}

single_file() { # MACHINE WHEEL: for hosts that have Python 3.9 and no pip
  say "single file for $1"
  shiv --console-script fusetools --python '/usr/bin/env python3' --compressed \
    --output-file "$dist/fusetools-$version-$1.pyz" --no-deps --only-binary :all: --python-version 3.9 \
    --platform "manylinux_2_17_$1" --platform any --implementation cp --abi abi3 --abi none \
    "$2" "$root"/bundled/*.whl >"$root/shiv.log" 2>&1 || { tail -n 20 "$root/shiv.log" >&2; exit 1; }
}

for target in "${targets[@]}"; do
  machine=${target%%-*}
  case $target in
    *-gnu)
      wheel "$target" "manylinux_2_17_$machine" "$target.2.17"
      debian=amd64
      [ "$machine" = x86_64 ] || debian=arm64
      single_file "$machine" "$dist/fusetools_trace-$version-cp39-abi3-manylinux_2_17_$machine.whl"
      system_packages "$debian" "$machine" "manylinux_2_17_$machine"
      ;;
    *) wheel "$target" "musllinux_1_2_$machine" "$target" ;;
  esac
done

say "SBOM"
# What is linked into the core, and what Python needs at run time.
python "$here/sbom.py" "$dist/fusetools-$version.cdx.json" "$root"/bundled/*.whl
(cd "$dist" && sha256sum -- *"$version"*.{whl,tar.gz,pyz,deb,rpm,json} >SHA256SUMS 2>/dev/null || true)
ls -l "$dist"
