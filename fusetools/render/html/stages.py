"""Report section: requests' time by stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fusetools.figures import duration, number, plural
from fusetools.render.html.markup import Child, Markup, join, legend, missing, note, table, tag
from fusetools.render.html.plots import Part, stacked
from fusetools.render.text import stages as stages_text
from fusetools.render.text import words as words_text
from fusetools.results.stages import OperationStages, Stages

# Operations whose stages are shown without a click: most time first.
SHOWN = 4


def render(result: Stages) -> Markup:
    """Return each operation's time by stage, as a bar and in figures."""
    if not result.operations:
        return tag("p", "No requests.")
    matched = [o for o in result.operations if o.matched]
    names = {stage.name for o in matched for stage in o.stages}
    unmatched = [o for o in result.operations if not o.matched]
    return join(
        stage_legend(names, words_text.name_of),
        _overview(matched),
        tag("div", [_operation(o) for o in matched[:SHOWN]], class_="cards broad"),
        _others(matched[SHOWN:]),
        [tag("p", f"{stages_text.title(o)}: {stages_text.requests(o)}.") for o in unmatched],
        note(sentence(stages_text.cost(result, True)[0])),
        [note(sentence(line)) for line in stages_text.ring(result.operations)],
        [note(sentence(line)) for line in stages_text.handed(result.operations)],
        [missing(m.what, m.why, m.fix) for m in result.joined],
    )


def _overview(operations: Sequence[OperationStages]) -> Markup:
    """Return a table of all operations, ranked by their callers' time."""
    rows: list[Sequence[Child]] = []
    for o in operations:
        title = stages_text.title(o)
        _, mean, p50, p99, most, _ = stages_text.total(o)
        times = (duration(o.total_ns), mean, p50, p99, most)
        rows.append((title, number(o.requests), *times, tag("div", _bar(o), class_="mini")))
    return table(("", "requests", "total", "mean", "p50", "p99", "max", ""), rows, "<>>>>>><")


def _others(operations: Sequence[OperationStages]) -> Markup:
    if not operations:
        return join()
    words = f"the stages of {plural(len(operations), 'more operation')}"
    cards = tag("div", [_operation(o) for o in operations], class_="cards broad")
    return tag("details", tag("summary", words), cards)


def _bar(o: OperationStages) -> Markup:
    parts = [
        Part(
            stage.share,
            colour(stage.name),
            letters(stage.name),
            f"{words_text.name_of(stage.name)} {duration(stage.mean_ns)}",
        )
        for stage in o.stages
    ]
    return stacked(parts, f"{stages_text.title(o)}: stages")


def _operation(o: OperationStages) -> Markup:
    rows: list[Sequence[Child]] = []
    for stage in o.stages:
        name, mean, *others, share = stages_text.figures(stage, o)
        swatch = tag("span", class_=f"swatch {colour(stage.name)}")
        rows.append(([swatch, name], mean, share, *others))
        for part, mean, share in stages_text.parts(stage, o):
            rows.append((tag("span", part, class_="within"), mean, share, "", "", ""))
    name, mean, *others, share = stages_text.total(o)
    rows.append([tag("b", figure) for figure in (name, mean, share, *others)])
    title = stages_text.title(o)
    return tag(
        "figure",
        tag("h4", title, tag("span", f" {stages_text.requests(o)}", class_="dim")),
        _bar(o),
        table(("", "mean", "share", "p50", "p99", "max"), rows, "<>>>>>"),
    )


def colour(stage: str) -> str:
    """Return the stage's CSS class; for joined stages the first one's, paler."""
    first, *others = stage.split("+")
    return f"s-{first} joined" if others else f"s-{first}"


def colours() -> str:
    """Return the CSS rules of the stages' colours. report.css may replace a variable."""
    named = {name: words[3] for name, words in words_text.WORDS.items()}
    variables = "\n".join(f"  --s-{name}: {value};" for name, value in named.items())
    classes = "\n".join(f".s-{name} {{ --kind: var(--s-{name}); }}" for name in named)
    return f":root {{\n{variables}\n}}\n{classes}\n"


def letters(stage: str) -> str:
    return "".join(words_text.WORDS[name][2] for name in stage.split("+"))


def stage_legend(names: Iterable[str], say: Callable[[str], str]) -> Markup:
    order = [*words_text.WORDS]
    known = sorted(names, key=lambda name: (order.index(name.split("+")[0]), name))
    return legend((colour(name), say(name)) for name in known)


def sentence(line: str) -> str:
    return f"{line[:1].upper()}{line[1:]}."
