"""`python -m benchmarks.compare A.csv B.csv`: what got faster and slower, and how surely.

Each side is one results file or several of repeated runs, joined by commas; `FILE@ENGINE`
takes one engine of a file, so that two engines of one interleaved run can be compared. The
ratio is time of B over time of A: below 1 is faster.

Noise: a row's time is the median over its rounds, and its uncertainty is found by the
bootstrap: runs, and rounds within a run, are drawn again with replacement. When both sides
are the same files, the same rounds are drawn for both, as their noise is shared. Only an
interval that lies wholly beyond the threshold counts. The exit code is 1 if anything is
slower, or newly fails or has too few rounds to tell, else 0.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from absl.flags import DEFINE_boolean, DEFINE_float, DEFINE_string

from benchmarks import files, flags

DRAWS = 2000
LEAST_ROUNDS = 3

Key = tuple[str, ...]  # layer, op, dtype, layout, engine


@dataclass(frozen=True)
class Change:
    """A ratio of times with its interval."""

    ratio: float
    low: float
    high: float

    def verdict(self, threshold: float) -> str:
        """faster or slower if that is sure, else nothing."""
        if self.low > 1 + threshold:
            return "slower"
        return "faster" if self.high < 1 / (1 + threshold) else ""


@dataclass(frozen=True)
class Side:
    """Rounds of every row: a list per run."""

    rounds: dict[Key, list[list[float]]]
    classes: dict[Key, str]
    failed: set[Key]
    source: str


def read(text: str) -> Side:
    """The runs of one side of the comparison."""
    rounds: dict[Key, list[list[float]]] = defaultdict(list)
    classes: dict[Key, str] = {}
    failed = set()
    for part in text.split(","):
        path, engine = _split(part)
        for row in files.read(path)["rows"]:
            for label, entry in row["engines"].items():
                if engine not in ("", label):
                    continue
                # An engine that was picked out is compared under no name, with any other.
                key = (
                    row["layer"],
                    row["op"],
                    row["dtype"],
                    row["layout"],
                    "" if engine else label,
                )
                classes[key] = row["class"]
                if entry["status"] == "ok":
                    rounds[key].append(entry["rounds_s"])
                else:
                    failed.add(key)
    source = ",".join(_split(part)[0] for part in text.split(","))
    return Side(dict(rounds), classes, failed, source)


def compare(a: Side, b: Side, confidence: float, seed: int = 0) -> dict:
    """Changes of every row that both sides measured, of every class, and of all of them.

    Keys of "rows" are rows' keys; of "classes" (engine, class); of "all" engines. A mean of
    several rows is geometric, and its interval comes from the same draws. "few" are rows with
    too few rounds to say anything; they are in no mean.
    """
    rng = np.random.default_rng(seed)
    shared = a.source == b.source
    rows: dict[Key, Change] = {}
    few: set[Key] = set()
    logs: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)
    centre: dict[tuple[str, str], list[float]] = defaultdict(list)
    for key in a.rounds:
        if key not in b.rounds:
            continue
        if min(sum(map(len, side.rounds[key])) for side in (a, b)) < LEAST_ROUNDS:
            few.add(key)
            continue
        draw_a, draw_b = _draws(a.rounds[key], b.rounds[key], shared, rng)
        ratios = np.log(draw_b) - np.log(draw_a)
        ratio = np.log(_middle(b.rounds[key]) / _middle(a.rounds[key]))
        rows[key] = _change(ratio, ratios, confidence)
        for group in ((key[-1], a.classes[key]), (key[-1], "")):
            logs[group].append(ratios)
            centre[group].append(ratio)
    means = {
        group: _change(float(np.mean(centre[group])), np.mean(logs[group], axis=0), confidence)
        for group in logs
    }
    return {
        "rows": rows,
        "few": few,
        "classes": {group: change for group, change in means.items() if group[1]},
        "all": {group[0]: change for group, change in means.items() if not group[1]},
    }


def _draws(a: list[list[float]], b: list[list[float]], shared: bool, rng) -> tuple:
    if not shared or [len(r) for r in a] != [len(r) for r in b]:
        return _bootstrap(a, rng), _bootstrap(b, rng)
    seed = rng.integers(1 << 62)
    return tuple(_bootstrap(side, np.random.default_rng(seed)) for side in (a, b))


def _bootstrap(runs: list[list[float]], rng) -> np.ndarray:
    """DRAWS times the mean over redrawn runs of the median over redrawn rounds."""
    medians = np.empty((len(runs), DRAWS))
    for n, rounds in enumerate(runs):
        picks = rng.integers(len(rounds), size=(DRAWS, len(rounds)))
        medians[n] = np.median(np.asarray(rounds)[picks], axis=1)
    picks = rng.integers(len(runs), size=(DRAWS, len(runs)))
    return np.take_along_axis(medians.T, picks, axis=1).mean(axis=1)


def _middle(runs: list[list[float]]) -> float:
    return float(np.mean([np.median(r) for r in runs]))


def _change(ratio: float, draws: np.ndarray, confidence: float) -> Change:
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Change(*(float(np.exp(x)) for x in (ratio, low, high)))


def _split(part: str) -> tuple[str, str]:
    path, _, engine = part.partition(".csv@")
    return (f"{path}.csv", engine) if engine else (part, "")


def _show(name: str, change: Change, verdict: str) -> None:
    interval = f"[{change.low:.3f}, {change.high:.3f}]"
    print(f"  {change.ratio:7.3f}  {interval:>16}  {verdict:6}  {name}")


def main(argv: Sequence[str]) -> int:
    """Print the changes; the exit code is 1 if anything is slower."""
    told = "what got faster and slower, and how surely"
    command = flags.Command("benchmarks.compare", told, "A.csv", "B.csv")
    own = command.own
    DEFINE_float("threshold", 0.05, "a change up to this is no change", **own)
    DEFINE_float("confidence", 0.99, "of each interval, two-sided", **own)
    DEFINE_string("only", "", "engines joined by commas; default all that both sides have", **own)
    DEFINE_boolean("all", False, "list rows without a change too", **own)
    asked = command.read(argv)
    paths = asked.operands
    a, b = map(read, paths)
    changes = compare(a, b, asked.confidence)
    threshold, wanted = asked.threshold, set(filter(None, asked.only.split(",")))

    def keep(engine: str) -> bool:
        return not wanted or engine in wanted

    rows = {k: c for k, c in changes["rows"].items() if keep(k[-1])}
    few = sorted(key for key in changes["few"] if keep(key[-1]))
    if not rows and not few:
        command.fail("the two sides share no row that both measured")
    print(f"time of {paths[1]} / time of {paths[0]}, {asked.confidence:.1%} intervals")
    slower = {"rows": 0, "means": 0}
    for title, group in (
        ("all rows, geometric mean", {(e, "all"): c for e, c in changes["all"].items() if keep(e)}),
        ("by class", {k: c for k, c in changes["classes"].items() if keep(k[0])}),
        ("rows", rows),
    ):
        print(title)
        for key, change in sorted(group.items(), key=lambda item: -item[1].ratio):
            verdict = change.verdict(threshold)
            slower["rows" if title == "rows" else "means"] += verdict == "slower"
            if verdict or title != "rows" or asked.all:
                _show(" ".join(filter(None, key)), change, verdict)
    only_a = {k for k in a.rounds.keys() - b.rounds.keys() if keep(k[-1])}
    for key in sorted(only_a):
        became = "fails" if key in b.failed else "is not there"
        print(f"  {' '.join(key)} {became} in {paths[1]}")
    short = 0
    for key in few:
        before, after = (sum(map(len, side.rounds[key])) for side in (a, b))
        print(f"  {' '.join(key)} has too few rounds: {before} and {after}")
        short += before >= LEAST_ROUNDS
    broken = sum(key in b.failed for key in only_a)
    runs = min(len(r) for side in (a, b) for r in side.rounds.values())
    if runs == 1 and a.source != b.source:
        print(
            "one run a side: what differs between runs (clocks, neighbours) is not in the "
            "intervals; give several, joined by commas, or compare engines of one run"
        )
    chance = len(rows) * (1 - asked.confidence) / 2
    print(
        f"{slower['rows']} rows and {slower['means']} means slower, {broken} newly failing, "
        f"{short} newly below {LEAST_ROUNDS} rounds; were nothing changed and the "
        f"threshold 0, about {chance:.1f} of {len(rows)} rows would look slower"
    )
    return 1 if any(slower.values()) or broken or short else 0


if __name__ == "__main__":
    flags.run(main)
