// SPDX-License-Identifier: Apache-2.0

// Package packaging has nothing but tests of the packages: what is in them, and what becomes of a host that they are
// installed on.
package packaging

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"weir/internal/host"
	"weir/internal/plan"
)

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// What is in the package, and who owns it.
func contents() map[string]string {
	files := map[string]string{
		"usr/bin/weir":                                  "-rwxr-xr-x",
		"usr/lib/systemd/system/weir.service":           "-rw-r--r--",
		"usr/lib/systemd/system/weir-serve.service":     "-rw-r--r--",
		"usr/lib/systemd/system/weir-serve.socket":      "-rw-r--r--",
		"usr/lib/systemd/system/weir-exporter.service":  "-rw-r--r--",
		"usr/lib/systemd/system/weir-exporter.socket":   "-rw-r--r--",
		"usr/share/doc/weir/copyright":                  "-rw-r--r--",
		"usr/share/doc/weir/changelog.Debian.gz":        "-rw-r--r--",
		"usr/share/doc/weir/examples/weir.toml":         "-rw-r--r--",
		"usr/share/doc/weir/examples/weir.rules.yml":    "-rw-r--r--",
		"usr/share/lintian/overrides/weir":              "-rw-r--r--",
		"usr/share/bash-completion/completions/weir":    "-rw-r--r--",
		"usr/share/zsh/vendor-completions/_weir":        "-rw-r--r--",
		"usr/share/fish/vendor_completions.d/weir.fish": "-rw-r--r--",
		"usr/share/man/man8/weir.8.gz":                  "-rw-r--r--",
	}
	files["usr/share/doc/weir/examples/weir.dashboard.json"] = "-rw-r--r--"
	pages, _ := filepath.Glob("../docs/*.md")
	for _, page := range pages {
		files["usr/share/doc/weir/docs/"+filepath.Base(page)] = "-rw-r--r--"
	}
	files["usr/lib/systemd/system/weir-serve-domain@.service"] = "-rw-r--r--"
	for _, command := range []string{"calibrate", "cc", "cc-show", "clients", "confirm", "doctor", "down", "dualpi2",
		"dualpi2-add", "dualpi2-change", "dualpi2-del", "dualpi2-show", "exporter", "follow", "measure", "plan",
		"recover", "serve", "status", "try", "up", "watch"} {
		files["usr/share/man/man8/weir-"+command+".8.gz"] = "-rw-r--r--"
	}
	return files
}

func TestScripts(t *testing.T) {
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		output(t, "sh", "-n", "deb/"+name)
		if info, err := os.Stat("deb/" + name); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%s cannot be executed: %v", name, err)
		}
	}
}

// A purge removes each file that Weir may have written, and none that a person wrote under such a name.
func TestPurge(t *testing.T) {
	script, err := os.ReadFile("deb/postrm")
	if err != nil {
		t.Fatal(err)
	}
	units, err := filepath.Glob("*.service")
	if err != nil || len(units) == 0 {
		t.Fatal(units, err)
	}
	for _, theirs := range []bool{false, true} {
		root := t.TempDir()
		write := func(name, text string) {
			t.Helper()
			err := os.MkdirAll(filepath.Dir(root+name), 0o755)
			if err == nil {
				err = os.WriteFile(root+name, []byte(text), 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		link := func(to, name string) {
			t.Helper()
			err := os.MkdirAll(filepath.Dir(root+name), 0o755)
			if err = errors.Join(err, os.Symlink(to, root+name)); err != nil {
				t.Fatal(err)
			}
		}
		var state []string
		for _, unit := range units {
			text, _ := os.ReadFile(unit)
			for _, m := range regexp.MustCompile(`(?m)^StateDirectory=(.+)$`).FindAllStringSubmatch(string(text), -1) {
				state = append(state, "/var/lib/"+m[1])
				if strings.Contains(string(text), "\nDynamicUser=yes\n") {
					state = append(state, "/var/lib/private/"+m[1])
					link("private/"+m[1], "/var/lib/"+m[1])
				}
				write(state[len(state)-1]+"/secret", "")
			}
		}
		for _, name := range host.KeptFiles() {
			switch {
			case strings.Contains(name, ".wants/") || strings.HasPrefix(name, "/etc/runlevels/"):
				to := "/etc/systemd/system/"
				if !strings.HasSuffix(name, ".service") {
					to = "/etc/init.d/"
				}
				link(root+to+filepath.Base(name), name)
			case theirs:
				write(name, "# By hand.\n"+host.FirstLine)
			case name == host.GoalFile:
				write(name, "# The goal of weir. To change it edit it and run:  weir up\n")
			case strings.HasPrefix(name, "/etc/init.d/"):
				write(name, host.ScriptLine+host.FirstLine)
			default:
				write(name, host.FirstLine)
			}
		}
		var enabled []string
		for _, unit := range append(units, "weir-serve.socket", "weir-serve-domain@an.example.service") {
			at := "/etc/systemd/system/sockets.target.wants/" + unit
			link(root+"/usr/lib/systemd/system/"+unit, at)
			enabled = append(enabled, at)
		}
		const another = "/etc/systemd/system/sockets.target.wants/weird.socket"
		link(root+"/nowhere", another)
		write("/run/systemd/system/x", "")
		for _, tool := range []string{"systemctl", "deb-systemd-invoke"} {
			write("/bin/"+tool, "#!/bin/sh\necho \"${0##*/} $*\" >>"+root+"/asked\n")
		}
		below := regexp.MustCompile(`(\W)/(etc|var|run)/`).ReplaceAllString(string(script), "$1"+root+"/$2/")
		cmd := exec.Command("sh", "-c", below, "postrm", "purge")
		cmd.Env = append(os.Environ(), "PATH="+root+"/bin:"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, name := range append(state, host.KeptFiles()...) {
			_, err := os.Lstat(root + name)
			if stays := theirs && !slices.Contains(state, name); (err == nil) != stays {
				t.Errorf("theirs %v, %s: %v", theirs, name, err)
			}
		}
		for _, name := range enabled {
			if _, err := os.Lstat(root + name); err == nil {
				t.Errorf("%s leads nowhere", name)
			}
		}
		if _, err := os.Lstat(root + another); err != nil {
			t.Error(err)
		}
		asked, _ := os.ReadFile(root + "/asked")
		if strings.Contains(string(asked), "stop weir-follow.service\n") == theirs {
			t.Errorf("theirs %v, asked:\n%s", theirs, asked)
		}
	}
}

// Each line of the example is an option that there is, with a value that it takes.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("weir.toml")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^(?:# )?([a-z_]+ = .*)$`).FindAllSubmatch(text, -1)
	if len(lines) < 8 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, line := range lines {
		var values map[string]any
		if err := toml.Unmarshal(line[1], &values); err != nil {
			t.Errorf("%s: %v", line[1], err)
			continue
		}
		// Some go with others only.
		values["rate"] = "50mbit"
		if _, ok := values["nat"]; ok {
			values["role"] = "relay"
		}
		again, _ := json.Marshal(values)
		decoder := json.NewDecoder(bytes.NewReader(again))
		decoder.DisallowUnknownFields()
		var goal plan.Goal
		if err := decoder.Decode(&goal); err != nil || goal.Check() != nil {
			t.Errorf("%s: %v, %v", line[1], err, goal.Check())
		}
	}
}
