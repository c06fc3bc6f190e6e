"""Write the parts of a release as CycloneDX: Rust's crates and bundled Python packages.

Usage: sbom.py FILE WHEEL…
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot5
from packageurl import PackageURL


def crates() -> list[tuple[str, str]]:
    """Return the name and version of each crate that is linked into the extension modules."""
    told = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked"], capture_output=True, check=True
    )
    metadata: dict[str, Any] = json.loads(told.stdout)
    own = set(metadata["workspace_members"])
    nodes = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    seen, left = set(own), list(own)
    while left:
        for dep in nodes[left.pop()]:
            linked = any(kind["kind"] is None for kind in dep["dep_kinds"])
            if linked and dep["pkg"] not in seen:
                seen.add(dep["pkg"])
                left.append(dep["pkg"])
    packages = (package for package in metadata["packages"] if package["id"] in seen - own)
    return sorted((package["name"], package["version"]) for package in packages)


def main() -> None:
    output, *wheels = sys.argv[1:]
    parts = [("cargo", *crate) for crate in crates()]
    parts += [("pypi", *Path(wheel).name.split("-")[:2]) for wheel in wheels]
    bom = Bom()
    for kind, name, version in parts:
        bom.components.add(
            Component(
                name=name,
                version=version,
                type=ComponentType.LIBRARY,
                purl=PackageURL(kind, name=name, version=version),
                bom_ref=f"{kind}:{name}@{version}",
            )
        )
    text = JsonV1Dot5(bom).output_as_string(indent=1)
    Path(output).write_text(text + "\n")


if __name__ == "__main__":
    main()
