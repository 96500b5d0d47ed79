# SPDX-License-Identifier: Apache-2.0
"""Runs the program weir on a host, and reads its JSON. It decides nothing."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import json

# What weir's own options are called here, and their types; docs/how-it-works.md of Weir explains each.
GOAL = dict(
    dev=dict(type="str"),
    rate=dict(type="str"),
    follow=dict(type="str"),
    ingress=dict(type="str"),
    one_cake=dict(type="str"),
    overhead=dict(type="str"),
    rtt=dict(type="str"),
    loss=dict(type="str"),
    role=dict(type="str"),
    serves=dict(type="str"),
    carries=dict(type="str"),
    fair_to=dict(type="str"),
    prefer=dict(type="str"),
    cc=dict(type="str"),
    qdisc=dict(type="str"),
    recipe=dict(type="str"),
    nat=dict(type="bool"),
    runtime=dict(type="bool"),
)

PROGRAM = dict(program=dict(type="str", default="weir"))
JOURNAL = dict(journal=dict(type="path", default="/var/lib/weir"))


def merged(*specs):
    """The options of all of specs."""
    out = {}
    for spec in specs:
        out.update(spec)
    return out


def goal_args(params):
    """The options of a goal, as weir takes them. What was not said is left to weir."""
    args = []
    for name in sorted(GOAL):
        value = params.get(name)
        if value is None:
            continue
        if isinstance(value, bool):
            value = "true" if value else "false"
        args.append("--%s=%s" % (name.replace("_", "-"), value))
    return args


def target(change):
    """What a change is of: a device's queue, what arrives at one, a setting, or a file."""
    for key, words in (("dev", "%s queue"), ("ingress", "%s arriving"), ("sysctl", "%s"), ("file", "%s")):
        if change.get(key):
            return words % change[key]
    return "?"


def diff(changes):
    """The two sides of --diff."""
    return dict(
        before="".join("%s: %s\n" % (target(c), c.get("old", "")) for c in changes),
        after="".join("%s: %s\n" % (target(c), c.get("new", "")) for c in changes),
    )


def lacks(plan):
    """What the kernel does not have, and what is done instead: the plan's own note of that."""
    return "; ".join(n["text"] for n in plan.get("considered") or [] if n["subject"] == "CAKE")


class Weir(object):
    """The program on this host, for a module."""

    def __init__(self, module):
        self.module = module
        self.program = module.params["program"]
        self.journal = module.params.get("journal")

    def text(self, *args):
        """Runs the program, and gives its exit status, output and error."""
        return self.module.run_command([self.program] + list(args), handle_exceptions=False,
                                       expand_user_and_vars=False)

    def json(self, command, *args):
        """Runs a command with --json, and gives what it printed and whether the answer is yes.

        An answer of no (exit status 1, with JSON) is an answer. All else ends the module with weir's own words.
        """
        words = [command, "--json"]
        if self.journal:
            words.append("--state=" + self.journal)
        try:
            status, out, err = self.text(*(words + list(args)))
        except (OSError, IOError) as e:
            self.module.fail_json(msg="%s cannot be run: %s (try: the role weir.net.install)" % (self.program, e))
        try:
            said = json.loads(out)
        except ValueError:
            said = None
        if said is None or status not in (0, 1):
            lines = [line.strip() for line in err.strip().splitlines() if line.strip()]
            self.module.fail_json(msg=" ".join(lines) or "weir %s ended with status %d" % (command, status), rc=status)
        said_error = " ".join(err.split())
        return said, status == 0, said_error

    def status(self):
        return self.json("status")[0]

    def plan(self, params):
        return self.json("plan", *goal_args(params))[0]
