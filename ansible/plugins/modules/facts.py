#!/usr/bin/python
# -*- coding: utf-8 -*-
# SPDX-License-Identifier: Apache-2.0

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: facts
short_description: Tell how a host stands to its goal
version_added: 1.0.0
description:
  - Gathers the version of Weir, the kernel, the findings of C(weir doctor) and C(weir status) as facts.
  - It changes nothing.
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
- name: Gather
  weir.net.facts:

- name: Show whether the goal is in force
  ansible.builtin.debug:
    var: ansible_facts.weir.status.in_force
"""

RETURN = r"""
ansible_facts:
  description: The facts, below the name C(weir).
  returned: success
  type: dict
  contains:
    weir:
      description: All of them.
      type: dict
      returned: success
      contains:
        version:
          description: The version of Weir.
          type: str
          returned: success
        kernel:
          description: The release of the kernel.
          type: str
          returned: success
        findings:
          description: What was found, by its code.
          type: dict
          returned: success
        status:
          description: How the host stands to its goal, as C(weir status --json) has it.
          type: dict
          returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.weir.net.plugins.module_utils import weir


def main():
    module = AnsibleModule(argument_spec=weir.merged(weir.PROGRAM, weir.JOURNAL), supports_check_mode=True)
    program = weir.Weir(module)
    status = program.status()
    program.journal = None  # doctor has none
    said = program.json("doctor")[0]
    version = program.text("--version")[1].split()
    module.exit_json(changed=False, ansible_facts=dict(weir=dict(
        version=version[-1] if version else "",
        kernel=(said.get("facts") or {}).get("kernel", ""),
        findings=dict((f["code"], f) for f in said.get("findings") or []),
        status=status,
    )))


if __name__ == "__main__":
    main()
