"""Check the English of comments, docstrings and documentation, by a short list of rules.

Usage: python tools/english.py [FILE …]   (default: every tracked file of the kinds below)

A sentence begins with its subject or an imperative verb, not with a relative pronoun. Prints
FILE:LINE: REASON: TEXT for each violation, and exits with 1 if there is one.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

# A sentence that begins so has no subject. "What …?" and "Which …?" are questions, and fine.
BEGINNINGS = ("Of", "What", "Who", "Whose", "Whom", "Whether", "Which", "Whoever")
_BEGINNING = re.compile(rf"(?:{'|'.join(BEGINNINGS)})\b(?![^.]*\?)")
# Words and phrases that have a plain equivalent.
PHRASES = (
    "it is said",
    "is told",
    "are told",
    "without a word",
    "nothing of it",
    "that one",
    "who asks",
    "tells of",
    "is said",
    "dear",
    "dearer",
    "shall be",
    "shall not",
)
_PHRASE = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b", re.IGNORECASE)
# A sentence ends with a full stop, a colon or a semicolon, and the next begins with a capital.
_SENTENCES = re.compile(r"(?<=[.:!?])\s+(?=[A-Z])")

# A test is named by the behaviour that it proves: a statement, too.
_TEST = re.compile(rf"^\s*def (test_(?:{'|'.join(BEGINNINGS)})_\w*)", re.IGNORECASE | re.MULTILINE)

KINDS = (".py", ".rs", ".md", ".1")
# Generated texts, and folders whose texts are still to be rewritten.
EXCLUDED = ("docs/commands.md",)


def sentences(text: str) -> list[str]:
    """Return the sentences of a comment or a docstring, without line breaks."""
    return _SENTENCES.split(" ".join(text.split()))


def of_python(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each docstring and each block of comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield node.body[0].lineno, text
    block: list[str] = []
    begin = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        alone = not token.line[: token.start[1]].strip()
        if block and not (alone and line == last + 1):
            yield begin, " ".join(block)
            block = []
        if not block:
            begin = line
        block.append(token.string.lstrip("#:! "))
        last = line if alone else -1
    if block:
        yield begin, " ".join(block)


_RUST_COMMENT = re.compile(r"^\s*//[/!]?(?: |$)(.*)$")
_RUST_BEHIND = re.compile(r"[;,{})]\s*// (.*)$")


def of_rust(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each block of line comments."""
    block: list[str] = []
    begin = 0
    for number, line in enumerate([*source.splitlines(), ""], 1):
        if match := _RUST_COMMENT.match(line):
            if not block:
                begin = number
            block.append(match[1])
            continue
        if block:
            yield begin, " ".join(block)
            block = []
        if match := _RUST_BEHIND.search(line):
            yield number, match[1]


def of_markdown(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each paragraph and list item, without headings, tables and code."""
    block: list[str] = []
    begin = 0
    fenced = False
    for number, line in enumerate([*source.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        plain = not (fenced or fence or line.startswith(("    ", "#", "|", "\t")))
        item = re.match(r"\s*(?:[-*]|\d+\.)\s+(.*)", line)
        if block and (not plain or not line.strip() or item):
            yield begin, " ".join(block)
            block = []
        if plain and line.strip():
            if not block:
                begin = number
            block.append(item[1] if item else line.strip())


def of_man(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each line of text in a man page."""
    for number, line in enumerate(source.splitlines(), 1):
        if line and not line.startswith((".", "'")):
            yield number, re.sub(r"\\f.|\\", "", line)


READERS = {".py": of_python, ".rs": of_rust, ".md": of_markdown, ".1": of_man}


def violations(path: Path) -> Iterator[str]:
    """Yield a line for each violation in a file."""
    source = path.read_text(encoding="utf-8")
    for match in _TEST.finditer(source) if path.suffix == ".py" else ():
        line = source.count("\n", 0, match.start(1)) + 1
        yield f"{path}:{line}: name of a test: {match[1]}"
    for line, text in READERS[path.suffix](source):
        for sentence in sentences(text):
            words = sentence.lstrip("`*\"'([ ")
            if match := _BEGINNING.match(words):
                yield f"{path}:{line}: begins with {match[0]!r}: {words[:70]}"
            elif match := _PHRASE.search(words):
                yield f"{path}:{line}: {match[0]!r}: {words[:70]}"


def main(arguments: list[str]) -> int:
    """Check files, by default all that are tracked. Return the exit status."""
    if not arguments:
        listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True)
        arguments = [
            name
            for name in listed.stdout.splitlines()
            if name.endswith(KINDS) and not name.startswith(EXCLUDED) and Path(name).exists()
        ]
    found = [line for name in arguments for line in violations(Path(name))]
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
