"""Files that were read, in the formats of CernVM-FS."""

from __future__ import annotations

import json

from fusetools.results.bundle import Bundle

FORMATS = ("cvmfsbundle", "shrinkwrap")


def render(result: Bundle, form: str) -> tuple[str, int]:
    """Return the text of the file, and the number of paths that the format cannot hold.

    The client reads a bundle as cvmfs/file_bundle.h and cvmfs/bundle_mgr.cc of its sources say,
    cvmfs_shrinkwrap a specification as cvmfs/shrinkwrap/spec_tree.cc."""
    files = [path for path in result.files if _writable(path, form)]
    if form == "cvmfsbundle":
        head = {"name": "CVMFS_BUNDLE", "version": "1.0.0", "encoding": "UTF-8"}
        text = json.dumps({**head, "dependencies": files}, indent=1) + "\n"
    else:
        text = "".join(f"{path}\n" for path in files)
    return text, len(result.files) - len(files)


def _writable(path: str, form: str) -> bool:
    """Return whether the format can hold a path.

    The core replaces what is no UTF-8. A line of a specification is stripped, and a star at its end
    stands for any name."""
    if "\ufffd" in path:
        return False
    return form == "cvmfsbundle" or (path.isprintable() and not path.endswith((" ", "*")))
