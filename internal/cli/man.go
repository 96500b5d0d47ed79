// SPDX-License-Identifier: Apache-2.0

//go:build man

package cli

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// buildOnly is weir man DIR, in a program that is built with -tags man and not shipped: it writes a manual page for
// each command, dated SOURCE_DATE_EPOCH. cobra's own generator would show each option with its default for a value, and
// brings three modules along.
func buildOnly() []*cobra.Command {
	return []*cobra.Command{{
		Use:    "man DIR",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
			if err != nil {
				return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
			}
			return writePages(cmd.Root(), args[0], time.Unix(epoch, 0).UTC().Format(time.DateOnly))
		},
	}}
}

func writePages(cmd *cobra.Command, dir, date string) error {
	file, err := os.Create(filepath.Join(dir, pageName(cmd)+"."+pageSection(cmd)))
	if err != nil {
		return err
	}
	defer file.Close()
	w := bufio.NewWriter(file)
	writePage(w, cmd, date)
	if err := w.Flush(); err != nil {
		return err
	}
	for _, c := range documented(cmd) {
		if err := writePages(c, dir, date); err != nil {
			return err
		}
	}
	return nil
}

// documented are the commands below one that have a page: not those that cobra adds to every program, which --help
// tells enough of.
func documented(cmd *cobra.Command) (all []*cobra.Command) {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "completion" && c.Name() != "help" {
			all = append(all, c)
		}
	}
	return all
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// pageSection is 8, of a system's administration, for all but the lab, which is for anybody.
func pageSection(cmd *cobra.Command) string {
	if cmd.Root().Name() == "weir-lab" {
		return "1"
	}
	return "8"
}

func reference(cmd *cobra.Command) string {
	return fmt.Sprintf(`\fB%s\fR(%s)`, roff(pageName(cmd)), pageSection(cmd))
}

func writePage(w io.Writer, cmd *cobra.Command, date string) {
	heading := func(name string) { fmt.Fprintln(w, ".SH", name) }
	section := pageSection(cmd)
	manual := map[string]string{"1": "User Commands", "8": "System Administration"}[section]
	fmt.Fprintf(w, ".TH %q %s %s \"weir %s\" %q\n", strings.ToUpper(pageName(cmd)), section, date, cmd.Root().Version,
		manual)
	// No hyphens and no stretched lines: both spoil options and paths.
	fmt.Fprintln(w, ".nh\n.ad l")
	heading("NAME")
	fmt.Fprintf(w, "%s \\- %s\n", roff(pageName(cmd)), prose(lowerFirst(cmd.Short)))
	heading("SYNOPSIS")
	_, arguments, _ := strings.Cut(cmd.Use, " ")
	if len(documented(cmd)) > 0 {
		arguments = "COMMAND"
	} else if !strings.Contains(arguments, "[--") && cmd.HasAvailableFlags() {
		arguments = strings.TrimSpace("[OPTIONS] " + arguments)
	}
	fmt.Fprintf(w, "\\fB%s\\fR %s\n", roff(cmd.CommandPath()), roff(arguments))
	heading("DESCRIPTION")
	description, status, _ := strings.Cut(cmp.Or(cmd.Long, cmd.Short+"."), "Exit status: ")
	writeText(w, strings.TrimSpace(description))
	if len(documented(cmd)) > 0 {
		heading("COMMANDS")
		for _, c := range documented(cmd) {
			fmt.Fprintf(w, ".TP\n%s\n%s\n", reference(c), prose(sentence(c.Short)))
		}
	}
	if cmd.HasAvailableFlags() {
		heading("OPTIONS")
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				writeOption(w, f)
			}
		})
	}
	if cmd.Example != "" {
		heading("EXAMPLES")
		writeText(w, cmd.Example)
	}
	heading(`"EXIT STATUS"`)
	writeText(w, cmp.Or(status, "0 success, 1 the answer is no or the command failed, 2 wrong usage."))
	if section == "8" {
		heading("FILES")
		for _, f := range [][2]string{
			{"/etc/weir.toml", "The goal that up and status read, or a table for each device. Confirm writes it."},
			{"/etc/sysctl.d/99-weir.conf", "Settings that are to be there from the start of a boot. Confirm writes " +
				"it, and down removes it."},
			{"/etc/udev/rules.d/90-weir.rules", "Starts weir.service when the device appears. As above."},
			{"/usr/lib/systemd/system/weir.service", "Brings the goal up after a boot, if confirm has enabled it; " +
				"/etc/systemd/system/weir.service without the package."},
			{"/var/lib/weir/journal.json", "The host as it was, and all that was set since. Down goes by it."},
			{"/run/weir/dualpi2/DEV/journal.json", "The same for weir dualpi2. Its del goes by it."},
		} {
			fmt.Fprintf(w, ".TP\n\\fI%s\\fR\n%s\n", roff(f[0]), prose(f[1]))
		}
	}
	heading(`"SEE ALSO"`)
	var also []string
	if cmd.HasParent() {
		also = append(also, reference(cmd.Parent()))
		for _, c := range documented(cmd.Parent()) {
			if c != cmd {
				also = append(also, reference(c))
			}
		}
	}
	for _, c := range documented(cmd) {
		also = append(also, reference(c))
	}
	if section == "8" {
		for _, name := range []string{"tc", "tc-dualpi2", "tc-cake", "tc-fq_codel", "sysctl.d", "systemd.service"} {
			also = append(also, fmt.Sprintf(`\fB%s\fR(%s)`, roff(name),
				map[bool]string{true: "8", false: "5"}[strings.HasPrefix(name, "tc")]))
		}
	}
	fmt.Fprintln(w, strings.Join(also, ",\n"))
}

