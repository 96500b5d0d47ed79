#!/usr/bin/python
# -*- coding: utf-8 -*-
# SPDX-License-Identifier: Apache-2.0

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
---
module: confirm
short_description: Keep what is in force under the timer
version_added: 1.0.0
description:
  - Runs C(weir confirm), which keeps what the last C(weir up) has changed, also over a reboot.
  - If there is nothing to confirm, nothing is changed. If the time has run out, it fails.
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
- name: Keep it
  weir.net.confirm:
"""

RETURN = r"""
status:
  description: How the host stands to its goal then.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.weir.net.plugins.module_utils import weir


def main():
    module = AnsibleModule(argument_spec=weir.merged(weir.PROGRAM, weir.JOURNAL), supports_check_mode=True)
    program = weir.Weir(module)
    status = program.status()
    changed = bool(status.get("unconfirmed"))
    if not module.check_mode:
        status = program.json("confirm")[0]
    module.exit_json(changed=changed, status=status)


if __name__ == "__main__":
    main()
