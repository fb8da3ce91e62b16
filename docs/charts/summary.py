#!/usr/bin/env python3
"""Draws docs/charts/summary.svg from the tables of BENCHMARKS.md.

Run it in the repository's root whenever these tables change:

    python3 docs/charts/summary.py
"""

import html

# What the chart shows: a heading, or a figure of a table with the words for it.
SHOWN = [
    "Writes, settling included",
    ("putrow-g1", "put a row, one writer"),
    ("putrow-g8", "put a row, eight writers"),
    ("batch100", "batches of 100 rows"),
    ("update1-g1", "update one column"),
    ("putsync-g1", "put with sync, one writer"),
    ("putsync-g16", "put with sync, sixteen writers"),
    ("values1m/put", "put values of 1 MiB"),
    ("widerow/update", "update a row of a million columns"),
    "Reads from memory, and mixed work",
    ("getrow-all-g1", "get a row, all columns"),
    ("getrow-1col", "get one column of a row"),
    ("getrow-missing", "get a row that is missing"),
    ("range100-all", "range of 100 rows"),
    ("scan-all", "scan all rows"),
    ("mixed-g2", "half gets, half updates, two at a time"),
    "Key-value shape, values of 100 bytes",
    ("kv100-fillrandom", "put at random"),
    ("kv100-readrandom-g1", "get at random"),
    ("kv100-scan100", "range of 100"),
    ("kv100-ycsb-a", "YCSB A"),
    ("kv100-ycsb-f", "YCSB F"),
    "Reads from the device; the last two in a run of their own",
    ("getrow-cold", "get, page cache emptied before"),
    ("beyond/get", "get, data four times the memory"),
    ("beyond/range100", "range of 100 rows, the same data"),
]

WIDTH, LEFT, UNIT, ROW, TOP = 920, 260, 120, 24, 64
BETTER, WORSE = "#2b6cb0", "#c2571a"


def ratios(path):
    """Returns the peer and the ratio of each figure, from the first columns of that name."""
    found, columns = {}, None
    for line in open(path, encoding="utf-8"):
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if cells[0] == "figure" and "ratio" in cells:
            columns = cells.index("best LSM peer"), cells.index("ratio")
        elif not line.startswith("|"):
            columns = None
        elif columns and not cells[0].startswith("---"):
            peer, _, tuning = cells[columns[0]].split("+")[0].partition("-")
            peer = NAMES[peer] + (f" ({tuning})" if tuning else "")
            found.setdefault(cells[0], (peer, cells[columns[1]]))
    return found


def draw(found):
    height = TOP + ROW * len(SHOWN) + 40
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="Liberation Sans, Arial, Helvetica, sans-serif" font-size="13">',
        f'<rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="8" fill="#ffffff" stroke="#c3cad1"/>',
        f'<text x="{WIDTH / 2}" y="28" font-size="16" font-weight="bold" text-anchor="middle" fill="#1b2530">'
        "Flagstone's speed as a multiple of the fastest LSM peer's, 500,000 rows</text>",
    ]
    bottom = TOP + ROW * len(SHOWN)
    for tick in (0, 1, 2, 3, 4):
        x = LEFT + tick * UNIT
        color, width = ("#55606b", 2) if tick == 1 else ("#dfe3e7", 1)
        out.append(f'<path d="M{x} {TOP - 4}V{bottom}" stroke="{color}" stroke-width="{width}"/>')
        for y in (TOP - 10, bottom + 18):
            out.append(f'<text x="{x}" y="{y}" text-anchor="middle" fill="#3c4752">{tick:g}x</text>')
    for i, shown in enumerate(SHOWN):
        y = TOP + ROW * i
        if isinstance(shown, str):
            out.append(f'<text x="16" y="{y + 17}" font-weight="bold" fill="#1b2530">{html.escape(shown)}</text>')
            continue
        figure, words = shown
        peer, text = found[figure]
        ratio = float(text.removesuffix("x"))
        color = BETTER if ratio >= 1 else WORSE
        end = LEFT + ratio * UNIT
        label = html.escape(f"{text} of {peer}")
        out.append(f'<text x="{LEFT - 10}" y="{y + 17}" text-anchor="end" fill="#1b2530">{html.escape(words)}</text>')
        out.append(f'<rect x="{LEFT}" y="{y + 5}" width="{end - LEFT:.1f}" height="{ROW - 8}" fill="{color}"/>')
        # A white plate behind the number keeps the lines of the scale out of it.
        out.append(f'<rect x="{end + 3:.1f}" y="{y + 5}" width="{7 * len(label) + 6}" height="{ROW - 8}" fill="#ffffff"/>')
        out.append(f'<text x="{end + 6:.1f}" y="{y + 17}" fill="#3c4752">{label}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


NAMES = {"pebble": "Pebble", "rocksdb": "RocksDB", "badger": "Badger", "goleveldb": "goleveldb"}

if __name__ == "__main__":
    with open("docs/charts/summary.svg", "w", encoding="utf-8") as f:
        f.write(draw(ratios("BENCHMARKS.md")))
