"""`python -m benchmarks.report RESULTS.csv`: one HTML page."""

import html
import io
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from absl.flags import DEFINE_string

from benchmarks import files, flags
from benchmarks.rounds import geometric_mean

matplotlib.use("svg")
import matplotlib.pyplot as plt

# Okabe and Ito's colours, told apart by every kind of eye; and a marker for each.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
MARKERS = "osD^vP*"
OPS = ("forward", "data", "weights", "step")

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem } h2 { font-size: 1.25rem; margin-top: 2.2rem }
p.note { color: #555; max-width: 46rem } svg { width: 100%; height: auto }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem }
dt { color: #555 } dd { margin: 0 }
div.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap }
th { border-bottom: 2px solid #1a1a1a; position: sticky; top: 0; background: #fff }
td:first-child, th:first-child { text-align: left }
tr:nth-child(even) td { background: #f4f6f8 }
td.best { font-weight: 700 } td.bad { color: #8a3b00; font-style: italic }
"""


def speedups(rows: list[dict], subject: str) -> dict[tuple[str, str], dict[str, list[float]]]:
    """By (class, op): for every other engine, its times over the subject's."""
    found: dict = defaultdict(lambda: defaultdict(list))
    for row in rows:
        own = row["engines"].get(subject)
        if not own or own["status"] != "ok":
            continue
        for label, entry in row["engines"].items():
            if label != subject and entry["status"] == "ok":
                ratio = entry["median_s"] / own["median_s"]
                found[row["class"], row["op"]][label].append(ratio)
    return {group: dict(engines) for group, engines in found.items()}


def page(results: dict, subject: str) -> str:
    """The whole page."""
    rows = results["rows"]
    parts = [_heading(results)]
    table = speedups(rows, subject)
    if table:
        parts.append(f"<h2>How many times faster {html.escape(subject)} is</h2>")
        parts.append(
            '<p class="note">Time of the other engine over the time of the subject, geometric '
            "mean over a class's layers, with each layer as a dot. Right of the line the subject "
            "is faster. The scale is logarithmic.</p>"
        )
        parts.append(_speedup_plot(table, list(results["engines"])))
    if any("roofline" in e for row in rows for e in row["engines"].values()):
        parts.append("<h2>Against the machine's roofline</h2>")
        parts.append(
            '<p class="note">Each point is a layer: its floating-point operations per byte of '
            "input and output, and the rate achieved. The lines are a copy and a matrix product "
            "measured in the same run. Layers that fit in cache can lie above the copy's.</p>"
        )
        parts.append(_roofline_plot(results))
    parts.append("<h2>Every row</h2>")
    parts.append(
        '<p class="note">Median milliseconds over the rounds, and in brackets the share of the '
        "roofline. The fastest is bold; what has no time says why when pointed at.</p>"
    )
    parts.append(_rows_table(results))
    title = html.escape(f"Convolution benchmarks: {_about(results)}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{title}</title>'
        f"<style>{STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _about(results: dict) -> str:
    machine = results["machine"]
    return f"{machine['cpu']}, {machine['cores']} cores, {results['date'][:10]}"


def _heading(results: dict) -> str:
    machine, git = results["machine"], results["git"]
    facts = {
        "Processor": f"{machine['cpu']}, {machine['cores']} cores",
        "Instructions": ", ".join(machine["isa"]),
        "Memory": f"{machine['memory_bytes'] / 2**30:.0f} GiB",
        "Measured": f"{results['date']}, in {results['seconds'] / 60:.1f} minutes",
        "Revision": git.get("commit", "unknown")[:12] + (" with changes" * git.get("changed", 0)),
        "Flags": " ".join(results["command"]),
    }
    for label, versions in results["engines"].items():
        told = ", ".join(f"{k} {v}" for k, v in versions.items()) if versions else "not there"
        facts[f"Engine {label}"] = told
    listed = "".join(
        f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in facts.items() if v
    )
    return f"<h1>Convolution benchmarks</h1><dl>{listed}</dl>"


def _speedup_plot(table: dict, engines: list[str]) -> str:
    ops = [op for op in OPS if any(op == o for _, o in table)]
    classes = list(dict.fromkeys(c for c, _ in table))
    others = [e for e in engines if any(e in t for t in table.values())]
    height = 0.22 * len(classes) * len(others) + 0.3 * len(classes) + 1
    figure, axes = plt.subplots(
        1, len(ops), figsize=(12, height), sharey=True, sharex=True, squeeze=False
    )
    step = 0.8 / len(others)
    for axis, op in zip(axes[0], ops, strict=True):
        for n, engine in enumerate(others):
            colour = COLOURS[n % len(COLOURS)]
            for y, name in enumerate(classes):
                ratios = table.get((name, op), {}).get(engine)
                if not ratios:
                    continue
                at, mean = y + (n - (len(others) - 1) / 2) * step, geometric_mean(ratios)
                axis.barh(at, mean - 1, step * 0.92, left=1, color=colour, alpha=0.45)
                axis.plot(ratios, [at] * len(ratios), ".", color=colour, ms=4)
                beyond = max(*ratios, mean) if mean >= 1 else min(*ratios, mean)
                axis.annotate(
                    f"{mean:.1f}x",
                    (beyond, at),
                    (4 if mean >= 1 else -4, 0),
                    textcoords="offset points",
                    ha="left" if mean >= 1 else "right",
                    va="center",
                    fontsize=7.5,
                )
        axis.axvline(1, color="#1a1a1a", lw=1)
        axis.set(xscale="log", title=_op_title(op), xlabel="times faster")
        axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axis.grid(axis="x", color="#ddd", lw=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_yticks(range(len(classes)), classes)
    axes[0][0].invert_yaxis()
    keys = [
        plt.Rectangle((0, 0), 1, 1, color=COLOURS[n % 7], alpha=0.6) for n in range(len(others))
    ]
    figure.legend(
        keys, [f"against {e}" for e in others], loc="upper center", ncols=6, frameon=False
    )
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.45 / height))
    return _svg(figure)


def _roofline_plot(results: dict) -> str:
    roof, engines = results["roofline"], list(results["engines"])
    dtypes = [d for d, rate in roof["flops_per_s"].items() if rate]
    figure, axes = plt.subplots(
        1, len(dtypes), figsize=(12, 6 if len(dtypes) == 1 else 4.5), sharey=True, squeeze=False
    )
    for axis, dtype in zip(axes[0], dtypes, strict=True):
        rows = [r for r in results["rows"] if r["dtype"] == dtype]
        for n, engine in enumerate(engines):
            points = [
                (r["flops"] / r["bytes"], r["flops"] / r["engines"][engine]["median_s"] / 1e9)
                for r in rows
                if r["engines"].get(engine, {}).get("status") == "ok"
            ]
            if points:
                style = {"marker": MARKERS[n % 7], "s": 26, "alpha": 0.7, "linewidths": 0}
                axis.scatter(
                    *zip(*points, strict=True), color=COLOURS[n % 7], label=engine, **style
                )
        peak, band = roof["flops_per_s"][dtype] / 1e9, roof["bytes_per_s"] / 1e9
        intensity = [r["flops"] / r["bytes"] for r in rows]
        at = np.geomspace(min(intensity) / 2, max(intensity) * 2, 200)
        axis.plot(at, np.minimum(at * band, peak), color="#1a1a1a", lw=1.2)
        axis.set(xscale="log", yscale="log", title=dtype, xlabel="operations per byte")
        axis.annotate(
            f"matmul {peak:.0f} GFLOP/s, copy {band:.0f} GB/s",
            (0.02, 0.96),
            fontsize=9,
            xycoords="axes fraction",
        )
        axis.grid(color="#e4e4e4", lw=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("GFLOP/s")
    axes[0][-1].legend(loc="lower right", frameon=False)
    figure.tight_layout()
    return _svg(figure)


def _rows_table(results: dict) -> str:
    engines = list(results["engines"])
    head = "".join(f"<th>{html.escape(e)}</th>" for e in ("layer", "op", "type", *engines))
    lines = []
    for row in results["rows"]:
        entries = [row["engines"].get(e, {"status": "not run"}) for e in engines]
        best = min((e["median_s"] for e in entries if e["status"] == "ok"), default=math.nan)
        cells = "".join(_cell(entry, best) for entry in entries)
        name = html.escape(row["layer"])
        told = html.escape(row.get("problem", ""), quote=True)
        kind = html.escape(f"{row['dtype']} {row['layout']}")
        lines.append(
            f'<tr><td title="{told}">{name}</td><td>{row["op"]}</td><td>{kind}</td>{cells}</tr>'
        )
    body = "".join(lines)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _cell(entry: dict, best: float) -> str:
    if entry["status"] != "ok":
        reason = html.escape(entry.get("reason", ""), quote=True)
        return f'<td class="bad" title="{reason}">{html.escape(entry["status"])}</td>'
    share = entry.get("roofline")
    text = _digits(1e3 * entry["median_s"]) + (f" ({share:.0%})" if share else "")
    kind = ' class="best"' if entry["median_s"] == best else ""
    return f"<td{kind}>{text}</td>"


def _digits(x: float) -> str:
    """Three significant digits without an exponent."""
    return f"{x:.{max(0, 2 - math.floor(math.log10(x)))}f}"


def _op_title(op: str) -> str:
    return {"data": "data gradient", "weights": "weights gradient", "step": "training step"}.get(
        op, op
    )


def _svg(figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def main(argv: Sequence[str]) -> None:
    """Write the page next to the results."""
    told = "one HTML page of a results file"
    command = flags.Command("benchmarks.report", told, "RESULTS.csv")
    DEFINE_string("html", None, "where the page goes; default RESULTS.html", **command.own)
    subject = "the engine that is held against the others"
    DEFINE_string("subject", "jaxconv", subject, **command.own)
    asked = command.read(argv)
    path = Path(asked.operands[0])
    results = files.read(path)
    if asked.subject not in results["engines"]:
        command.fail(f"--subject: no {asked.subject}; known: {', '.join(results['engines'])}")
    out = Path(asked.html) if asked.html else path.with_suffix(".html")
    out.write_text(page(results, asked.subject))
    print(out)


if __name__ == "__main__":
    flags.run(main)