func writeOption(w io.Writer, f *pflag.Flag) {
	value, usage := pflag.UnquoteUsage(f)
	fmt.Fprintln(w, ".TP")
	if f.Shorthand != "" {
		fmt.Fprintf(w, `\fB\-%s\fR, `, f.Shorthand)
	}
	fmt.Fprintf(w, `\fB\-\-%s\fR`, roff(f.Name))
	if value != "" {
		fmt.Fprintf(w, ` \fI%s\fR`, roff(value))
	}
	switch f.DefValue {
	case "", "false", "0", "[]":
	default:
		usage += " (default: " + f.DefValue + ")"
	}
	fmt.Fprintf(w, "\n%s\n", prose(sentence(strings.ToUpper(usage[:1])+usage[1:])))
}

// writeText writes help: paragraphs, of which those that are indented stay as they are.
func writeText(w io.Writer, text string) {
	for i, paragraph := range strings.Split(strings.TrimRight(text, "\n"), "\n\n") {
		if i > 0 {
			fmt.Fprintln(w, ".PP")
		}
		literal := strings.HasPrefix(paragraph, "  ")
		if literal {
			fmt.Fprintln(w, ".nf\n.RS 4")
		}
		for l := range strings.Lines(paragraph) {
			fmt.Fprintln(w, prose(strings.TrimSpace(l)))
		}
		if literal {
			fmt.Fprintln(w, ".RE\n.fi")
		}
	}
}

var (
	optionWord  = regexp.MustCompile(`(^|[\s(])(--[a-z][a-z-]*|-[a-z]\b)`)
	commandWord = regexp.MustCompile(
		`\bweir-lab (?:run|merge)\b|` +
			`\bweir (?:up|down|plan|confirm|recover|status|doctor|measure|calibrate|serve|watch|exporter|` +
			`dualpi2 (?:add|change|show|del))\b`)
)

// prose writes a line of text with its options and commands in bold.
func prose(text string) string {
	const bold, plain = "\x01", "\x02"
	text = optionWord.ReplaceAllString(text, "${1}"+bold+"${2}"+plain)
	text = commandWord.ReplaceAllString(text, bold+"${0}"+plain)
	return strings.NewReplacer(bold, `\fB`, plain, `\fR`).Replace(roff(text))
}

// roff writes text so that none of it is a command of troff's, and a minus a minus.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// sentence ends a text that has no end.
func sentence(s string) string {
	if strings.HasSuffix(s, "?") || strings.HasSuffix(s, ".") {
		return s
	}
	return s + "."
}

// lowerFirst leaves a name as it is: DualPI2.
func lowerFirst(s string) string {
	if word, _, _ := strings.Cut(s, " "); word[1:] != strings.ToLower(word[1:]) {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
