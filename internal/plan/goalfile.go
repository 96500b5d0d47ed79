// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"weir/internal/hint"
	"weir/internal/host"
)

// GoalFile is /etc/weir.toml with these goals.
func GoalFile(goals []Goal) host.File { return regular(goalFile(goals)) }

// goalFile has one goal's words, or a table for each device.
func goalFile(goals []Goal) string {
	tables := map[string]Goal{}
	for _, g := range goals {
		dev := g.Dev
		if len(goals) > 1 {
			g.Dev = ""
		}
		tables[dev] = g
	}
	text, err := toml.Marshal(tables)
	if len(goals) == 1 {
		text, err = toml.Marshal(goals[0])
	}
	if err != nil {
		// it has none but strings, booleans and texts
		panic(fmt.Sprintf("plan: a goal that TOML cannot write: %v", err))
	}
	return host.GoalLine + "# To see whether it is in force:  weir status. " +
		"To undo it all and remove this file:  weir down\n" + string(text)
}

// ParseGoals reads what goalFile writes, and what a person has made of it: one goal, or a table for each device. There
// is none in an empty file.
func ParseGoals(text string) (goals []Goal, err error) {
	text = strings.TrimPrefix(text, "\ufeff")
	var raw map[string]any
	if err := decodeGoals(text, &raw); err != nil {
		return nil, err
	}
	if len(raw) == 0 {
		return nil, nil
	}
	tables, err := goalTables(text, raw)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		g := tables[name]
		if name != "" && g.Dev != "" && g.Dev != name {
			return nil, badGoals(lineOf(text, name, "dev"), fmt.Sprintf("the table of %s is about %s", name, g.Dev))
		}
		g.Dev = cmp.Or(g.Dev, name)
		g.Client, _ = parseClients(string(g.Client)) // checkWords has read it
		var refusal *hint.Error
		if err := g.Check(); errors.As(err, &refusal) {
			of := ""
			if name != "" {
				of = name + ": "
			}
			return nil, &hint.Error{What: host.GoalFile + ": " + of + refusal.What, Try: refusal.Try, Usage: true}
		}
		goals = append(goals, g)
	}
	return goals, nil
}

// goalTables reads a table for each device, or all as the one goal without a name.
func goalTables(text string, raw map[string]any) (tables map[string]Goal, err error) {
	isTable := func(name string) bool { _, is := raw[name].(map[string]any); return is }
	names := slices.Sorted(maps.Keys(raw))
	if !slices.ContainsFunc(names, isTable) {
		if err := checkWords(text, "", raw); err != nil {
			return nil, err
		}
		var one Goal
		err := decodeGoals(text, &one)
		return map[string]Goal{"": one}, err
	}
	for _, name := range names {
		table, is := raw[name].(map[string]any)
		if !is {
			return nil, badGoals(lineOf(text, "", name), name+" stands outside of the devices' tables")
		}
		if err := checkWords(text, name, table); err != nil {
			return nil, err
		}
	}
	return tables, decodeGoals(text, &tables)
}

// checkWords finds values that a person writes as on the command line, and that are something else in TOML.
func checkWords(text, name string, table map[string]any) error {
	for _, key := range slices.Sorted(maps.Keys(table)) {
		// TOML's reader takes keys in either case.
		i := slices.IndexFunc(Fields(), func(f Field) bool { return strings.EqualFold(f.key(), key) })
		if i < 0 {
			continue
		}
		field, value := Fields()[i], table[key]
		word, isText := value.(string)
		_, isBool := value.(bool)
		low, _, isSpan := strings.Cut(word, spanSeparator)
		wrong := ""
		switch {
		case field.Type == "bool" && !isBool:
			wrong = fmt.Sprintf("%s = %v: write true or false, without quotes", key, value)
		case field.Type == "bool":
		case field.Quantity && !isText:
			wrong = fmt.Sprintf("%s = %v has no unit: write it with one, in quotes", key, value)
		case !isText:
			wrong = fmt.Sprintf("%s = %v: write it in quotes", key, value)
		case field.Name == "rate" && word == string(Auto):
			wrong = `rate = "auto": write follow = "auto" instead`
		case field.Name == "rate" && isSpan:
			wrong = fmt.Sprintf("rate = %q: write rate = %q and follow = %[1]q instead", word, low)
		case field.Name == "follow": // a string to TOML's reader, which takes it unread
			if _, err := parseSpan(word); err != nil {
				wrong = "follow: " + err.Error()
			}
		case field.Name == "client": // likewise
			if _, err := parseClients(word); err != nil {
				wrong = err.Error()
			}
		}
		if wrong != "" {
			return badGoals(lineOf(text, name, key), wrong)
		}
	}
	return nil
}

