// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNeed: what is missing is installed, after whoever else is at it; and why that failed is said, wherever apt says
// it.
func TestNeed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped, not passed: installing needs root")
	}
	for what, c := range map[string]struct{ apt, says string }{
		"not to be had": {`for i in 1 2 3; do echo "Get:$i"; done; echo "E: Unable to locate package chromium" >&2; for i in 1 2 3 4 5 6; do echo "Reading $i"; done; exit 100`, "E: Unable to locate package chromium\n"},
		"in use": {`case "$* $(cat "$0.n" 2>/dev/null)" in *install*done) exit 0;; *update*second) echo done >"$0.n"; exit 0;; *update*) echo second >"$0.n"; esac
			echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1" >&2; exit 100`, ""},
	} {
		t.Run(what, func(t *testing.T) {
			bin := t.TempDir()
			for _, tool := range []string{"bash", "id", "cat", "mktemp", "rm", "tail", "grep", "sort", "head"} {
				path, err := exec.LookPath(tool)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
					t.Fatal(err)
				}
			}
			for name, body := range map[string]string{"apt-get": "[ \"$1 $2\" = '-o DPkg::Lock::Timeout=600' ] || " +
				"exit 9\n" + c.apt, "sleep": "", "ip": "", "irtt": "", "iperf3": "", "curl": "", "h2load": "", "flent": "",
				"tmux": "", "firefox-esr": "", "npm": "", "ansible-playbook": "", "ansible-lint": "", "ssh": "", "unshare": "",
				"sshd": "", "busybox": "", "doas": "", "wine": ""} {
				if err := os.WriteFile(filepath.Join(bin, name), []byte("#!"+bin+"/bash\n"+body+"\n"),
					0o755); err != nil {
					t.Fatal(err)
				}
			}
			need, err := filepath.Abs("../scripts/need")
			if err != nil {
				t.Fatal(err)
			}
			command := exec.Command(filepath.Join(bin, "bash"), need, "test")
			command.Env = []string{"PATH=" + bin}
			out, err := command.CombinedOutput()
			if said := strings.TrimPrefix(string(out), "installing chromium\n"); said != c.says ||
				(err != nil) != (c.says != "") {
				t.Errorf("it says %q: %v", said, err)
			}
		})
	}
}
