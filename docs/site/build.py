"""Build the site: python docs/site/build.py [FOLDER] (needs the extra `docs`, and mandoc).

It goes into docs/_build/html, or FOLDER/html.

Each text is written in one place: README, docs/, the man pages. Outputs of commands are made while
the site is built, from samples/recordings/demo.data; those of problems.toml are in problems/.
Sphinx warns about what a link does not find; a warning is an error here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import tomllib

SITE = Path(__file__).parent
ROOT = SITE.parents[1]
BUILD = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/_build"
SOURCE = BUILD / "source"
DEMO = ROOT / "samples/recordings"
# Outputs are as wide as a page, whatever the terminal; Sphinx needs a locale that exists.
ENVIRONMENT = {**os.environ, "COLUMNS": "80", "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}
# Lines of an output that a page shows.
MOST_LINES = 45

CONTENTS = """

```{toctree}
:hidden:
:caption: Use
docs/guide
reading
problems
gallery
comparison
docs/monitoring
docs/collecting
docs/containers
docs/python
```

```{toctree}
:hidden:
:caption: Reference
man/index
docs/commands
docs/probe-sets
docs/schema/README
CHANGELOG
```

```{toctree}
:hidden:
:caption: Design
ARCHITECTURE
SECURITY
CONTRIBUTING
docs/design/README
```
"""


def fusetools(*words: str) -> str:
    """Run a command on the demo recording, as users of a clone do, and return what it prints."""
    command = [sys.executable, "-m", "fusetools", *words]
    done = subprocess.run(command, cwd=DEMO, capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode:
        sys.exit(f"site: fusetools {' '.join(words)}: {done.stderr}")
    return done.stdout


def block(command: str, output: str) -> str:
    """Return a command and its output as a block of text."""
    lines = output.rstrip().splitlines()
    shown = lines[:MOST_LINES] + ["…"] * (len(lines) > MOST_LINES)
    return "\n".join(["```text", f"$ {command}", *shown, "```", ""])


def copy() -> None:
    """Copy the project's texts to the same places, so that their links lead to one another."""
    unwanted = shutil.ignore_patterns("_build", "site")
    shutil.copytree(ROOT / "docs", SOURCE / "docs", ignore=unwanted)
    for text in (*ROOT.glob("*.md"), ROOT / "LICENSE"):
        shutil.copyfile(text, SOURCE / text.name)
    (SOURCE / "comparison.md").write_text((SITE / "comparison.md").read_text())
    readme = SOURCE / "README.md"
    readme.write_text(readme.read_text() + CONTENTS)
    design = SOURCE / "docs/design/README.md"
    others = sorted(page.stem for page in design.parent.glob("*.md") if page != design)
    design.write_text(design.read_text() + listed(others))


def listed(pages: list[str]) -> str:
    return "\n```{toctree}\n:hidden:\n" + "\n".join(pages) + "\n```\n"


def man_pages() -> None:
    """Write the man pages, with links to one another."""
    folder = SOURCE / "man"
    folder.mkdir()
    pages = {page.stem: page for page in sorted((ROOT / "fusetools/man").glob("*.1"))}
    rows = []
    for name, page in pages.items():
        command = ["mandoc", "-T", "markdown", page]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        text = text.split("\n", 1)[1].rsplit("\n", 2)[0]  # without the page's head and foot
        text = re.sub(r"^(#+) (.*)", lambda m: f"#{m[1]} {m[2].capitalize()}", text, flags=re.M)
        text = re.sub(
            r"(?<![\w*-])(fusetools(?:-[a-z]+)?)\(1\)",
            lambda m: f"[{m[0]}]({m[1]}.md)" if m[1] in pages else m[0],
            text,
        )
        (folder / f"{name}.md").write_text(f"# {name}(1)\n\n{text}\n")
        about = re.search(r"^\.Nd (.*)", page.read_text(), re.M)
        rows.append(f"| [{name}]({name}.md) | {about[1] if about else ''} |")
    table = "\n".join(["| page | |", "| --- | --- |", *rows])
    (folder / "index.md").write_text(f"# Man pages\n\n{table}\n{listed([*pages])}")


