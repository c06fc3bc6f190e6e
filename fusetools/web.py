"""A small HTTP server: TLS and passwords by the web configuration of Prometheus's exporters."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from fusetools.errors import Error
from fusetools.extras import SERVE, need

MOST_CLIENTS = 16  # at once; others are refused
PATIENCE = 10.0  # seconds that a client may be silent
LARGEST = 1 << 20  # bytes of a configuration file
MOST_KNOWN = 1024  # remembered passwords
_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_TLS = ("cert_file", "key_file", "client_ca_file", "client_auth_type", "min_version")

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass(frozen=True)
class Config:
    """Way to serve. ``users``: bcrypt hashes of passwords by user, none: everybody may read."""

    tls: ssl.SSLContext | None = None
    users: Mapping[str, bytes] = field(default_factory=dict)


def read_config(path: str) -> Config:
    """Read a web configuration file. Raise Error for whatever it says that is not supported."""
    need("yaml", "it reads web configuration files", SERVE)
    import yaml

    try:
        with Path(path).open("rb") as file:
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise _bad(path, f"it is larger than {LARGEST >> 20} MB")
        data = yaml.safe_load(text) or {}
    except OSError as error:
        raise _bad(path, error.strerror or str(error)) from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(path, f"it is no YAML: {' '.join(str(error).split())}") from error
    except ValueError as error:  # a NUL in the path; a date that does not exist
        raise _bad(path, str(error)) from error
    top = _fields(path, "the file", data, ("tls_server_config", "basic_auth_users"))
    tls = _tls(path, top["tls_server_config"]) if top.get("tls_server_config") else None
    users = top.get("basic_auth_users") or {}
    if not isinstance(users, dict) or not all(
        isinstance(text, str) for pair in users.items() for text in pair
    ):
        raise _bad(path, "basic_auth_users is no mapping of names to hashes")
    if users:
        need("bcrypt", "it checks passwords", SERVE)
    return Config(tls, {name: hashed.encode() for name, hashed in users.items()})


def _bad(path: str, why: str) -> Error:
    return Error(f"cannot use the web configuration file {path}", why)


def _fields(path: str, where: str, data: object, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise _bad(path, f"{where} is no mapping")
    for name in data:
        if name not in known:
            raise _bad(path, f"{name} in {where} is not supported; supported: {', '.join(known)}")
    return data


def _tls(path: str, data: object) -> ssl.SSLContext:
    values = _fields(path, "tls_server_config", data, _TLS)
    folder = os.path.dirname(path)
    files = {name: os.path.join(folder, str(values[name])) for name in _TLS[:3] if name in values}
    if "cert_file" not in files or "key_file" not in files:
        raise _bad(path, "tls_server_config needs cert_file and key_file")
    auth = str(values.get("client_auth_type", "NoClientCert"))
    version = str(values.get("min_version", "TLS12"))
    if auth not in _AUTH:
        raise _bad(path, f"client_auth_type is {auth}; supported: {', '.join(_AUTH)}")
    if version not in _VERSIONS:
        raise _bad(path, f"min_version is {version}; supported: {', '.join(_VERSIONS)}")
    if _AUTH[auth] != ssl.CERT_NONE and "client_ca_file" not in files:
        raise _bad(path, f"client_auth_type {auth} needs client_ca_file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[version]
    try:
        # Never ask for a password: nobody may be there.
        context.load_cert_chain(files["cert_file"], files["key_file"], password="")
        if "client_ca_file" in files:
            context.load_verify_locations(files["client_ca_file"])
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise _bad(path, f"its certificates or its key: {error}") from error
    context.verify_mode = _AUTH[auth]
    return context


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], app: App, config: Config) -> None:
        self._slots = threading.BoundedSemaphore(MOST_CLIENTS)
        super().__init__(address, _Handler)
        self.set_app(app)
        if config.tls:
            # The handshake happens in the client's own thread: a silent one holds up nobody.
            self.socket = config.tls.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    def server_bind(self) -> None:
        # Not WSGIServer's, which asks a name server for the host's name.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that break off, or speak something else."""


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""

    def address_string(self) -> str:
        return str(self.client_address[0])


@contextlib.contextmanager
def serving(address: str, app: App, config: Config) -> Iterator[str]:
    """Serve ``app`` on HOST:PORT, [HOST]:PORT or :PORT. Yield the URL. Raise Error if the address
    cannot be used."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")

    class Server(_Server):
        pass

    try:
        if not 0 <= int(port) < 1 << 16:  # getaddrinfo() ignores higher bits
            raise ValueError(f"{port} is not a port from 0 to 65535")
        found = socket.getaddrinfo(
            host or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, place = found[0]
        Server.address_family = family
        server = Server(place[:2], _with_password(app, config.users), config)  # type: ignore[arg-type]
    except (OSError, ValueError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise Error(f"cannot listen on {address}", why, "--listen HOST:PORT") from error
    thread = in_background(server.serve_forever)
    try:
        shown, port = server.server_name, str(server.server_port)
        shown = f"[{shown}]" if ":" in shown else shown
        yield f"{'https' if config.tls else 'http'}://{shown}:{port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def in_background(target: Callable[[], None]) -> threading.Thread:
    """Start a thread that takes no signals: they are for the main thread, which holds them back
    while it records."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread = threading.Thread(target=target, daemon=True)
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return thread


def _with_password(app: App, users: Mapping[str, bytes]) -> App:
    """Return an app that lets only these users in."""
    if not users:
        return app
    import bcrypt

    # A hash takes a tenth of a second of CPU on purpose. So one is made at a time, and what was
    # right is remembered, under a key that is never written anywhere.
    lock, key, known = threading.Lock(), os.urandom(32), set[bytes]()
    nobody = bcrypt.hashpw(b"nobody", bcrypt.gensalt(10))

    def right(header: str) -> bool:
        scheme, _, encoded = header.partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            pair = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            return False
        name, _, password = pair.partition(b":")
        mac = hmac.new(key, pair, hashlib.sha256).digest()
        if mac in known:
            return True
        hashed = users.get(name.decode("utf-8", "replace"))
        with lock:
            try:
                same = bcrypt.checkpw(password[:72], hashed or nobody)
            except ValueError:  # no bcrypt hash, or a NUL in the password
                return False
        if same and hashed:
            if len(known) >= MOST_KNOWN:  # bcrypt ignores what follows 72 bytes
                known.clear()
            known.add(mac)
            return True
        return False

    def guarded(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if right(environ.get("HTTP_AUTHORIZATION", "")):
            return app(environ, start)
        fields = [("WWW-Authenticate", "Basic"), ("Content-Type", "text/plain")]
        start("401 Unauthorized", fields)
        return [b"401 Unauthorized\n"]

    return guarded
