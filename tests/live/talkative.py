"""talkative.py MOUNT SOCKET: a daemon (rawfs.py) named cvmfs2 that answers commands on a socket.

It answers as CernVM-FS's client does, and never answers a lookup of "file-drop".
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import threading

import rawfs

ANSWERS = {
    b"proxy info": "Load-balance groups:\n[0] http://127.0.0.1:3128\nActive proxy: [0] http://127.0.0.1:3128\n",
    b"cache size": "Current cache size is 35MB (36927653 Bytes), pinned: 20MB (20971520 Bytes)\n",
    b"parameters": "CVMFS_CACHE_BASE=/var\nCVMFS_QUOTA_LIMIT=4000\n",
}
PR_SET_NAME = 15


class Talkative(rawfs.Daemon):
    def answer(self, request: bytes) -> None:
        if b"file-drop" not in request:
            super().answer(request)


def talk(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            answer = ANSWERS.get(connection.recv(256), "unknown command\n")
            connection.sendall(answer.encode())


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"cvmfs2")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[2])
    listener.listen(8)
    threading.Thread(target=talk, args=[listener], daemon=True).start()
    daemon = Talkative(sys.argv[1], 0, 0)
    print("mounted", os.getpid(), flush=True)
    daemon.run()


if __name__ == "__main__":
    main()
