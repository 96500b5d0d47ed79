// SPDX-License-Identifier: Apache-2.0

// Roundtrips draws the README's picture: weir-lab run --json SCENARIO | roundtrips TITLE CANDIDATE… > picture.svg
// It draws the scenario's first point, and is no part of the product.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"weir/internal/lab/report"
	"weir/internal/lab/verdict"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "roundtrips:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) < 2 {
		return errors.New("a title and the names of candidates are needed")
	}
	var reports []verdict.Report
	if err := json.NewDecoder(in).Decode(&reports); err != nil {
		return err
	}
	if len(reports) != 1 || len(reports[0].Points) == 0 {
		return errors.New("the results of one scenario are needed")
	}
	return report.RoundTrips(out, args[0], &reports[0].Points[0], args[1:]...)
}
