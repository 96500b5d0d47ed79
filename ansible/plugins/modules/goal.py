#!/usr/bin/python
# -*- coding: utf-8 -*-
# SPDX-License-Identifier: Apache-2.0

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: goal
short_description: Bring a host to its goal, under a timer that puts it back
version_added: 1.0.0
description:
  - Plans the goal by C(weir plan), and makes the changes by C(weir up) if there are any.
  - Unless it is confirmed within O(timeout), the host puts everything back by itself.
  - Check mode and diff mode are C(weir plan).
author:
  - Weir authors (@weir)
attributes:
  check_mode:
    support: full
    description: Changes nothing in check mode.
  diff_mode:
    support: full
    description: Shows each setting before and after.
  platform:
    support: full
    platforms: linux
    description: Linux, with the program weir.
options:
  dev:
    description: "The device of the uplink. Without it, the default route's."
    type: str
  rate:
    description: 'What the provider sold for outgoing traffic, as tc writes it, such as C(50mbit). C(auto) has it
      found.'
    type: str
  follow:
    description: 'Between which rates weir follow may choose, such as C(20mbit..100mbit) or C(auto).'
    type: str
  ingress:
    description: 'What the provider sold for incoming traffic.'
    type: str
  one_cake:
    description: 'What one CAKE carries on the host, such as C(4gbit), as C(weir doctor --bench) says.'
    type: str
  overhead:
    description: 'The framing that the provider counts.'
    type: str
  rtt:
    description: 'The round trip to the farthest clients on an idle link, such as C(48.3ms).'
    type: str
  loss:
    description: 'The share of packets that the path loses with no queue to blame, such as C(10%).'
    type: str
  role:
    description: 'What the host is, such as C(relay).'
    type: str
  serves:
    description: 'What the host serves.'
    type: str
  carries:
    description: 'The kind of tunnel that a relay carries.'
    type: str
  fair_to:
    description: 'The side whose hosts share evenly.'
    type: str
  prefer:
    description: 'What is preferred, such as C(l4s).'
    type: str
  cc:
    description: 'A congestion control, or C(keep).'
    type: str
  qdisc:
    description: 'A queue by name, such as C(htb rate 49mbit | fq_codel).'
    type: str
  recipe:
    description: 'A published recipe, to the letter.'
    type: str
  nat:
    description: 'The relay translates addresses on the device.'
    type: bool
  runtime:
    description: 'Keep nothing over a reboot, and write no file.'
    type: bool
  timeout:
    description: Seconds after which the host puts everything back by itself, unless it is confirmed. From 10 to 3600.
    type: int
    default: 60
  confirm:
    description:
      - Confirm at once, over the same connection.
      - Without it M(weir.net.confirm) does so later, over a new connection, which shows that the host can be reached.
    type: bool
    default: false
  program:
    description: The program, as a name in the path or as a path.
    type: str
    default: weir
  journal:
    description: The directory of Weir's journal on the host.
    type: path
    default: /var/lib/weir
"""

EXAMPLES = r"""
- name: Show what would change
  weir.net.goal:
    rate: 50mbit
  check_mode: true
  diff: true

- name: Change it, to be confirmed within two minutes
  weir.net.goal:
    rate: 50mbit
    timeout: 120

- name: Try the new connection
  ansible.builtin.meta: reset_connection

- name: Keep it, over the new connection
  weir.net.confirm:
"""

RETURN = r"""
changes:
  description: Each change, with its old and new value and the reason.
  returned: success
  type: list
  elements: dict
goal:
  description: The goal, with its device filled in.
  returned: success
  type: dict
lacks:
  description: What the host's kernel does not have, and what is done instead. Nothing where it has all.
  returned: success
  type: str
outcome:
  description: What C(weir up) has done, and what has failed.
  returned: when something was to be changed, and not in check mode
  type: dict
confirmed:
  description: Whether it was confirmed.
  returned: success
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.weir.net.plugins.module_utils import weir


def main():
    spec = weir.merged(weir.GOAL, weir.PROGRAM, weir.JOURNAL, dict(
        timeout=dict(type="int", default=60),
        confirm=dict(type="bool", default=False),
    ))
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    timeout = module.params["timeout"]
    if not 10 <= timeout <= 3600:
        module.fail_json(msg="timeout %d is out of range (10 to 3600 s)" % timeout)
    program = weir.Weir(module)
    plan = program.plan(module.params)
    changes = plan.get("changes") or []
    result = dict(changed=bool(changes), changes=changes, goal=plan.get("goal", {}), confirmed=False,
                  lacks=weir.lacks(plan), diff=weir.diff(changes))
    if changes and not module.check_mode:
        args = weir.goal_args(module.params) + ["--timeout=%ds" % timeout]
        outcome, well, error = program.json("up", *args)
        result["outcome"] = outcome
        if not well:
            result["changed"] = bool(outcome.get("done"))
            module.fail_json(msg=error or "not all is in force", **result)
    if module.params["confirm"] and not module.check_mode:
        if changes or program.status().get("unconfirmed"):
            program.json("confirm")
            result.update(changed=True, confirmed=True)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
