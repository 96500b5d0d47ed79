#!/usr/bin/python
# -*- coding: utf-8 -*-
# SPDX-License-Identifier: Apache-2.0

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: recover
short_description: Put back at once what is not confirmed
version_added: 1.0.0
description:
  - Runs C(weir recover), which goes back to the last confirmed goal, or else to what was there before Weir.
  - If there is nothing to put back, nothing is changed.
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
- name: Put it back
  weir.net.recover:
"""

RETURN = r"""
outcome:
  description: What was put back, and what could not be.
  returned: success, and not in check mode
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.weir.net.plugins.module_utils import weir


def main():
    module = AnsibleModule(argument_spec=weir.merged(weir.PROGRAM, weir.JOURNAL), supports_check_mode=True)
    program = weir.Weir(module)
    if module.check_mode:
        module.exit_json(changed=bool(program.status().get("unconfirmed")))
    outcome, well, error = program.json("recover")
    changed = bool(outcome.get("done"))
    if not well:
        module.fail_json(msg=error or "not all is put back", changed=changed, outcome=outcome)
    module.exit_json(changed=changed, outcome=outcome)


if __name__ == "__main__":
    main()
