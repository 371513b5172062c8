"""``report.html``: the report as a page of its own, without scripts or anything from the network."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ..clouds import decode_cloud
from ..clouds.bags import Recording, deserialize_cloud, open_recording
from .charts import COLOURS, Values, histogram, over_time, picture, spark_histogram

MOST_PICTURES = 4
_CSS = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1c2733;--soft:#5d6b7a;--card:#f5f7f9;--line:#dde3e9;--warn:#9a5b00;
--warnpaper:#fff6e5}
@media(prefers-color-scheme:dark){:root{--paper:#12171d;--ink:#e3e8ee;--soft:#97a4b2;--card:#1a2129;--line:#2c3640;
--warn:#ffc061;--warnpaper:#2b2313}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:28px 18px 48px}h1{font-size:1.5rem;margin:0;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:36px 0 12px}.soft{color:var(--soft)}p{margin:6px 0}
.tiles,.grid{display:grid;gap:12px}.tiles{grid-template-columns:repeat(auto-fit,minmax(150px,1fr));margin-top:20px}
.grid{grid-template-columns:repeat(auto-fit,minmax(min(340px,100%),1fr))}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 14px;min-width:0;margin:0}
.tile b{display:block;font-size:1.45rem;font-weight:600;line-height:1.25}.tile span{color:var(--soft);font-size:.85rem}
figcaption{font-weight:600;margin-bottom:6px}figcaption .soft{font-weight:400}svg{display:block;width:100%;height:auto}
img{display:block;width:100%;border-radius:6px}.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:5px 7px;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:500;font-size:.85rem}th:first-child,td:first-child{text-align:left;padding-left:0}
td.text{white-space:normal;overflow-wrap:anywhere;text-align:left;min-width:220px}td svg{width:90px;margin-left:auto}
th.text{text-align:left}
.warn{background:var(--warnpaper);color:var(--warn);border-radius:10px;padding:10px 16px;margin-top:18px}
.warn ul{margin:4px 0;padding-left:18px}.warn li,dd{overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 16px;margin:0}dt{color:var(--soft)}dd{margin:0;
min-width:0}@media(max-width:560px){main{padding:20px 12px}table{font-size:.85rem}td svg{width:56px}th,td{padding:4px}}
.key{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px}.keys{margin:0 0 6px}
.keys span{margin-right:14px;white-space:nowrap}footer{margin-top:36px;color:var(--soft);font-size:.85rem}
"""


class Markup(str):
    """Text that is HTML already."""


def tag(name: str, *children: object, **attributes: str) -> Markup:
    """An element; whatever is not `Markup` is escaped, so that no text of a bag can become markup."""
    words = "".join(f' {key.rstrip("_")}="{escape(value)}"' for key, value in attributes.items())
    inner = "".join(child if isinstance(child, Markup) else escape(str(child)) for child in children)
    return Markup(f"<{name}{words}>{inner}</{name}>")


