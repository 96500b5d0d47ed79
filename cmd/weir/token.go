// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"weir/internal/cli"
	"weir/internal/hint"
)

const (
	tokenVariable = "WEIR_TOKEN" // of the environment, for who does not want it among the arguments
	minToken      = 16           // characters of one that a server takes: 64 bits in hexadecimal digits
)

// findToken is the token of an option, of a file or of the environment, in this order; "" if there is none.
func findToken(word, file string) (string, error) {
	switch {
	case word != "" && file != "":
		return "", cli.Usage("--token or --token-file", "--token and --token-file exclude each other")
	case file != "":
		return readToken(file)
	case word == "":
		word = os.Getenv(tokenVariable)
		return word, checkToken(tokenVariable, word)
	}
	return word, checkToken("--token", word)
}

// readToken is the token that is alone in a file.
func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	token := strings.TrimSpace(string(text))
	if err == nil && token == "" {
		err = errors.New(file + " has no token")
	}
	if err != nil {
		return "", hint.Wrap(err, "--token-file FILE, with the token and nothing else in it")
	}
	return token, checkToken("--token-file", token)
}

// checkToken refuses what cannot stand in a URL as it is, and names the place that it is from.
func checkToken(from, token string) error {
	cannot := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/?#&%", r) }
	if strings.ContainsFunc(token, cannot) {
		return cli.Usage("letters and digits", "%s: such a word cannot stand in a URL", from)
	}
	return nil
}

// checkLength refuses a server's token that others could guess.
func checkLength(token string) error {
	if token == "" || len(token) >= minToken {
		return nil
	}
	return cli.Usage("leave it out: one is made and kept; or --token $(openssl rand -hex 16)",
		"%s", fmt.Sprintf("a token of %d characters can be guessed: it must have %d", len(token), minToken))
}
