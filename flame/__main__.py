"""`python -m fusetools.flame`: draw a file of folded stacks."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import ANNOTATIONS, FORMATS, Diff, Error, diff, drawn, palettes, read


def main(argv: list[str] | None = None) -> int:
    """Draw the graph. Returns 0, or 1 after an error message on stderr."""
    args = _parser().parse_args(argv)
    try:
        _run(args)
    except Error as error:
        print(f"flame: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader stopped reading; Python would report that again at exit.
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}",
        description="Draws folded stacks (root;...;leaf weight) as a flame graph.",
    )
    parser.add_argument(
        "input", type=Path, help="folded stacks, or a difference of two; - for stdin"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        help=f"{FORMATS}  [default: .folded, on stdout]",
    )
    parser.add_argument("--diff", type=Path, metavar="BEFORE", help="compare with these stacks")
    parser.add_argument(
        "--normalise",
        action="store_true",
        help="compare shares: scale the earlier stacks to the same total",
    )
    parser.add_argument("--title", default="Flame Graph")
    parser.add_argument("--subtitle", default="")
    parser.add_argument(
        "--unit", default="samples", help="unit of the weights: ns, us, ms, s, or what is counted"
    )
    parser.add_argument(
        "--inverted", action="store_true", help="draw the root at the top (icicle graph)"
    )
    parser.add_argument("--reverse", action="store_true", help="merge stacks from their leaves")
    parser.add_argument(
        "--palette", default="hot", help=f"palette of the SVG: {', '.join(palettes())}"
    )
    parser.add_argument(
        "--kinds",
        action="store_true",
        help="colour by the names' suffixes: _[k] kernel, _[i] inlined, _[j] JIT",
    )
    parser.add_argument(
        "--min-width",
        type=float,
        default=0.01,
        metavar="PERCENT",
        help="leave narrower frames out of the SVG",
    )
    parser.add_argument(
        "--width", type=int, default=0, help="width of the SVG in pixels  [default: the window's]"
    )
    return parser


def _run(args: argparse.Namespace) -> None:
    graph = read(args.input, unit=args.unit)
    if args.diff:
        before = read(args.diff, unit=args.unit)
        if isinstance(graph, Diff) or isinstance(before, Diff):
            raise Error("one of these is a difference already")
        graph = diff(before, graph)
    if isinstance(graph, Diff):
        graph = Diff(graph.stacks, graph.unit, args.normalise)
    content = drawn(
        graph,
        args.output.name if args.output else ".folded",
        title=args.title,
        subtitle=args.subtitle,
        inverted=args.inverted,
        reversed=args.reverse,
        palette=args.palette,
        kinds=ANNOTATIONS if args.kinds else None,
        min_width=args.min_width,
        width=args.width,
    )
    data = content.encode() if isinstance(content, str) else content
    if args.output is None:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    try:
        args.output.write_bytes(data)
    except OSError as error:
        raise Error(f"{args.output}: {error.strerror or error}") from None


if __name__ == "__main__":
    sys.exit(main())
