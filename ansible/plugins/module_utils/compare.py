# SPDX-License-Identifier: Apache-2.0
"""Compares two results of weir measure --json. Pure: it reads no file and runs nothing."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

LEAST = 1.0  # ms: a delay that is longer by less than this is none that anybody notices


def phases(result):
    return dict((p["name"], p) for p in (result or {}).get("phases") or [])


def worst(result):
    """The loaded phase with the longest added delay (90th percentile), and that delay in ms; None, None without one."""
    name, delay = None, None
    for p in (result or {}).get("phases") or []:
        if p.get("added") and (delay is None or p["added"]["p90"]["value"] > delay):
            name, delay = p["name"], p["added"]["p90"]["value"]
    return name, delay


def apart(a, b):
    """Do two estimates differ by more than what is not known of them?"""
    return a["high"] < b["low"] or b["high"] < a["low"]


def compare(before, after, most):
    """What became of the delay that was longest before, and each figure that is surely worse by more than a share.

    before and after are results. most is a share: 0.1 is a tenth.
    """
    name, delay = worst(before)
    then, now = phases(before), phases(after)
    out = dict(phase=name, before=delay, after=None, factor=None, regressions=[])
    p = now.get(name)
    if p and p.get("added"):
        x, y = then[name]["added"]["p90"], p["added"]["p90"]
        out["after"] = y["value"]
        if x["value"] > 0 and apart(x, y):
            out["factor"] = y["value"] / x["value"]
    for name in sorted(then):
        a, b = then[name], now.get(name)
        if b is None:
            out["regressions"].append("%s: not measured any more" % name)
            continue
        if a.get("added") and b.get("added"):
            x, y = a["added"]["p90"], b["added"]["p90"]
            longer = y["value"] - x["value"]
            if apart(x, y) and longer > LEAST and longer > most * x["value"]:
                out["regressions"].append("%s: added p90 %.1f ms, before %.1f ms" % (name, y["value"], x["value"]))
        for way in sorted(a.get("goodput") or {}):
            x, y = a["goodput"][way], (b.get("goodput") or {}).get(way)
            if y is None or (apart(x, y) and y["value"] < (1 - most) * x["value"]):
                got = "none" if y is None else "%.1f" % y["value"]
                out["regressions"].append("%s: %s %s Mbit/s, before %.1f" % (name, way, got, x["value"]))
    return out


ENOUGH = 4  # downloads, before and after: with fewer that no two are alike may be chance


def compare_downloads(before, after, most):
    """The same of two results of weir measure --fetches, whose estimates are a median and all that was measured."""
    x, y = before["seconds"], after["seconds"]
    out = dict(before=x["value"], after=y["value"], factor=None, regressions=[])
    sure = apart(x, y) and min(len(r["fetches"]) for r in (before, after)) >= ENOUGH
    if sure and x["value"] > 0:
        out["factor"] = y["value"] / x["value"]
    if sure and y["value"] > (1 + most) * x["value"]:
        out["regressions"].append("download: %.1f s, before %.1f s" % (y["value"], x["value"]))
    return out
