#!/usr/bin/python
# -*- coding: utf-8 -*-
# SPDX-License-Identifier: Apache-2.0

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: doctor
short_description: Tell what holds a host back
version_added: 1.0.0
description:
  - Runs C(weir doctor), which changes nothing, and gives its findings by their code.
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
  fail_on:
    description: Codes of findings with which the module fails.
    type: list
    elements: str
    default: []
  program:
    description: The program, as a name in the path or as a path.
    type: str
    default: weir
"""

EXAMPLES = r"""
- name: Refuse a host whose kernel cannot shape
  weir.net.doctor:
    fail_on: [kernel-cannot-shape]
"""

RETURN = r"""
findings:
  description: What was found, by its code. Weir's docs/findings.md explains each.
  returned: success
  type: dict
  sample: {"kernel-cannot-shape": {"severity": "note", "title": "Linux 6.18."}}
summary:
  description: The finding that matters most, and what to do.
  returned: success
  type: dict
bottleneck:
  description: The bottleneck, as far as one look shows it.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.weir.net.plugins.module_utils import weir


def main():
    spec = weir.merged(weir.PROGRAM, dict(fail_on=dict(type="list", elements="str", default=[])))
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    said = weir.Weir(module).json("doctor")[0]
    findings = dict((f["code"], f) for f in said.get("findings") or [])
    result = dict(changed=False, findings=findings, summary=said.get("summary", {}), bottleneck=said.get("bottleneck", {}))
    bad = [code for code in module.params["fail_on"] if code in findings]
    if bad:
        module.fail_json(msg="; ".join("%s: %s" % (c, findings[c].get("title", "")) for c in bad), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
