"""A server of one bucket, with as much of Amazon S3's REST API as readers need.

https://docs.aws.amazon.com/AmazonS3/latest/API: ListObjectsV2, HeadObject, GetObject with a range.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

DATE = "Sun, 29 Nov 2026 00:00:00 GMT"


class Bucket(BaseHTTPRequestHandler):
    """Answers requests to /BUCKET and /BUCKET/KEY with the files below ``folder``."""

    protocol_version = "HTTP/1.1"
    folder: Path

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        asked = urlsplit(self.path)
        _, _, key = unquote(asked.path).lstrip("/").partition("/")
        path = self.folder / key
        if key and not path.is_file():
            return self._send(404, b"", body)
        if not key:
            return self._send(
                200, self._listed(parse_qs(asked.query)) if asked.query else b"", body
            )
        data = path.read_bytes()
        if wanted := self.headers.get("Range"):
            first, last = wanted.removeprefix("bytes=").split("-")
            whole = len(data)
            data = data[int(first) : int(last) + 1]
            span = f"bytes {first}-{int(first) + len(data) - 1}/{whole}"
            return self._send(206, data, body, **{"Content-Range": span})
        return self._send(200, data, body)

    def _listed(self, query: dict[str, list[str]]) -> bytes:
        prefix = query.get("prefix", [""])[0]
        files = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        keys = {path.relative_to(self.folder).as_posix(): path.stat().st_size for path in files}
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size>"
            "<LastModified>2026-11-29T00:00:00.000Z</LastModified></Contents>"
            for key, size in keys.items()
            if key.startswith(prefix)
        )
        return (
            f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode()
        )

    def _send(self, status: int, data: bytes, body: bool, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Last-Modified", DATE)
        self.send_header("x-amz-bucket-region", "us-east-1")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the environment in which s3://BUCKET is the folder."""
    handler = type("Served", (Bucket,), {"folder": folder})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield {
            "AWS_ACCESS_KEY_ID": "name",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    finally:
        server.shutdown()
        server.server_close()
