// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
)

// exclusion is what an option does not go with, or does not go without. An option is written by its name, or with the
// one value that is meant: "role=relay". What and try may have the option's own text in braces: "{recipe}".
type exclusion struct {
	option  string
	without []string // none of these may be said
	needs   []string // one of these has to be
	what    string
	try     string
}

// Names that are no options, and stand for what a goal says by several.
const (
	rateFigure   = "a figure"              // --rate that is not auto
	follower     = "a follower"            // --follow, or --rate auto
	relayFollows = "a follower on a relay" // and --role relay
	oneCard      = "one card"              // --carries what comes in and leaves by the same card
	queueOnly    = "a queue only"          // Goal.Only
	clients      = "clients"               // --client or --client-default
)

// exclusions are looked at in this order, and the first counts.
func exclusions() []exclusion {
	chosen := []string{"prefer=l4s", "fair-to", "nat", "role=relay"}
	return []exclusion{
		{option: follower, without: []string{"recipe", "qdisc", "prefer=l4s"},
			what: "--follow changes the rate of a CAKE, so it goes with no --recipe, --qdisc or --prefer l4s",
			try:  "--rate 50mbit --follow auto"},
		{option: relayFollows, needs: []string{rateFigure},
			what: "on a relay --follow begins with a rate, and none is given",
			try:  "--role relay --rate 50mbit --follow auto"},
		{option: "follow", needs: []string{rateFigure},
			what: "--follow begins with a rate, and none is given", try: "--rate {follow}"},
		{option: "nat", needs: []string{"role=relay"},
			what: "--nat is for a host that forwards for others", try: "--role relay --nat"},
		{option: "carries", needs: []string{"role=relay"},
			what: "--carries is for a host that carries for others", try: "--role relay --carries {carries}"},
		{option: "serves", without: []string{"role=relay"},
			what: "--serves is for a host that serves; a relay has --carries", try: "--role relay without --serves"},
		{option: "prefer=l4s", without: []string{oneCard},
			what: "DualPI2 keeps no flows apart, and on a relay everybody waits in its classic queue, ssh " +
				"through it, too",
			try: "--role relay without --prefer l4s"},
		{option: "recipe", without: append([]string{"ingress", "qdisc", "cc"}, chosen...),
			what: "a recipe is applied to the letter, so it goes with no other choice",
			try:  "either --recipe {recipe}, or the other choices without it"},
		{option: "recipe=server-cake", needs: []string{rateFigure},
			what: "recipe server-cake shapes at 99.75 % of a rate, and none is given",
			try:  "--recipe server-cake --rate 50mbit"},
		{option: queueOnly, needs: []string{"qdisc"}, without: []string{rateFigure, "ingress", "cc"},
			what: "a goal of a queue only names that, and nothing else", try: "a queue, and no other choice"},
		{option: "overhead", without: []string{"qdisc", "recipe"},
			what: "--qdisc and --recipe are used as they are written, so --overhead goes with neither",
			try:  "write it into --qdisc: cake bandwidth 49.875mbit overhead 38"},
		{option: "overhead", needs: []string{rateFigure, "ingress"},
			what: "--overhead is about how the provider counts its rate, and none is given",
			try:  "--rate 50mbit --overhead \"{overhead}\""},
		{option: "one-cake", needs: []string{"rate"}, without: []string{"qdisc", "recipe", "role=relay"},
			what: "--one-cake is for the rules' choice of a server's queue for a rate",
			try:  "--rate 10gbit --one-cake {one-cake}"},
		{option: clients, needs: []string{rateFigure},
			what: "clients share a rate, and none is given",
			try:  "--rate 1gbit, what the provider sold, beside --client"},
		{option: clients, without: []string{"qdisc", "recipe", "prefer=l4s", "one-cake", oneCard},
			what: "--client is for bpf_shaper on one device, so it goes with no other choice of a queue",
			try:  "only --dev, --rate and --client, on a device whose packets have the clients' addresses"},
		{option: clients, without: []string{"nat"},
			what: "what leaves after translation has no client's address any more",
			try:  "--dev with the device that leads to the clients, and no --nat"},
		{option: "qdisc", without: chosen,
			what: "--qdisc is used as it is written, so it goes with no other choice of a queue",
			try:  "write the choice into --qdisc, or leave --qdisc out"},
		{option: "prefer=l4s", needs: []string{rateFigure},
			what: "L4S needs the bottleneck here, and without a rate it is somewhere else",
			try:  "--prefer l4s --rate 50mbit"},
		{option: "prefer=l4s", without: []string{"cc=bbr"},
			what: "BBR under a DualPI2 bottleneck drops other people's packets",
			try:  "--cc auto, or --prefer latency"},
	}
}

// applies reports whether a goal that says so much cannot be.
func (x exclusion) applies(said words) bool {
	return said.has(x.option) &&
		(slices.ContainsFunc(x.without, said.has) || len(x.needs) > 0 && !slices.ContainsFunc(x.needs, said.has))
}

// words are the options that a goal says, with their texts, and the names that stand for several.
type words map[string]string

func (g Goal) said() words {
	said := words{}
	for _, f := range Fields() {
		said[f.Name] = f.Get(g)
	}
	for name, is := range map[string]bool{
		rateFigure:   g.Rate != 0,
		follower:     g.Follow != "",
		relayFollows: g.Follow != "" && g.Role == "relay",
		oneCard:      g.Carries.oneCard(),
		queueOnly:    g.Only,
		clients:      g.perClient(),
	} {
		if is {
			said[name] = name
		}
	}
	return said
}

// has reports whether an option is said, and with that value if one is meant.
func (w words) has(option string) bool {
	name, value, meant := strings.Cut(option, "=")
	return w[name] != "" && (!meant || w[name] == value)
}

// expand puts the texts of options into a sentence.
func (w words) expand(sentence string) string {
	for name, value := range w {
		sentence = strings.ReplaceAll(sentence, "{"+name+"}", value)
	}
	return sentence
}
