// SPDX-License-Identifier: Apache-2.0

// Command keystrokes runs a command that says a line when it is ready, and then sends back each line that it is given.
// An example is "ssh HOST 'echo ready; exec cat'". It prints how long they take, in milliseconds, as JSON. For tests.
//
//	keystrokes [-for TIME] [-every TIME] COMMAND [ARGUMENT]…
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
	"weir/internal/stats"
)

func main() {
	length := flag.Duration("for", 10*time.Second, "how long `TIME` to write")
	every := flag.Duration("every", 100*time.Millisecond, "`TIME` between two lines")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	d, err := run(flag.Args(), *length, *every)
	if err != nil {
		fmt.Fprintln(os.Stderr, "keystrokes:", err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(d)
}

// run writes whether or not what it wrote before has come back, as a person does.
func run(command []string, length, every time.Duration) (stats.Dist, error) {
	var none stats.Dist
	c := exec.Command(command[0], command[1:]...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return none, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return none, err
	}
	if err := c.Start(); err != nil {
		return none, err
	}
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		return none, fmt.Errorf("%s: %w: %w", strings.Join(command, " "), err, c.Wait())
	}
	begin := time.Now()
	n := int(length / every)
	go func() {
		for i := range n {
			time.Sleep(time.Until(begin.Add(time.Duration(i) * every)))
			if _, err := fmt.Fprintf(in, "%d\n", time.Since(begin)); err != nil {
				return // the command has ended, and what it says ends too
			}
		}
	}()
	took := make([]float64, n)
	for i := range took {
		line, err := lines.ReadString('\n')
		now := time.Since(begin)
		sent, bad := strconv.ParseInt(strings.TrimSuffix(line, "\n"), 10, 64)
		if err != nil || bad != nil {
			return none, fmt.Errorf("%s: %q came back: %w", command[0], line, errors.Join(err, bad))
		}
		took[i] = float64(now-time.Duration(sent)) / 1e6
	}
	// Not by the end of its input: a terminal in between may keep that to itself.
	_ = c.Process.Kill()
	_ = c.Wait()
	return stats.NewDist(took), nil
}
