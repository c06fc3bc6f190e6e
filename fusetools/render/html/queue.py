"""Report section: the daemon's queue."""

from __future__ import annotations

from collections.abc import Sequence

from fusetools.figures import number, plural
from fusetools.render.html.markup import Markup, join, note, tag
from fusetools.render.html.plots import Level, levels
from fusetools.render.text import queue as queue_text
from fusetools.results.queue import MountQueue, Queue


def render(result: Queue) -> Markup:
    return join(map(_mount, result.mounts)) if result.mounts else tag("p", "No requests.")


def _mount(m: MountQueue) -> Markup:
    whole = m.whole
    served = f"{plural(m.requests, 'request')}, served by {plural(m.threads, 'thread')}"

    def level(name: str, kind: str, values: Sequence[tuple[float, int]], top: float) -> Level:
        mean, most = values[0]
        figures = f"mean {number(mean)}, most {number(most)}; the height is {number(top)}"
        swatch = tag("span", class_=f"swatch {kind}")
        heading = join(swatch, tag("b", name), " ", tag("span", figures, class_="dim"))
        return Level(heading, kind, values[1:], top)

    every = [whole, *m.parts]
    queued = [(part.mean_queued, part.most_queued) for part in every]
    busy = [(part.mean_busy, part.most_busy) for part in every]
    shown = [
        level("requests in the queue", "s-queue", queued, max(mean for mean, _ in queued)),
        level("threads at work", "s-daemon", busy, m.threads),
    ]
    verdict = [tag("p", " ".join(line.strip() for line in queue_text.verdict(m)))]
    return tag(
        "figure",
        tag("h4", f"{m.mount}: {served}"),
        verdict,
        levels(shown, m.start_ns, m.end_ns, m.mount),
        note(f"Each bar is the mean of 1/{len(m.parts)} of the time."),
    )
