"""Keyed hashes in place of paths and users: equal on all hosts that have the same key."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

from fusetools.errors import Error
from fusetools.host.files import open_regular

LEAST_KEY, MOST_KEY = 16, 64  # bytes; BLAKE2b takes at most 64
_DIGEST = 8  # bytes
_PLAIN = ("", "…")  # of a path's parts: between slashes, and not recorded


class Anonymiser:
    """Hashes with the key of a file. Error: the file cannot be read, or holds no key."""

    def __init__(self, path: str) -> None:
        try:
            with os.fdopen(open_regular(path), "rb") as file:
                key = file.read(MOST_KEY + 1)
        except OSError as error:
            fix = f"head -c {MOST_KEY // 2} /dev/urandom >{path}"
            raise Error(f"cannot read the key {path}", error.strerror or str(error), fix) from error
        if not LEAST_KEY <= len(key) <= MOST_KEY:
            size = f"more than {MOST_KEY}" if len(key) > MOST_KEY else str(len(key))
            raise Error(
                f"{path} is no key",
                f"it has {size} bytes, a key has {LEAST_KEY} to {MOST_KEY}",
                f"head -c {MOST_KEY // 2} /dev/urandom >{Path(path).with_suffix('.key')}",
            )
        self._key = key
        self._known: dict[str, str] = {}

    def word(self, text: str) -> str:
        """Return the hash of a text, "" of an empty one."""
        if text in _PLAIN:
            return text
        found = self._known.get(text)
        if found is None:
            raw = text.encode(errors="surrogatepass")
            found = blake2b(raw, digest_size=_DIGEST, key=self._key).hexdigest()
            if len(self._known) < 1 << 17:
                self._known[text] = found
        return found

    def path(self, text: str) -> str:
        """Hash each part of a path, so that its directories stay comparable."""
        return "/".join(map(self.word, text.split("/")))