// decodeGoals reads TOML, and says what is wrong with it.
func decodeGoals(text string, to any) error {
	d := toml.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	var strict *toml.StrictMissingError
	var decode *toml.DecodeError
	switch err := d.Decode(to); {
	case errors.As(err, &strict):
		line, _ := strict.Errors[0].Position()
		path := strict.Errors[0].Key()
		what := fmt.Sprintf("unknown key %q", strings.Join(path, "."))
		for _, f := range Fields() {
			if f.Name == path[len(path)-1] && f.Name != f.key() {
				what += ": here it is " + f.key()
			}
		}
		return badGoals(line, what)
	case errors.As(err, &decode):
		line, _ := decode.Position()
		return badGoals(line, strings.TrimPrefix(decode.Error(), "toml: "))
	case err != nil:
		return badGoals(1, err.Error())
	}
	return nil
}

func badGoals(line int, what string) error {
	return &hint.Error{What: fmt.Sprintf("%s:%d: %s", host.GoalFile, line, what), Usage: true,
		Try: `as in: dev = "eth0" and rate = "50mbit", each on a line, or below [eth0] for each device; ` +
			`weir up --help has all the names`}
}

// lineOf finds a key in a table, "" for none; 1 where it is written in a way of its own.
func lineOf(text, table, key string) int {
	start := 0
	if table != "" {
		at := regexp.MustCompile(`(?m)^\s*\[\s*["']?` + regexp.QuoteMeta(table) + `["']?\s*\]`).FindStringIndex(text)
		if at == nil {
			return 1
		}
		start = at[1]
	}
	at := regexp.MustCompile(`(?m)^\s*"?` + regexp.QuoteMeta(key) + `"?\s*=`).FindStringIndex(text[start:])
	if at == nil {
		return 1
	}
	return 1 + strings.Count(text[:start+at[1]], "\n")
}

// Says reports whether a file has just these goals already, in whatever words. What it leaves to be found out is as it
// was found.
func Says(f host.File, goals ...Goal) bool {
	if f.Kind != host.Regular {
		return false
	}
	written, err := ParseGoals(f.Text)
	if err != nil || len(written) != len(goals) || len(goals) == 0 {
		return false
	}
	for _, g := range goals {
		if !slices.ContainsFunc(written, func(w Goal) bool { return (w.Dev == "" || w.Dev == g.Dev) && w.Means(g) }) {
			return false
		}
	}
	return true
}

// LeavesRate reports whether a goal in a file has no rate, so that it is to be found.
func LeavesRate(f host.File) bool {
	written, err := ParseGoals(f.Text)
	return f.Kind == host.Regular && err == nil && slices.ContainsFunc(written, Goal.Unknown)
}

// Means reports whether a goal as it was written is another that was brought up.
func (g Goal) Means(up Goal) bool {
	if g == (Goal{}) {
		return false
	}
	g = g.AsFound(up)
	g.Serves = cmp.Or(g.Serves, up.Serves)
	g.Dev, g.RTT, g.Runtime = cmp.Or(g.Dev, up.Dev), cmp.Or(g.RTT, up.RTT), up.Runtime
	if g.Role == "relay" {
		g.Carries = cmp.Or(g.Carries, up.Carries)
	}
	return g == up
}
