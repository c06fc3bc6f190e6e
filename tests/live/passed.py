"""A mounted samples/fs/passfs.cc, a child process of the test."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

from mounts import HANGS, end_with_the_test, mount_entry, wait_until


class Passed:
    """Serves ``below``, by default a new directory, at ``path``."""

    def __init__(
        self, samples: Path, place: Path, *options: str, below: Path | None = None
    ) -> None:
        self.below = below or place / "below"
        self.path = place / "mount"
        self._counts = place / "counts"
        for folder in (self.below, self.path):
            folder.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [samples / "passfs", "--counts", self._counts, *options, self.below, self.path],
            stdin=subprocess.DEVNULL,
            preexec_fn=end_with_the_test,
        )
        wait_until(lambda: bool(mount_entry(self.path)), "the mount")

    def counts(self) -> Counter[str]:
        """Unmount it. Return its own counts of requests by operation."""
        self.process.terminate()
        assert self.process.wait(HANGS) == 0
        rows = [line.split() for line in self._counts.read_text().splitlines()]
        return Counter({name: int(count) for name, count in rows})

    def clean(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if mount_entry(self.path):
            subprocess.run(["umount", "-l", self.path], check=True)