def reading() -> None:
    """Write the pages that explain outputs line by line. An explanation without its line fails."""
    folder = SOURCE / "reading"
    folder.mkdir()
    commands = tomllib.loads((SITE / "reading.toml").read_text())["command"]
    rows = []
    for command in commands:
        words = command["words"].split()
        output = fusetools(*words, "-i", "demo.data")
        text = [f"# How to read `fusetools {words[0]}`", "", command["intro"], ""]
        text += [block(f"fusetools {command['words']} -i demo.data", output)]
        for pattern, meaning in command["lines"]:
            found = re.search(pattern, output, re.M)
            if found is None:
                sys.exit(f"site: fusetools {command['words']} prints nothing like {pattern!r}")
            text += ["```text", found[0].strip(), "```", meaning, ""]
        page = f"fusetools-{words[0]}"
        text += ["", f"All about it: [{page}(1)](../man/{page}.md)."]
        (folder / f"{words[0]}.md").write_text("\n".join(text) + "\n")
        rows.append(f"- [`fusetools {words[0]}`](reading/{words[0]}.md): {command['question']}")
    names = [f"reading/{command['words'].split()[0]}" for command in commands]
    intro = "The answers about one recording (samples/recordings/demo.data), line by line."
    body = "\n".join(["# How to read the answers", "", intro, "", *rows])
    (SOURCE / "reading.md").write_text(f"{body}\n{listed(names)}")


def problems() -> None:
    """Write a page for each problem."""
    folder = SOURCE / "problems"
    folder.mkdir()
    found = tomllib.loads((SITE / "problems.toml").read_text())["problem"]
    rows = []
    for one in found:
        output = (SITE / f"problems/{one['name']}.txt").read_text()
        text = [
            f"# {one['title']}",
            "",
            f"**Symptom.** {one['symptom']}",
            "",
            "**What you see.**",
            "",
        ]
        text += ["```text", output.rstrip(), "```", "", f"**Cause.** {one['cause']}", ""]
        text += [f"**Fix.** {one['fix']}", ""]
        (folder / f"{one['name']}.md").write_text("\n".join(text))
        rows.append(f"| [{one['title']}](problems/{one['name']}.md) | {one['symptom']} |")
    intro = (
        "Each problem was set up on a real mount (`tests/live/troubles.py`) and recorded;\n"
        "the outputs are those of `fusetools why`. `make test-why` records them again.\n"
    )
    table = "\n".join(["| problem | symptom |", "| --- | --- |", *rows])
    pages = listed([f"problems/{one['name']}" for one in found])
    (SOURCE / "problems.md").write_text(f"# Problems\n\n{intro}\n{table}\n{pages}")


def gallery() -> None:
    """Write a report and flame graphs of the demo recording."""
    folder = SOURCE / "extra/gallery"
    folder.mkdir(parents=True)
    made = {
        "report.html": ("report", "All on one page, for a ticket"),
        "offcpu.html": ("flame --offcpu", "What was waited for; click to zoom, `/` searches"),
        "offwake.html": ("flame --offwake", "The same, with the stack of whoever ended each wait"),
        "requests.html": ("flame --requests", "Callers' waits, and what the daemon did meanwhile"),
    }
    rows = ["| page | command | |", "| --- | --- | --- |"]
    for name, (words, about) in made.items():
        recording = ["demo.data"] if words == "report" else ["-i", "demo.data"]
        fusetools(*words.split(), *recording, "-o", str(folder / name))
        link = f'<a href="gallery/{name}">{name}</a>'
        rows.append(f"| {link} | `fusetools {words}` | {about} |")
    picture = SOURCE / "offcpu.svg"
    fusetools("flame", "--offcpu", "-i", "demo.data", "-o", str(picture))
    text = "\n".join(rows)
    about = "Made of samples/recordings/demo.data when this site was built."
    shown = "![What was waited for](offcpu.svg)"
    (SOURCE / "gallery.md").write_text(f"# Gallery\n\n{about}\n\n{text}\n\n{shown}\n")


def main() -> None:
    shutil.rmtree(BUILD, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    copy()
    man_pages()
    reading()
    problems()
    gallery()
    shutil.copyfile(SITE / "conf.py", SOURCE / "conf.py")
    pages = BUILD / "html"
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    if subprocess.run([*command, SOURCE, pages], env=ENVIRONMENT).returncode:
        sys.exit("site: see the warnings above")
    shutil.copyfile(pages / "README.html", pages / "index.html")
    shutil.rmtree(SOURCE)
    print(f"site: {pages / 'index.html'}")


if __name__ == "__main__":
    main()
