# SPDX-License-Identifier: Apache-2.0
"""The modules as programs, over a weir that only answers."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from ansible_collections.weir.net.plugins.module_utils import compare, weir

FAKE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fake_weir")


class Modules(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = folder.name

    def run_module(self, name, check=False, fails=False, **params):
        if name != "rollout_row":
            params.setdefault("program", FAKE)
        args = os.path.join(self.home, "args.json")
        with open(args, "w") as f:
            json.dump({"ANSIBLE_MODULE_ARGS": dict(params, _ansible_check_mode=check, _ansible_diff=True)}, f)
        done = subprocess.run([sys.executable, "-m", "ansible_collections.weir.net.plugins.modules." + name, args],
                              env=dict(os.environ, FAKE_WEIR=self.home), stdout=subprocess.PIPE, text=True)
        said = json.loads(done.stdout)
        self.assertEqual(bool(said.get("failed")), fails, said)
        return said

    def calls(self):
        with open(os.path.join(self.home, "calls")) as f:
            return [line.split()[0] for line in f]

    def make(self, name):
        open(os.path.join(self.home, name), "w").close()

    def test_check_mode_is_plan(self):
        said = self.run_module("goal", check=True, rate="50mbit", confirm=True)
        self.assertTrue(said["changed"])
        self.assertEqual(self.calls(), ["plan"])
        self.assertEqual(said["diff"]["before"], "eth0 queue: pfifo_fast\nnet.ipv4.tcp_notsent_lowat: 4294967295\n")
        self.assertIn("eth0 queue: cake bandwidth 49.875mbit\n", said["diff"]["after"])

    def test_goal_does_not_confirm_by_itself(self):
        said = self.run_module("goal", rate="50mbit", timeout=90)
        self.assertTrue(said["changed"] and not said["confirmed"])
        self.assertEqual(self.calls(), ["plan", "up"])
        with open(os.path.join(self.home, "calls")) as f:
            self.assertEqual(f.readlines()[1], "up --json --state=/var/lib/weir --rate=50mbit --timeout=90s\n")

    def test_goal_twice(self):
        self.assertTrue(self.run_module("goal", rate="50mbit", confirm=True)["confirmed"])
        again = self.run_module("goal", rate="50mbit", confirm=True)
        self.assertFalse(again["changed"] or again["confirmed"])
        self.assertEqual(self.calls(), ["plan", "up", "confirm", "plan", "status"])

    def test_lacks(self):
        self.assertEqual(self.run_module("goal", check=True, rate="50mbit")["lacks"], "")
        self.make("no-cake")
        self.assertEqual(self.run_module("goal", check=True, rate="50mbit")["lacks"], "there is none")

    def test_weir_refuses(self):
        said = self.run_module("goal", fails=True, rate="bad")
        self.assertEqual((said["msg"], said["rc"]), ("weir: bad has no unit try: --rate 50mbit", 2))
        self.assertIn("out of range", self.run_module("goal", fails=True, rate="1mbit", timeout=9)["msg"])
        said = self.run_module("facts", fails=True, program="/nowhere/weir")
        self.assertIn("cannot be run", said["msg"])

    def test_confirm_and_recover(self):
        self.assertFalse(self.run_module("confirm")["changed"])
        self.assertFalse(self.run_module("recover")["changed"])
        self.run_module("goal", rate="50mbit")
        self.assertTrue(self.run_module("recover", check=True)["changed"])
        self.assertTrue(self.run_module("confirm", check=True)["changed"])
        self.assertTrue(self.run_module("recover")["changed"])
        self.assertFalse(self.run_module("recover")["changed"])
        self.run_module("goal", rate="50mbit")
        self.assertTrue(self.run_module("confirm")["changed"])
        self.assertFalse(self.run_module("confirm")["changed"])

    def test_facts_and_doctor(self):
        facts = self.run_module("facts")["ansible_facts"]["weir"]
        self.assertEqual((facts["version"], facts["kernel"], facts["status"]["up"]), ("fake", "6.12.57", False))
        self.run_module("doctor", fail_on=["kernel-cannot-shape"])
        self.make("cannot-shape")
        said = self.run_module("doctor", fails=True, fail_on=["kernel-cannot-shape"])
        self.assertEqual(said["msg"], "kernel-cannot-shape: Linux has no cake.")

    def test_measure(self):
        before = self.run_module("measure", target="192.0.2.1")
        self.assertEqual((before["phase"], before["after"]), ("upload", 160.0))
        self.run_module("goal", rate="50mbit")
        after = self.run_module("measure", target="192.0.2.1", before=before["result"])
        self.assertEqual((after["before"], after["after"], after["factor"], after["regressions"]),
                         (160.0, 2.0, 0.0125, []))
        self.make("worse")
        worse = self.run_module("measure", target="192.0.2.1", before=before["result"])
        self.assertEqual(worse["regressions"], ["upload: added p90 300.0 ms, before 160.0 ms"])
        self.run_module("measure", fails=True, target="-x")
        count = len(self.calls())
        self.run_module("measure", check=True, target="192.0.2.1")
        self.assertEqual(len(self.calls()), count)

    def test_words_are_no_shell(self):
        token = "a$HOME.~b"
        self.run_module("measure", target="192.0.2.1", token=token)
        with open(os.path.join(self.home, "calls")) as f:
            self.assertIn(" --token=" + token + " ", f.read())

    def test_downloads(self):
        url = "http://192.0.2.1/100M.bin"
        before = self.run_module("measure", target=url, fetches=5)
        self.assertEqual((before["after"], before.get("phase")), (60.0, None))
        with open(os.path.join(self.home, "calls")) as f:
            self.assertEqual(f.read(), "measure --json --fetches=5 %s\n" % url)
        self.run_module("goal", rate="50mbit")
        after = self.run_module("measure", target=url, fetches=5, before=before["result"])
        self.assertEqual((after["before"], after["after"], after["factor"], after["regressions"]),
                         (60.0, 3.0, 0.05, []))
        self.make("slower")
        slower = self.run_module("measure", target=url, fetches=5, before=before["result"])
        self.assertEqual(slower["regressions"], ["download: 100.0 s, before 60.0 s"])

    def test_rows(self):
        folder = os.path.join(self.home, "rollout")
        self.run_module("rollout_row", dir=folder, hosts=["a", "b|c"], state="untouched", begin=True)
        said = self.run_module("rollout_row", dir=folder, hosts=["b|c"], state="kept", kernel="6.1", before=160,
                               after=2, factor=0.0125)
        want = ("| hostname | kernel | before | after | factor | state |\n|---|---|---:|---:|---:|---|\n"
                "| a | – | – | – | – | untouched |\n| b\\|c | 6.1 | 160 ms | 2.00 ms | 0.013 × | kept |\n")
        self.assertEqual(said["markdown"], want)
        with open(os.path.join(folder, "rollout.md")) as f:
            self.assertEqual(f.read(), want)
        said = self.run_module("rollout_row", dir=folder, hosts=["a"], lacks="there is\nnone")
        self.assertEqual(said["markdown"], want + "\n- a: there is none\n")
        said = self.run_module("rollout_row", dir=folder, hosts=["b|c"], download_before=60, download_after=3,
                               download_factor=0.05)
        self.assertIn("| b\\|c | 6.1 | 160 ms | 2.00 ms | 0.013 × | 60.0 s | 3.00 s | 0.050 × | kept |", said["markdown"])
        self.assertIn("| factor | download before | download after | download factor | state |", said["markdown"])


class Pure(unittest.TestCase):
    def test_goal_args(self):
        self.assertEqual(weir.goal_args(dict(fair_to="src", nat=False, rate=None, qdisc="htb | fq")),
                         ["--fair-to=src", "--nat=false", "--qdisc=htb | fq"])

    def test_compare(self):
        def result(p90, mbit, spread=0.1):
            def e(v):
                return dict(value=v, low=v * (1 - spread), high=v * (1 + spread))
            return dict(phases=[dict(name="upload", added=dict(p90=e(p90)), goodput=dict(upload=e(mbit)))])
        for name, after, worse in (
                ("shorter", result(2, 47), 0), ("longer", result(300, 47), 1),
                ("longer by chance", result(200, 47, 0.5), 0), ("half of the load", result(2, 20), 1),
                ("not measured", dict(phases=[]), 1)):
            self.assertEqual(len(compare.compare(result(160, 47), after, 0.1)["regressions"]), worse, name)
        self.assertEqual(compare.compare(result(0.2, 47), result(0.9, 47), 0.1)["regressions"], [])
        self.assertIsNone(compare.compare(result(160, 47), result(165, 47), 0.1)["factor"])

    def test_compare_downloads(self):
        def result(seconds, count=5, spread=0.1):
            return dict(fetches=[{}] * count, seconds=dict(value=seconds, low=seconds * (1 - spread), high=seconds * (1 + spread)))
        for name, before, after, factor, worse in (
                ("faster", result(60), result(3), 0.05, 0), ("slower", result(10), result(20), 2, 1),
                ("slower by chance", result(10), result(11), None, 0), ("too few", result(10, 2), result(20, 2), None, 0),
                ("a little slower", result(10, 5, 0.01), result(10.5, 5, 0.01), 1.05, 0)):
            said = compare.compare_downloads(before, after, 0.1)
            self.assertEqual((said["factor"], len(said["regressions"])), (factor, worse), name)


if __name__ == "__main__":
    unittest.main()
