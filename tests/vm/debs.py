"""Packages of any suite of Debian or Ubuntu, unpacked into a folder by ordinary apt clients.

The clients work on a state of their own and install nothing. Only the mirrors' addresses and the
installed keyrings come from the machine's own state.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

KEYRINGS = Path("/usr/share/keyrings")
DEBIAN = ("bullseye", "bookworm", "trixie", "sid")


class Unavailable(Exception):
    """The packages are unavailable here; the message is one line with the reason."""


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is not installed") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise Unavailable(f"{' '.join(command[:2])} … failed: {said[-1]}")
    return done.stdout


def _mirrors() -> dict[str, str]:
    """Return label (`Debian`, `Debian-Security`, `Ubuntu`) -> URI, from this machine's apt
    sources."""
    targets = _run(
        "apt-get",
        "indextargets",
        "--format",
        "$(ORIGIN)|$(LABEL)|$(REPO_URI)",
        "Created-By: Packages",
    )
    rows = (line.split("|") for line in targets.splitlines())
    return {label: uri for origin, label, uri in rows if origin in ("Debian", "Ubuntu")}


class Suite:
    """A suite (`bookworm`, `jammy` …) for an architecture; its apt state lies in `folder`/apt."""

    def __init__(self, name: str, folder: Path, architecture: str = "amd64") -> None:
        self.name, self.folder, self.architecture = name, folder, architecture
        self._config = folder / "apt" / "apt.conf"

    def _apt(self, tool: str, *arguments: str) -> str:
        if not self._config.exists():
            self._configure()
        return _run("env", f"APT_CONFIG={self._config}", tool, *arguments)

    def _configure(self) -> None:
        origin = "Debian" if self.name in DEBIAN else "Ubuntu"
        mirrors = _mirrors()
        if origin not in mirrors:
            raise Unavailable(
                f"no {origin} mirror in the machine's apt sources, or no apt-get update yet"
            )
        keyring = KEYRINGS / f"{origin.lower()}-archive-keyring.gpg"
        if not keyring.exists():
            raise Unavailable(f"{keyring} is missing: its package is {keyring.stem}")
        state = self._config.parent
        for path in ("lists/partial", "cache/archives/partial", "etc"):
            (state / path).mkdir(parents=True, exist_ok=True)
        (state / "status").touch()
        suites = [(mirrors[origin], self.name)]
        if origin == "Ubuntu":
            suites.append((mirrors[origin], f"{self.name}-updates"))
        elif self.name != "sid" and "Debian-Security" in mirrors:
            suites.append((mirrors["Debian-Security"], f"{self.name}-security"))
        components = "main" if origin == "Debian" else "main universe"
        sources = state / "etc" / "sources.list"
        sources.write_text(
            "".join(
                f"deb [signed-by={keyring}] {uri} {name} {components}\n" for uri, name in suites
            )
        )
        settings = {
            "APT::Architecture": self.architecture,
            "APT::Architectures": self.architecture,
            # Otherwise root's apt would switch to a user who may not enter the checkout.
            "APT::Sandbox::User": "root",
            "APT::Install-Recommends": "false",
            "Acquire::Languages": "none",
            "Dir::State": str(state),
            "Dir::State::status": str(state / "status"),
            "Dir::Cache": str(state / "cache"),
            "Dir::Etc::sourcelist": str(sources),
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
        }
        config = "".join(f'{key} "{value}";\n' for key, value in settings.items())
        self._config.write_text(config)
        try:
            self._apt("apt-get", "update", "-q")
        except Unavailable:
            self._config.unlink()
            raise

    def requires(self, package: str) -> list[str]:
        """Return the packages that the newest `package` depends on directly."""
        lines = self._apt("apt-cache", "depends", "--no-recommends", package).splitlines()
        # "|Depends:": an alternative follows
        return [line.split()[1] for line in lines if "Depends:" in line]

    def named(self, beginning: str) -> list[str]:
        """Return the packages whose names begin with this."""
        return self._apt("apt-cache", "pkgnames", beginning).split()

    def unpack(self, into: Path, *packages: str, dependencies: bool = False) -> None:
        """Unpack `packages`, optionally with all dependencies, into the folder `into`."""
        archives = self._config.parent / "cache" / "archives"
        for old in archives.glob("*.deb"):
            old.unlink()
        if dependencies:
            self._apt("apt-get", "install", "-q", "--yes", "--download-only", *packages)
        else:
            # `apt-get download` writes into the current directory.
            self._apt("env", "-C", str(archives), "apt-get", "download", "-q", *packages)
        into.mkdir(parents=True, exist_ok=True)
        for package in sorted(archives.glob("*.deb")):
            _run("dpkg", "-x", str(package), str(into))
            package.unlink()
