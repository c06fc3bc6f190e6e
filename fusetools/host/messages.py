"""Messages between processes of fusetools: a length, then the bytes.

The end of a pipe cannot mark a message's end: a child that waits for a daemon may hold the pipe
open forever.
"""

from __future__ import annotations

import os
import struct

_HEAD = struct.Struct("=Q")
PART = 1 << 16  # bytes per read


def framed(data: bytes) -> bytes:
    """Return the message that holds ``data``."""
    return _HEAD.pack(len(data)) + data


def send(descriptor: int, data: bytes) -> None:
    """Write a message. OSError: nobody reads it."""
    left = memoryview(framed(data))
    while left:
        left = left[os.write(descriptor, left) :]


def receive(descriptor: int) -> bytes | None:
    """Wait for a message and return its bytes; None if it ends early."""
    incoming = Incoming()
    while not incoming.complete:
        if not incoming.take(descriptor):
            return None
    return incoming.data


class Incoming:
    """A message that arrives in parts. Raise ValueError if it is longer than ``most`` bytes."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._parts = bytearray()

    def take(self, descriptor: int) -> bool:
        """Read an available part. Return False at the end of the pipe."""
        part = os.read(descriptor, PART)
        self._parts += part
        if self._most is not None and (self._size or 0) > self._most:
            raise ValueError(f"the message is longer than {self._most} bytes")
        return bool(part)

    @property
    def _size(self) -> int | None:
        if len(self._parts) < _HEAD.size:
            return None
        size: int = _HEAD.unpack_from(self._parts)[0]
        return size

    @property
    def complete(self) -> bool:
        size = self._size
        return size is not None and len(self._parts) >= _HEAD.size + size

    @property
    def data(self) -> bytes:
        """Return the bytes of a complete message."""
        return bytes(self._parts[_HEAD.size : _HEAD.size + (self._size or 0)])
