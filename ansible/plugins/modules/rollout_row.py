#!/usr/bin/python
# -*- coding: utf-8 -*-
# SPDX-License-Identifier: Apache-2.0

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: rollout_row
short_description: Note in the table of a roll-out how a host stands
version_added: 1.0.0
description:
  - Keeps C(rollout.json) and C(rollout.md) in a directory, with a row for each host.
  - It is for the controller, so it is delegated to localhost.
  - The playbook C(weir.net.rollout) notes before each step what is true if the step never ends.
  - So the table is right however a roll-out ends.
author:
  - Weir authors (@weir)
attributes:
  check_mode:
    support: partial
    description: The table is written in check mode, too. It tells what would be changed.
  diff_mode:
    support: none
    description: There is nothing to show.
  platform:
    support: full
    platforms: linux
    description: Linux, with the program weir.
options:
  dir:
    description: The directory. It is made if it is not there.
    type: path
    required: true
  hosts:
    description: The hosts, by the names that stand in the table.
    type: list
    elements: str
    required: true
  state:
    description: How they stand.
    type: str
  kernel:
    description: Their kernel.
    type: str
  before:
    description: The delay before, in ms.
    type: float
  after:
    description: The delay after, in ms.
    type: float
  factor:
    description: After by before.
    type: float
  download_before:
    description: The time of a download before, in s.
    type: float
  download_after:
    description: The time of a download after, in s.
    type: float
  download_factor:
    description: After by before.
    type: float
  why:
    description: Why they failed.
    type: str
  lacks:
    description: What their kernel does not have, and what is done instead. It is a line below the table.
    type: str
  begin:
    description: Begin a new table.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Note that the host is put back
  weir.net.rollout_row:
    dir: ./rollout
    hosts: ["{{ inventory_hostname }}"]
    state: put back
  delegate_to: localhost
"""

RETURN = r"""
rows:
  description: The table.
  returned: success
  type: list
  elements: dict
markdown:
  description: The table, as Markdown.
  returned: success
  type: str
"""

import fcntl
import json
import os

from ansible.module_utils.basic import AnsibleModule

NUMBERS = (("before", "ms"), ("after", "ms"), ("factor", "×"))
DOWNLOADS = (("download_before", "s"), ("download_after", "s"), ("download_factor", "×"))
FIELDS = ("kernel",) + tuple(name for name, unit in NUMBERS + DOWNLOADS) + ("state", "why", "lacks")


def figure(value, unit):
    if value is None:
        return "–"
    size = abs(value)
    return "%.*f %s" % (0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3, value, unit)


def cell(text):
    return " ".join((text or "–").split()).replace("|", "\\|")


def markdown(rows):
    downloaded = any(r.get(name) is not None for r in rows for name, unit in DOWNLOADS)
    numbers = NUMBERS + (DOWNLOADS if downloaded else ())
    heads = ["hostname", "kernel"] + [name.replace("_", " ") for name, unit in numbers] + ["state"]
    lines = ["| %s |" % " | ".join(heads), "|---|---|%s---|" % ("---:|" * len(numbers))]
    for r in rows:
        cells = [cell(r["hostname"]), cell(r["kernel"])]
        cells += [figure(r.get(name), unit) for name, unit in numbers] + [cell(r["state"])]
        lines.append("| %s |" % " | ".join(cells))
    notes = ["%s: %s" % (r["hostname"], " ".join(r["lacks"].split())) for r in rows if r.get("lacks")]
    if notes:
        lines += [""] + ["- " + n for n in notes]
    return "\n".join(lines) + "\n"


def write(path, text):
    """Replaces a file as a whole, so that who reads it never sees half of it."""
    with open(path + ".part", "wb") as f:
        f.write(text.encode("utf-8"))
    os.rename(path + ".part", path)


def update(rows, params):
    if params["begin"]:
        rows = []
    by_name = dict((r["hostname"], r) for r in rows)
    for host in params["hosts"]:
        if host not in by_name:
            by_name[host] = dict(hostname=host, **dict((f, None) for f in FIELDS))
            rows.append(by_name[host])
        by_name[host].update((f, params[f]) for f in FIELDS if params[f] is not None)
    return rows


def main():
    spec = dict(
        dir=dict(type="path", required=True),
        hosts=dict(type="list", elements="str", required=True),
        state=dict(type="str"),
        kernel=dict(type="str"),
        before=dict(type="float"),
        after=dict(type="float"),
        factor=dict(type="float"),
        download_before=dict(type="float"),
        download_after=dict(type="float"),
        download_factor=dict(type="float"),
        why=dict(type="str"),
        lacks=dict(type="str"),
        begin=dict(type="bool", default=False),
    )
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    folder = module.params["dir"]
    if not os.path.isdir(folder):
        os.makedirs(folder, 0o755)
    with open(os.path.join(folder, ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # hosts of a batch come at once
        path = os.path.join(folder, "rollout.json")
        rows = []
        if os.path.exists(path):
            with open(path) as f:
                rows = json.load(f)["hosts"]
        rows = update(rows, module.params)
        write(path, json.dumps(dict(hosts=rows), indent=2) + "\n")
        table = markdown(rows)
        write(os.path.join(folder, "rollout.md"), table)
    # The table is about the hosts, and no part of them: nothing of theirs has changed.
    module.exit_json(changed=False, rows=rows, markdown=table)


if __name__ == "__main__":
    main()
