// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// completion is what a shell needs, and where its script goes.
type completion struct{ needs, now, always string }

func completions(program string) map[string]completion {
	return map[string]completion{
		"bash": {"It needs the package bash-completion.", "source <(" + program + " completion bash)",
			program + " completion bash > /etc/bash_completion.d/" + program},
		"fish": {"", program + " completion fish | source",
			program + " completion fish > ~/.config/fish/completions/" + program + ".fish"},
		"powershell": {"", program + " completion powershell | Out-String | Invoke-Expression",
			program + " completion powershell >> $PROFILE"},
		"zsh": {"It needs compinit: autoload -U compinit; compinit", "source <(" + program + " completion zsh)",
			program + ` completion zsh > "${fpath[1]}/_` + program + `"`},
	}
}

// sayCompletion gives cobra's completion command the words of this program, and has it refuse a shell that it does not
// know.
func sayCompletion(c *cobra.Command) {
	c.Short = "Print a script that lets a shell complete commands"
	c.Long = `Prints a script with which a shell completes commands, options and values. The
packages have those of bash, fish and zsh already.`
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return Usage(c.CommandPath()+" bash, fish, powershell or zsh", "completion for %q is not there", args[0])
	}
	for _, shell := range c.Commands() {
		words, ok := completions(c.Root().Name())[shell.Name()]
		if !ok {
			continue
		}
		shell.Short = "Print the script for " + shell.Name()
		shell.Long = "Prints a script with which " + shell.Name() + " completes commands, options and values."
		if words.needs != "" {
			shell.Long += "\n" + words.needs
		}
		shell.Example = "  " + words.now + "\n  " + words.always
		shell.Long += "\n\nThe first line below is for this session, the second for every new one."
		if f := shell.Flags().Lookup("no-descriptions"); f != nil {
			f.Usage = "without what each word is for"
		}
		shell.Args = NoArguments
	}
}