def write_page(report: dict[str, Any], bag: Recording, written: Path) -> str:
    """Return the page.

    Args:
        report: what `make_report` returned.
        bag: the bag that was read, for the pictures.
        written: the finished bag's folder.
    """
    name = Path(report["bag"]).resolve().name
    body = tag(
        "main",
        tag("h1", name),
        tag("p", _headline(report), class_="soft"),
        _warnings(report["warnings"]),
        _tiles(report),
        tag("h2", "Topics"),
        _topics(report),
        tag("h2", "Clouds from above"),
        tag("div", *_pictures(report, bag, written), class_="grid"),
        tag("h2", "Over time"),
        tag("div", *_time_charts(report), class_="grid"),
        tag("h2", "Time a cloud takes"),
        _latency(report),
        *_refusals(report),
        tag("h2", "Settings and machine"),
        tag("div", _settings(report), _machine(report), class_="grid"),
        tag(
            "footer",
            f"Written by {report['program']}. All numbers, frame by frame, are in report.json beside this page.",
        ),
    )
    head = tag(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'),
        tag("title", f"{name}: processed"),
        tag("style", Markup(_CSS)),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', body), lang='en')}\n"


def _headline(report: dict[str, Any]) -> str:
    date = datetime.datetime.fromisoformat(report["date"]).strftime("%d %B %Y, %H:%M")
    stops = report["interruptions"]
    stopped = "" if not stops else f", interrupted {'once' if stops == 1 else f'{stops} times'}"
    return f"{report['counts']['clouds']:,} clouds in {_duration(report['seconds'])}{stopped}, finished {date}"


def _tiles(report: dict[str, Any]) -> Markup:
    counts, total, coverage = report["counts"], report["milliseconds"]["total"], report["coverage_radius"]
    rate = report["frames_per_second"]
    tiles = [
        (f"{counts['processed']:,}", "clouds processed"),
        (f"{counts['refused']:,}", "refused"),
        ("-" if rate is None else f"{rate:,.1f}", "clouds a second"),
        (f"{_number(total['p50'])} ms", "a cloud, median"),
        (f"{_number(total['p99'])} ms", "a cloud, 99 of 100 within"),
        (f"{_number(coverage['p50'])} m", "coverage radius, median"),
    ]
    return tag(
        "div",
        *(tag("div", tag("b", value), tag("span", what), class_="card tile") for value, what in tiles),
        class_="tiles",
    )


def _warnings(sentences: Sequence[str]) -> Markup:
    if not sentences:
        return Markup("")
    return tag(
        "div", tag("b", "To be noted"), tag("ul", *(tag("li", sentence) for sentence in sentences)), class_="warn"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    lines = [tag("tr", *(cell if isinstance(cell, Markup) else tag("td", cell) for cell in row)) for row in rows]
    table = tag(
        "table",
        tag("thead", tag("tr", *(word if isinstance(word, Markup) else tag("th", word) for word in head))),
        tag("tbody", *lines),
    )
    return tag("div", tag("div", table, class_="wide"), class_="card")


def _left(word: str) -> Markup:
    return tag("th", word, class_="text")


def _topics(report: dict[str, Any]) -> Markup:
    rows = [
        (
            t["name"],
            f"{t['processed']:,}",
            f"{t['refused']:,}",
            f"{t['points_in']:,}",
            f"{t['samples']:,}",
            tag("td", ", ".join(f"{name} ({count:,})" for name, count in t["outputs"].items()), class_="text"),
        )
        for t in report["topics"]
    ]
    rows += [
        (name, "copied", "", "", "", tag("td", f"{name} ({count:,})", class_="text"))
        for name, count in report["copied_topics"].items()
    ]
    return _table(("topic", "processed", "refused", "points in", "samples", _left("written (messages)")), rows)


def _answered(report: dict[str, Any], *names: str) -> list[tuple[str, str, list[Values]]]:
    """For each topic its colour, its name, and columns of its processed frames (None becomes NaN)."""
    frames = report["frames"]
    origin = min(frames["time"], default=0)
    topics = np.array(frames["topic"], object)
    processed = ~np.array(frames["refused"], bool)
    seconds = np.array([(time - origin) / 1e9 for time in frames["time"]], np.float64)
    columns = [np.array(frames[name], np.float64) for name in names]
    chosen = []
    for k, topic in enumerate(report["topics"]):
        mine = processed & (topics == topic["name"])
        if mine.any():
            chosen.append((COLOURS[k % len(COLOURS)], topic["name"], [c[mine] for c in (seconds, *columns)]))
    return chosen


def _keys(entries: Iterable[tuple[str, str]]) -> Markup:
    spans = [tag("span", tag("i", class_="key", style=f"background:{colour}"), name) for colour, name in entries]
    return tag("p", *spans, class_="keys soft")


def _time_charts(report: dict[str, Any]) -> list[Markup]:
    lines = _answered(report, "coverage_radius", "points_in", "samples")
    keys = _keys((colour, name) for colour, name, _ in lines)
    charts = (
        ("Coverage radius", "farthest any point lies from its nearest sample", "m", 1),
        ("Points in", "a cloud", "points", 2),
        ("Samples", "a cloud", "samples", 3),
    )
    return [
        _figure(title, what, keys, Markup(over_time([(colour, c[0], c[k]) for colour, _, c in lines], unit)))
        for title, what, unit, k in charts
    ]


def _figure(title: str, what: str, *content: Markup) -> Markup:
    return tag("figure", tag("figcaption", f"{title} ", tag("span", what, class_="soft")), *content, class_="card")


def _latency(report: dict[str, Any]) -> Markup:
    refused = np.array(report["frames"]["refused"], bool)
    stages, columns = report["milliseconds"], report["frames"]["milliseconds"]

    def values(name: str) -> Values:
        column: Values = np.array(columns[name], np.float64)[~refused]
        return np.asarray(column[np.isfinite(column)])

    marks = {f"{p} {_number(stages['total'][p])} ms": stages["total"][p] for p in ("p50", "p90", "p99")}
    side = f"{report['workers']} side by side" if report["workers"] > 1 else "one after another"
    whole = _figure(
        "From bytes to bytes", f"in its worker; {side}", Markup(histogram(values("total"), marks, "milliseconds"))
    )
    rows = [
        (
            name.replace("_", " "),
            tag("td", Markup(spark_histogram(values(name)))),
            *(_number(stage[key]) for key in ("p50", "p90", "p99", "max")),
        )
        for name, stage in stages.items()
    ]
    return tag("div", whole, _table(("stage [ms]", "up to p99", "p50", "p90", "p99", "max"), rows), class_="grid")


def _refusals(report: dict[str, Any]) -> list[Markup]:
    parts = []
    for key, title in (("refusals", "Refused clouds"), ("missing_features", "Clouds without features")):
        if report[key]:
            rows = [(f"{kind['count']:,}", tag("td", kind["first"], class_="text")) for kind in report[key]]
            parts += [tag("h2", title), _table(("clouds", _left("why (the first of its kind)")), rows)]
    return parts


def _settings(report: dict[str, Any]) -> Markup:
    pairs = {"bag": report["bag"], "output": f"{report['output']} ({report['storage']})"}
    for name, value in report["settings"].items():
        if value is None or value == []:
            continue
        if isinstance(value, dict):
            text = "; ".join(f"{key} {_words(entry)}" for key, entry in value.items())
        else:
            text = _words(value)
        pairs[f"--{name}"] = text
    return _pairs("Settings", pairs)


def _machine(report: dict[str, Any]) -> Markup:
    m = report["machine"]
    pairs = {
        "program": report["program"],
        "backend": f"{report['backend']} ({report['backend_reason']}), {report['workers']} clouds side by side",
        "weights": report["weights"] or "none: no features",
        "processor": f"{m['processor']}, {m['cores']} cores",
        "memory": f"{m['memory_gb']} GB",
        "system": f"{m['system']}, Python {m['python']}",
    }
    return _pairs("Machine", pairs)


def _pairs(title: str, pairs: dict[str, str]) -> Markup:
    entries = [part for name, text in pairs.items() for part in (tag("dt", name), tag("dd", text))]
    return _figure(title, "", tag("dl", *entries))


def _pictures(report: dict[str, Any], bag: Recording, written: Path) -> list[Markup]:
    frames = report["frames"]
    origin = min(frames["time"])
    figures = []
    with open_recording(written) as result:
        for k in _chosen_frames(report):
            topic, time = frames["topic"][k], frames["time"][k]
            cloud, samples = (
                decode_cloud(deserialize_cloud(cdr)).xyz
                for cdr in (bag.at(topic, time), result.at(f"{topic}/sampled", time))
            )
            png = base64.b64encode(picture(cloud, samples, "")).decode()
            image = Markup(f'<img alt="cloud from above" src="data:image/png;base64,{png}">')
            figures.append(
                _figure(
                    topic,
                    f"after {(time - origin) / 1e9:.2f} s: {len(cloud):,} points, {len(samples):,} samples",
                    image,
                )
            )
    return figures


def _chosen_frames(report: dict[str, Any]) -> list[int]:
    """A few processed frames: of one topic the first, the middle and the last, of several the middle one each."""
    frames = report["frames"]
    chosen: list[int] = []
    topics = [topic["name"] for topic in report["topics"] if topic["processed"]]
    for name in topics[:MOST_PICTURES]:
        mine = [k for k, topic in enumerate(frames["topic"]) if topic == name and not frames["refused"][k]]
        places = (0, len(mine) // 2, len(mine) - 1) if len(topics) == 1 else (len(mine) // 2,)
        chosen += dict.fromkeys(mine[place] for place in places)
    return chosen


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _words(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"
