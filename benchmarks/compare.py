"""`python -m benchmarks.compare RUN.csv BEFORE AFTER`: what got faster and slower, and how surely.

BEFORE and AFTER are engines of one run, whose rounds took turns: what differs between runs, such as
clocks and neighbours, is more than most changes. The ratio is time of AFTER over time of BEFORE, of
the fastest calls, so below 1 is faster; means are geometric. Only a row counts that changed by more
than the threshold, and in which every round of one engine beat every round of the other. The exit
code is 1 if a row is slower, or newly fails, else 0.
"""

import math
from collections.abc import Sequence

from absl.flags import DEFINE_float

from benchmarks import files, flags
from benchmarks.summary import geometric_mean, grouped, time_of

#: Chance of an order of rounds, if nothing changed, that counts: three rounds each have one of 20.
MOST_CHANCE = 0.05


def verdict(before: dict, after: dict, threshold: float) -> str:
    """What became of a row's time, if that is sure: faster or slower."""
    if chance(before, after) > MOST_CHANCE:
        return ""
    ratio = after["min_ms"] / before["min_ms"]
    one, other = before["rounds_ms"], after["rounds_ms"]
    if ratio > 1 + threshold and max(one) < min(other):
        return "slower"
    return "faster" if ratio < 1 / (1 + threshold) and max(other) < min(one) else ""


def chance(before: dict, after: dict) -> float:
    """How likely the rounds of a row that did not change would look slower."""
    one, other = len(before["rounds_ms"]), len(after["rounds_ms"])
    return 1 / math.comb(one + other, one)


def _name(row: dict) -> str:
    return " ".join(row[key] for key in ("layer", "op", "dtype", "layout"))


def main(argv: Sequence[str]) -> int:
    """Print the changes; the exit code is 1 if anything is slower."""
    what = "what got faster and slower, of two engines of one run"
    command = flags.Command("benchmarks.compare", what, "RUN.csv", "BEFORE", "AFTER")
    DEFINE_float("threshold", 0.05, "a change up to this is no change", **command.own)
    asked = command.read(argv)
    path, before, after = asked.operands
    results = files.read(path, files.SCHEMA)
    if unknown := [label for label in (before, after) if label not in results["engines"]]:
        command.fail(f"no {', '.join(unknown)} in {path}; known: {', '.join(results['engines'])}")
    rows = [row for row in results["rows"] if time_of(row, before)]
    both = [row for row in rows if time_of(row, after)]
    if not both:
        command.fail("no row has both times")
    print(f"time of {after} / time of {before}, of the fastest calls\nrows  mean")
    for name, own in grouped(both, "op", "class", "dtype", "layout").items():
        mean = geometric_mean([time_of(row, after) / time_of(row, before) for row in own])
        print(f"{len(own):4} {mean:5.2f}  {name}")
    pairs = [(row["engines"][before], row["engines"][after]) for row in both]
    verdicts = [verdict(*pair, asked.threshold) for pair in pairs]
    ratios = [b["min_ms"] / a["min_ms"] for a, b in pairs]
    told = zip(ratios, verdicts, map(_name, both), strict=True)
    for ratio, word, name in sorted(told, reverse=True):
        if word:
            print(f"{ratio:9.2f}  {word}  {name}")
    failing = [row for row in rows if row["engines"].get(after, {"status": "ok"})["status"] != "ok"]
    for row in failing:
        entry = row["engines"][after]
        print(f"{entry['status']:>9}  {_name(row)}: {entry.get('reason', '')}")
    slower, chances = verdicts.count("slower"), [chance(*pair) for pair in pairs]
    short = sum(one > MOST_CHANCE for one in chances)
    print(
        f"{slower} of {len(both)} rows slower, {len(failing)} newly failing, {short} of too few "
        f"rounds to tell; were nothing changed and the threshold 0, about "
        f"{sum(one for one in chances if one <= MOST_CHANCE):.1f} would look slower"
    )
    return 1 if slower or failing else 0


if __name__ == "__main__":
    flags.run(main)
