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
from absl.flags import DEFINE_float

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
    side = Side({}, {}, set(), ",".join(_split(part)[0] for part in text.split(",")))
    for part in text.split(","):
        path, engine = _split(part)
        for row in files.read(path, files.SCHEMA)["rows"]:
            for label, entry in row["engines"].items():
                if engine not in ("", label):
                    continue
                # An engine that was picked out is compared under no name, with any other.
                names = (row[name] for name in ("layer", "op", "dtype", "layout"))
                key = (*names, "" if engine else label)
                side.classes[key] = row["class"]
                if entry["status"] == "ok":
                    side.rounds.setdefault(key, []).append(entry["rounds_ms"])
                else:
                    side.failed.add(key)
    return side


def compare(a: Side, b: Side, confidence: float, seed: int = 0) -> dict[str, dict]:
    """Changes of every row that both sides measured, and means of all and of each class.

    Keys of "rows" and "few" are rows' keys; those of "all" and "classes" an engine and a class. A
    mean is geometric, and its interval comes from the same draws. "few" has the rounds of rows that
    have too few to say anything; they are in no mean.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, dict] = {"rows": {}, "few": {}, "all": {}, "classes": {}}
    logs: dict[tuple[str, str, str], list] = defaultdict(list)
    for key in (key for key in a.rounds if key in b.rounds):
        counts = [sum(map(len, side.rounds[key])) for side in (a, b)]
        if min(counts) < LEAST_ROUNDS:
            found["few"][key] = counts
            continue
        draws = _draws(a.rounds[key], b.rounds[key], a.source == b.source, rng)
        middles = (np.mean([np.median(r) for r in side.rounds[key]]) for side in (a, b))
        change = [np.log(after) - np.log(before) for before, after in (middles, draws)]
        found["rows"][key] = _change(*change, confidence)
        for group in (("classes", key[-1], a.classes[key]), ("all", key[-1], "all")):
            logs[group].append(change)
    for (kind, *group), changes in logs.items():
        ratios, draws = zip(*changes, strict=True)
        mean = _change(np.mean(ratios), np.mean(draws, axis=0), confidence)
        found[kind][tuple(group)] = mean
    return found


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


def _change(ratio: float, draws: np.ndarray, confidence: float) -> Change:
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Change(*(float(np.exp(x)) for x in (ratio, low, high)))


def _split(part: str) -> tuple[str, str]:
    path, _, engine = part.partition(".csv@")
    return (f"{path}.csv", engine) if engine else (part, "")


def main(argv: Sequence[str]) -> int:
    """Print the changes; the exit code is 1 if anything is slower."""
    what = "what got faster and slower, and how surely"
    command = flags.Command("benchmarks.compare", what, "A.csv", "B.csv")
    own = command.own
    DEFINE_float("threshold", 0.05, "a change up to this is no change", **own)
    DEFINE_float("confidence", 0.99, "of each interval, two-sided", **own)
    asked = command.read(argv)
    before, after = asked.operands
    a, b = map(read, asked.operands)
    changes = compare(a, b, asked.confidence)
    rows, few = changes["rows"], changes["few"]
    if not rows and not few:
        command.fail("the two sides share no row that both measured")
    print(f"time of {after} / time of {before}, {asked.confidence:.1%} intervals")
    slower = {}
    titles = {"all": "all rows, geometric mean", "classes": "by class", "rows": "rows"}
    for kind, title in titles.items():
        print(title)
        verdicts = {key: change.verdict(asked.threshold) for key, change in changes[kind].items()}
        slower[kind] = list(verdicts.values()).count("slower")
        for key, change in sorted(changes[kind].items(), key=lambda item: -item[1].ratio):
            if verdicts[key] or kind != "rows":
                interval = f"[{change.low:.3f}, {change.high:.3f}]"
                name = " ".join(filter(None, key))
                print(f"  {change.ratio:7.3f}  {interval:>16}  {verdicts[key]:6}  {name}")
    only_a = sorted(a.rounds.keys() - b.rounds.keys())
    for key in only_a:
        became = "fails" if key in b.failed else "is not there"
        print(f"  {' '.join(key)} {became} in {after}")
    for key, counts in sorted(few.items()):
        print(f"  {' '.join(key)} has too few rounds: {counts[0]} and {counts[1]}")
    if a.source != b.source and min(len(r) for x in (a, b) for r in x.rounds.values()) == 1:
        print(
            "one run a side: what differs between runs (clocks, neighbours) is not in the "
            "intervals; give several, joined by commas, or compare engines of one run"
        )
    broken = sum(key in b.failed for key in only_a)
    short = sum(counts[0] >= LEAST_ROUNDS for counts in few.values())
    means, chance = slower["all"] + slower["classes"], len(rows) * (1 - asked.confidence) / 2
    print(
        f"{slower['rows']} rows and {means} means slower, {broken} newly failing, "
        f"{short} newly below {LEAST_ROUNDS} rounds; were nothing changed and the "
        f"threshold 0, about {chance:.1f} of {len(rows)} rows would look slower"
    )
    return 1 if slower["rows"] or means or broken or short else 0


if __name__ == "__main__":
    flags.run(main)
