#!/usr/bin/python
# -*- coding: utf-8 -*-
# SPDX-License-Identifier: Apache-2.0

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: measure
short_description: Measure how long others wait while the link is busy
version_added: 1.0.0
description:
  - Runs C(weir measure) on the host, to a C(weir serve) elsewhere.
  - With O(fetches) it downloads a file so often instead, one download after the other.
  - With O(before) it tells what became of it, and what is worse.
  - A figure is worse only where the two intervals of confidence lie apart. A delay has to be longer by 1 ms, too.
author:
  - Weir authors (@weir)
attributes:
  check_mode:
    support: full
    description: Changes nothing in check mode.
  diff_mode:
    support: none
    description: There is nothing to show.
  platform:
    support: full
    platforms: linux
    description: Linux, with the program weir.
options:
  target:
    description: What to measure the way to, as C(weir measure) takes it.
    type: str
    required: true
  time:
    description: Seconds of all phases together, from 5 to 300.
    type: int
    default: 25
  conns:
    description: Bulk connections each way.
    type: int
    default: 4
  fetches:
    description: How often to download the file that O(target) is the URL of.
    type: int
  token:
    description: The word that C(weir serve) wants. It is seen in the host's list of processes meanwhile.
    type: str
  pin:
    description: The fingerprint of its certificate.
    type: str
  before:
    description: The RV(result) of an earlier call, to compare with.
    type: dict
  max_regression:
    description: The share by which a delay may be longer, and goodput less, before it is worse.
    type: float
    default: 0.1
  program:
    description: The program, as a name in the path or as a path.
    type: str
    default: weir
"""

EXAMPLES = r"""
- name: Measure before
  weir.net.measure:
    target: 192.0.2.1
  register: before

- name: Measure after, and compare
  weir.net.measure:
    target: 192.0.2.1
    before: "{{ before.result }}"
  register: after
  failed_when: after.regressions | length > 0

- name: Download a file of the host's web server from the controller
  weir.net.measure:
    target: "http://{{ inventory_hostname }}/100M.bin"
    fetches: 5
  delegate_to: localhost
"""

RETURN = r"""
result:
  description: What C(weir measure --json) printed.
  returned: when measured
  type: dict
phase:
  description: The load under which the delay was longest, before if there is a before.
  returned: when measured, without O(fetches)
  type: str
before:
  description: The 90th percentile of the delay that this load adds, in ms, before. With O(fetches) the median time of a download, in s.
  returned: with O(before)
  type: float
after:
  description: The same of this measurement.
  returned: when measured
  type: float
factor:
  description: After by before. It is null where they differ by no more than chance.
  returned: with O(before)
  type: float
regressions:
  description: What is worse, in words.
  returned: with O(before)
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.weir.net.plugins.module_utils import compare, weir


def main():
    spec = weir.merged(weir.PROGRAM, dict(
        target=dict(type="str", required=True),
        time=dict(type="int", default=25),
        conns=dict(type="int", default=4),
        fetches=dict(type="int"),
        token=dict(type="str", no_log=True),
        pin=dict(type="str"),
        before=dict(type="dict"),
        max_regression=dict(type="float", default=0.1),
    ))
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, msg="a measurement fills the link, so there is none in check mode")
    p = module.params
    if p["target"].startswith("-"):
        module.fail_json(msg="%s is no target" % p["target"])
    args = ["--time=%ds" % p["time"], "--conns=%d" % p["conns"]]
    if p["fetches"]:
        args = ["--fetches=%d" % p["fetches"]]
    args += ["--%s=%s" % (name, p[name]) for name in ("token", "pin") if p[name]]
    said, well, error = weir.Weir(module).json("measure", *(args + [p["target"]]))
    if not well:
        module.fail_json(msg=error or "the measurement failed", result=said)
    if p["fetches"] and p["before"]:
        out = compare.compare_downloads(p["before"], said, p["max_regression"])
    elif p["fetches"]:
        out = dict(after=said["seconds"]["value"])
    elif p["before"]:
        out = compare.compare(p["before"], said, p["max_regression"])
    else:
        out = dict(zip(("phase", "after"), compare.worst(said)))
    module.exit_json(changed=False, result=said, **out)


if __name__ == "__main__":
    main()
