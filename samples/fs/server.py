#!/usr/bin/env python3
"""A slow HTTP server on 127.0.0.1, for the sample file system's --download.

It prints its port on the first line, then a JSON object for each answered request: "path", and in
ns of CLOCK_MONOTONIC "begin" (the first line was read) and "end" (the last byte of the reply was
passed to the kernel). SIGTERM or SIGINT ends it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def seconds(text: str) -> float:
    """Parse a time with a unit, such as 20ms."""
    match = re.fullmatch(r"([0-9.]+)(ns|us|ms|s)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' needs a number and a unit: ns, us, ms or s")
    return float(match[1]) * UNITS[match[2]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--delay", type=seconds, default=0.0, metavar="TIME", help="of each answer")
    parser.add_argument("--port", type=int, default=0, help="0, as by default: any that is free")
    parser.add_argument("--bytes", type=int, default=4096, help="of each answer's body")
    arguments = parser.parse_args()
    body = bytes(arguments.bytes)
    printing = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            begin = time.monotonic_ns()
            time.sleep(arguments.delay)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            end = time.monotonic_ns()
            with printing:
                print(json.dumps({"path": self.path, "begin": begin, "end": end}), flush=True)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    server = Server(("127.0.0.1", arguments.port), Handler)
    print(server.server_port, flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
