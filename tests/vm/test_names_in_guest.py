"""Names of files from the kernel, for a daemon whose own functions report none."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import vm
from samplefs import FUSETOOLS

pytestmark = pytest.mark.vm

REPLIES = """[[group]]
library = 'libfuse3?\\.so[.\\d]*'
function = 'fuse_reply_\\w+'
role = "reply"
[group.arguments]
all = { unique = "+8(arg1):u64" }
"""
# Each operation on names; then forgotten files, whose numbers other files may have since.
WORKLOAD = """set -e
mkdir $1/d $1/d/e
echo one > $1/d/e/one
mv $1/d/e/one $1/d/two
cat $1/d/two > $1/copy
ln $1/copy $1/d/linked
ln -s nowhere $1/symbolic
mkfifo $1/d/fifo
stat $1/missing > stat 2>&1 || true
ls -l $1/d > list
mv $1/d $1/other
stat $1/other/e > stat
echo 2 > /proc/sys/vm/drop_caches
ls $1 > list
cat $1/other/linked > read
rm $1/other/fifo
rmdir $1/other/e
"""
# The object of each operation, below the mount point. None: a file that was renamed since its
# look-up; "*/": below such a directory.
EXPECTED: dict[str, set[str | None]] = {
    "mkdir": {"d", "d/e"},
    "create": {"d/e/one", "copy"},
    "rename": {"d/e/one", "d"},
    "link": {"d"},  # directory
    "symlink": {"symbolic"},
    "mknod": {"d/fifo"},
    "unlink": {"other/fifo"},
    "rmdir": {"other/e"},
    "write": {"d/e/one", "copy"},
    "read": {None, "other/linked"},
    "readdir": {"d", ""},
    "releasedir": {"d", ""},
}
FILES = {path for files in EXPECTED.values() for path in files}
FILES |= {"missing", "other", "other/linked", "d/two", "d/linked"}


def test_names_without_a_probe_set(guest: vm.Guest, tools: Path, tmp_path: Path) -> None:
    """Two mounts at the same time have inodes with the same numbers."""
    if not shutil.which("bindfs"):
        pytest.skip("bindfs is not installed: tools/install.sh installs it")
    (tmp_path / "replies.toml").write_text(REPLIES)
    (tmp_path / "workload").write_text(WORKLOAD)
    (tmp_path / "other").write_text(
        "for n in 1 2 3 4; do echo $n > $1/n$n; stat $1/there; done > stats"
    )
    guest(
        f"""set -e
        export PATH={tools}:$PATH
        mkdir /run/first /run/second /run/a /run/b /run/b/there
        bindfs /run/a /run/first
        bindfs /run/b /run/second
        stat -c %d /run/first > first
        {FUSETOOLS} record --fs replies.toml --mount /run/first --mount /run/second -- \
          sh -c 'sh other /run/second & sh workload /run/first; wait' > said 2>&1
        fusermount -u /run/first
        fusermount -u /run/second"""
    )
    assert "none lost" in (tmp_path / "said").read_text()
    data, out = str(tmp_path / "perf.data"), str(tmp_path / "out.json")
    command = [str(FUSETOOLS), "export", "--format", "json", "-i", data, "-o", out]
    subprocess.run(command, check=True)
    first = int((tmp_path / "first").read_text())
    found: dict[bool, dict[str, set[str | None]]] = {True: {}, False: {}}
    for row in json.loads(Path(out).read_text())["requests"]:
        operation = row["operation"].removesuffix("2").removesuffix("plus")
        path = row["path"] if row["path_whole"] in (True, None) else f"*/{row['path']}"
        found[row["connection"] == first].setdefault(operation, set()).add(path)
        if operation == "write":  # one word and a newline, or a digit
            length = 4 if row["connection"] == first else 2
            assert (row["size_bytes"], row["offset_bytes"]) == (length, 0)
        elif operation == "read":
            assert (row["size_bytes"] % 4096, row["offset_bytes"]) == (0, 0)
    paths = found[True]
    renamed = {path.replace("other/", "*/") for path in FILES if path}
    for operation, files in EXPECTED.items():
        # Newer kernels do not look up a file that they have renamed.
        seen = {path and path.replace("*/", "other/") for path in paths[operation]}
        if operation == "read" and "d/two" in seen:
            # After a second, as on a busy host, the kernel has looked up its new name.
            seen = seen - {"d/two"} | {None}
        assert seen == files, operation
    assert set().union(*paths.values()) <= {*FILES, *renamed}, paths
    # Names in a lookup or in its answer are known for each.
    assert None not in paths["lookup"] and "missing" in paths["lookup"]
    others = set().union(*found[False].values())
    assert others == {"", "there", *(f"n{number}" for number in (1, 2, 3, 4))}
