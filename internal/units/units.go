// SPDX-License-Identifier: Apache-2.0

// Package units reads and writes rates, sizes, times and shares as tc(8) writes them: 50mbit, 64kb, 48.3ms, 10%.
//
// It may not know what a quantity is for. Unlike tc, which takes a bare number to be bits per second, bytes or
// microseconds, it insists on a unit: a person who writes "rate 50" has made a mistake that no default should hide.
package units

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Rate is a speed in bits per second.
type Rate uint64

// Size is an amount of data in bytes.
type Size uint64

// Duration is a time.Duration that reads and writes itself as tc does.
type Duration time.Duration

// Share is a part of a whole, 0 to 1, written as a percentage.
type Share float64

type unit struct {
	name  string
	scale float64
}

// tc's own suffixes (iproute2 lib/utils.c), the written ones first. Rates are decimal, and bps are bytes per second;
// sizes count in 1024s, whether or not they end in b.
var (
	rateUnits = []unit{{"tbit", 1e12}, {"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1},
		{"tibit", 1 << 40}, {"gibit", 1 << 30}, {"mibit", 1 << 20}, {"kibit", 1 << 10},
		{"tbps", 8e12}, {"gbps", 8e9}, {"mbps", 8e6}, {"kbps", 8e3}, {"bps", 8},
		{"tibps", 8 << 40}, {"gibps", 8 << 30}, {"mibps", 8 << 20}, {"kibps", 8 << 10}}
	sizeUnits = []unit{{"gb", 1 << 30}, {"mb", 1 << 20}, {"kb", 1 << 10}, {"g", 1 << 30}, {"m", 1 << 20},
		{"k", 1 << 10}, {"b", 1},
		{"gbit", 1 << 27}, {"mbit", 1 << 17}, {"kbit", 1 << 7}}
	timeUnits = []unit{{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1},
		{"sec", 1e9}, {"msec", 1e6}, {"usec", 1e3}, {"nsec", 1}, {"secs", 1e9}, {"msecs", 1e6}, {"usecs", 1e3},
		{"nsecs", 1}}
)

const (
	writtenRates = 5
	writtenTimes = 4
	percent      = 0.01
	rateRange    = "1bit to 10tbit"
)

// NoUnit is the error for a number alone.
type NoUnit struct{ What, Text, Example string }

func (e *NoUnit) Error() string {
	return fmt.Sprintf("%s %q has no unit: write it like %s", e.What, e.Text, e.Example)
}

// ParseRate reads a rate as tc writes it, "50mbit", and as providers do: "50 Mbit/s", "50Mb/s". What may be bits or
// bytes is an error that has both: who types 50mbps means megabits more often than tc's 400. So is "1.000 Mbit/s",
// which is a thousand in some countries; tc's own 1.000mbit is one.
func ParseRate(s string) (Rate, error) {
	if strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII && unicode.IsNumber(r) }) {
		return 0, fmt.Errorf("%q has a digit that is none of 0 to 9: write it like 50mbit", s)
	}
	if perSecond.MatchString(s) {
		return ParseRate(perSecond.ReplaceAllString(s, "/s"))
	}
	if spaced.MatchString(s) {
		rate, err := ParseRate(spaced.ReplaceAllString(s, "$1$2$3"))
		if err == nil {
			err = fmt.Errorf("%q is not a rate: %s?", s, rate)
		}
		return 0, err
	}
	if m := twoRates.FindStringSubmatch(s); m != nil {
		first, second := inRates(m[1], m[2], unitOf(m[1], m[3], m[4])), inRates(m[3], m[4], unitOf(m[3], m[1], m[2]))
		if first == "" || second == "" {
			return 0, fmt.Errorf("%q is not a rate: write it like 50mbit", s)
		}
		return 0, fmt.Errorf("%q is two rates: what arrives is usually the first, %s, and what leaves the second, %s",
			s, first, second)
	}
	if err := spokenTwice(s); err != nil {
		return 0, err
	}
	if m := adorned.FindStringSubmatch(s); m != nil {
		rate, err := ParseRate(m[1])
		if err == nil {
			err = fmt.Errorf("%q is not a rate: %s?", s, rate)
		}
		return 0, err
	}
	number, suffix := splitUnit(s)
	meant := readings(number)
	if len(meant) > 0 && (meant[0] != number || len(meant) > 1) && !tcRate.MatchString(s) {
		if suffix == "" {
			return 0, &NoUnit{"rate", s, inRates(number, "", "")}
		}
		return 0, askRate(s, meant, suffix)
	}
	rate, err := readRate(s)
	if m := spokenRate.FindStringSubmatch(s); err != nil && m != nil {
		err = askRate(s, readings(m[1]), m[2]+"bit")
	} else if all := spokenOnce(s); err != nil && len(all) == 1 && (suffix == "" || strings.ContainsAny(suffix, " @")) {
		if meant := inRates(all[0][1], all[0][2], ""); meant != "" {
			err = fmt.Errorf("%q is not a rate: %s?", s, meant)
		}
	}
	return rate, err
}

// spokenOnce are the rates in a sentence, with their numbers and units. A volume, as 20TB of traffic a month, is none.
func spokenOnce(s string) (all [][]string) {
	if s = strings.TrimSpace(s); !strings.Contains(s, " ") || strings.HasPrefix(s, "-") {
		return nil
	}
	return slices.DeleteFunc(oneOfTwo.FindAllStringSubmatch(s, -1), func(m []string) bool {
		return m[2] == "" || strings.HasSuffix(m[2], "B") || strings.HasSuffix(strings.ToLower(m[2]), "byte")
	})
}

var (
	// Two rates with words around them, of which some say which way is meant. One may lack its unit.
	oneOfTwo = regexp.MustCompile(
		`(?i)\b(\d+(?:[.,]\d+)*)(?:\s*([kmgt](?:i?b(?:it|its|yte|ytes)?(?:ps)?|bps)?(?:/s(?:ec)?)?))?(?:[^\w]|$)`)
	between = regexp.MustCompile(`[,;/&+|]|\band\b`)
	// "Per second" in words, and the rates of which one is not always to be had.
	perSecond = regexp.MustCompile(`(?i)(?:\s*/\s*|\s*\bper\s+)sec(?:ond)?\b`)
	atTimes   = regexp.MustCompile(`(?i)\b(?:burst(?:s|ing|able)?|peaks?|guaranteed|committed|[cp]ir)\b`)
	upward    = regexp.MustCompile(`(?i)\b(?:up(?:load|stream|link)?|send(?:s|ing)?|out(?:going|bound)?|egress)\b`)
	downward  = regexp.MustCompile(
		`(?i)\b(?:down(?:load|stream|link)?|receiv(?:e|es|ing)|in(?:coming|bound)?|ingress)\b`)
	// A rate with a full stop, a word in brackets, or which way it goes.
	adorned = regexp.MustCompile(`(?i)^\s*(.*\d.*\w)\s*(?:\([^()]*\)|[.,;:]|\s(?:up(?:load)?|upstream|egress))\s*$`)
)

// spokenTwice is the error for two rates in a sentence: which of them leaves, where it says so.
func spokenTwice(s string) error {
	all := oneOfTwo.FindAllStringSubmatchIndex(s, -1)
	if len(all) == 1 && downward.MatchString(s) && !upward.MatchString(s) {
		if rate := inRates(submatch(s, all[0], 1), submatch(s, all[0], 2), ""); rate != "" {
			return fmt.Errorf("%q is what arrives, %s; what leaves has a rate of its own", s, rate)
		}
	}
	if len(all) != 2 || !strings.ContainsFunc(s, unicode.IsLetter) {
		return nil
	}
	head, gap, tail := s[:all[0][0]], s[all[0][1]:all[1][0]], s[all[1][1]:]
	around := [2]string{head, tail}
	if cut := between.FindStringIndex(gap); cut != nil {
		around[0], around[1] = around[0]+" "+gap[:cut[0]], gap[cut[1]:]+" "+around[1]
	} else if upward.MatchString(tail) || downward.MatchString(tail) {
		around[0] += " " + gap
	} else {
		around[1] = gap + " " + around[1]
	}
	var rates [2]string
	for i, m := range all {
		number, second := submatch(s, m, 1), all[1-i]
		unit := unitOf(number, submatch(s, second, 1), submatch(s, second, 2))
		if rates[i] = inRates(number, submatch(s, m, 2), unit); rates[i] == "" {
			return nil
		}
	}
	if atTimes.MatchString(s) {
		return fmt.Errorf("%q is a rate and one for a while, %s and %s: the lower is the one to tell", s, rates[0],
			rates[1])
	}
	up := slices.IndexFunc(around[:], upward.MatchString)
	down := slices.IndexFunc(around[:], downward.MatchString)
	if up < 0 && down >= 0 {
		up = 1 - down
	}
	if up < 0 || up == down || upward.MatchString(around[1-up]) {
		return fmt.Errorf("%q is two rates: what arrives is usually the first, %s, and what leaves the second, %s", s,
			rates[0], rates[1])
	}
	return fmt.Errorf("%q is two rates: what leaves is %s, and what arrives %s", s, rates[up], rates[1-up])
}

// submatch is the nth group of a match by its indices; "" if it has none.
func submatch(s string, indices []int, n int) string {
	if indices[2*n] < 0 {
		return ""
	}
	return s[indices[2*n]:indices[2*n+1]]
}

// unitOf is the unit of a number without one beside another with a suffix: the same, but "1 Gbit/s / 50" is 50 Mbit/s.
func unitOf(number, neighbour, suffix string) string {
	a, err := strconv.ParseFloat(number, 64)
	b, wrong := strconv.ParseFloat(neighbour, 64)
	if err == nil && wrong == nil && a > b && strings.ContainsAny(suffix[:min(1, len(suffix))], "gGtT") {
		return "mbit"
	}
	return suffix
}

// inRates writes what one of two rates can mean, as ParseRate asks about it where it is alone; "" if it is none. One
// without a unit has the other's. The bps of a contract are bits a second.
func inRates(number, suffix, other string) string {
	var meant []string
	numbers := readings(number)
	if tcRate.MatchString(number + suffix) {
		numbers = []string{number}
	}
	suffix = cmp.Or(suffix, other)
	for _, number := range numbers {
		text := inBits(number, suffix)
		if strings.HasSuffix(strings.TrimSuffix(suffix, "/s"), "B") {
			v, _ := strconv.ParseFloat(number, 64)
			text = inBits(strconv.FormatFloat(8*v, 'f', -1, 64), suffix)
		}
		if _, err := readRate(text); err == nil {
			meant = append(meant, text)
		}
	}
	return strings.Join(meant, " or ")
}

// askRate is the error for a rate that may be meant in one of these readings of its number. Where none is one it says
// what is wrong with the last.
func askRate(s string, numbers []string, suffix string) error {
	var meant []string
	err := fmt.Errorf("%q is not a rate: write it like 50mbit", s)
	for _, number := range numbers {
		var wrong error
		if _, wrong = readRate(number + suffix); wrong == nil {
			meant = append(meant, inBits(number, suffix))
		} else {
			err = wrong
		}
	}
	if len(meant) > 0 {
		return fmt.Errorf("%q is not a rate: %s?", s, strings.Join(meant, " or "))
	}
	return err
}

// inBits writes a number with the bits of its unit as tc does, in Mbit/s where it has none.
func inBits(number, suffix string) string {
	if v, err := strconv.ParseFloat(number, 64); err == nil {
		number = strconv.FormatFloat(v, 'f', -1, 64)
	}
	lower := strings.ToLower(suffix)
	if lower == "" {
		return number + "mbit"
	}
	return number + lower[:len(lower)-len(strings.TrimLeft(lower, "kmgti"))] + "bit"
}

// readings are what a number with points and commas can mean, thousands first; none if it is no number.
func readings(number string) (meant []string) {
	bare := strings.NewReplacer(".", "", ",", "")
	last := strings.LastIndexAny(number, ".,")
	if last < 0 || bare.Replace(number) == "" {
		return strings.Fields(number)
	}
	head, mark := number[:last], number[last:last+1]
	if grouped.MatchString(number) {
		meant = append(meant, bare.Replace(number))
	}
	if !strings.ContainsAny(head, ".,") || grouped.MatchString(head) && !strings.Contains(head, mark) {
		meant = append(meant, bare.Replace(head)+"."+number[last+1:])
	}
	return meant
}

var (
	grouped = regexp.MustCompile(`^[1-9]\d{0,2}(?:(?:\.\d{3})+|(?:,\d{3})+)$`)
	tcRate  = regexp.MustCompile(`^(?i)[\d.]+(?:[kmgt]i?)?bit$`)
	// Thousands as the Swiss and the French write them.
	spaced = regexp.MustCompile(`(\d)[ '’\x{a0}\x{202f}](\d{3})($|\D)`)
	// What a contract has: "100/40", "100 Mbit/s / 40 Mbit/s".
	twoRates = regexp.MustCompile(`(?i)^\s*([\d.,]*\d)\s*([a-z]*(?:/s(?:ec)?)?)\s*/\s*([\d.,]*\d)\s*` +
		`([a-z]*(?:/s(?:ec)?)?)\s*$`)
)

func readRate(s string) (Rate, error) {
	digits, suffix := splitUnit(s)
	suffix = strings.Replace(suffix, "/sec", "/s", 1)
	lower := strings.ToLower(suffix)
	data := strings.TrimLeft(lower, "kmgti")
	prefix := strings.TrimSuffix(lower, data)
	bits, v := digits+prefix+"bit", 0.0
	if _, err := parse(bits, "rate", "50mbit", rateUnits); err == nil {
		v, _ = strconv.ParseFloat(digits, 64)
	}
	bytes := strconv.FormatFloat(8*v, 'f', -1, 64) + prefix + "bit"
	_, tooMany := parseRate(bytes, rateUnits)
	mixed := suffix != lower
	switch {
	case v == 0: // for parseRate to say
	case data == "bit", data == "bit/s", data == "bits", data == "bits/s":
		s = bits
	case data == "":
		if prefix != "" {
			return 0, fmt.Errorf("rate %q has half a unit: %s?", s, bits)
		}
	case (data == "bps" || (data == "b" || data == "b/s") && !mixed) && tooMany == nil:
		return 0, fmt.Errorf("rate %q can be bits or bytes a second: write %s or %s", s, bits, bytes)
	case slices.Contains([]string{"b", "o", "byte", "bytes"}, strings.TrimSuffix(data, "/s")):
		unit := strings.TrimSuffix(suffix, "/s")
		if strings.HasSuffix(unit, "b") {
			s = bits // Mb: a small b is a bit where the prefix is a large letter
			break
		}
		if tooMany != nil {
			return 0, fmt.Errorf("rate %q: %s are bytes, and so it is out of range (%s)", s, unit, rateRange)
		}
		return 0, fmt.Errorf("rate %q: %s are bytes: %s?", s, strings.ToUpper(prefix)+unit[len(prefix):], bytes)
	}
	return parseRate(s, slices.DeleteFunc(slices.Clone(rateUnits), func(u unit) bool {
		return strings.HasSuffix(u.name, "bps")
	}))
}

// spokenRate is one in the words of network cards and of people, which may have others around it.
var spokenRate = regexp.MustCompile(`(?i)(?:^|[^\w.,/-])(\d+(?:[.,]\d+)*|\.\d+)\s*` +
	`(?:([kmgt])(?:bits?|be|e|egs?|ige?s?|(?:ilo|ega|iga|era)(?:bits?)?))(?:/s)?(?:[\s.,;)].*)?$`)

// splitUnit returns the number at the beginning of a quantity, and what comes after it; "" where there is no number.
func splitUnit(s string) (number, suffix string) {
	s = strings.TrimSpace(s)
	suffix = strings.TrimLeft(s, "0123456789.,")
	number = strings.TrimSuffix(s, suffix)
	if len(readings(number)) == 0 {
		return "", ""
	}
	return number, strings.TrimSpace(suffix)
}

// ParseTCRate reads a rate as tc does, for which bps are bytes. Zero, negative and absurd (> 10 Tbit/s) ones are
// errors.
func ParseTCRate(s string) (Rate, error) { return parseRate(s, rateUnits) }

func parseRate(s string, table []unit) (Rate, error) {
	v, err := parse(s, "rate", "50mbit", table)
	if err != nil {
		return 0, err
	}
	if v < 1 || v > 1e13 {
		return 0, fmt.Errorf("rate %q is out of range (%s)", s, rateRange)
	}
	return Rate(math.Round(v)), nil
}

// ParseSize reads "64kb".
func ParseSize(s string) (Size, error) {
	v, err := parse(s, "size", "64kb", sizeUnits)
	if err != nil {
		return 0, err
	}
	if v > 1<<50 {
		return 0, fmt.Errorf("size %q is out of range (0b to 1048576gb)", s)
	}
	return Size(math.Round(v)), nil
}

// ParseDuration reads "48.3ms". Negative times and those above a day are errors.
func ParseDuration(s string) (time.Duration, error) {
	v, err := parse(s, "time", "48.3ms", timeUnits)
	if err != nil {
		return 0, err
	}
	if v > float64(24*time.Hour) {
		return 0, fmt.Errorf("time %q is out of range (0s to 86400s)", s)
	}
	return time.Duration(math.Round(v)), nil
}

// ParseShare reads "10%", 0% to 100% in steps of 0.000001%: what String would round is an error.
func ParseShare(s string) (Share, error) {
	v, err := parse(s, "share", "10%", []unit{{"%", percent}})
	if err != nil {
		return 0, err
	}
	if v > 1 {
		return 0, fmt.Errorf("share %q is out of range (0%% to 100%%)", s)
	}
	if written := Share(v).String(); !readsAs(written, v) {
		return 0, fmt.Errorf("share %q is finer than 0.000001%%: write it like %s", s, written)
	}
	return Share(v), nil
}

// readsAs reports whether a percentage, read again, is exactly v.
func readsAs(percentage string, v float64) bool {
	number, err := strconv.ParseFloat(strings.TrimSuffix(percentage, "%"), 64)
	return err == nil && number*percent == v
}

func parse(s, what, example string, table []unit) (float64, error) {
	digits := strings.TrimRight(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz%/")
	number, err := strconv.ParseFloat(digits, 64)
	if err != nil || digits == "" || strings.ContainsAny(digits, "xXpP_+ ") {
		return 0, fmt.Errorf("%q is not a %s: write it like %s", s, what, example)
	}
	suffix := strings.ToLower(s[len(digits):])
	if suffix == "" {
		return 0, &NoUnit{what, s, example}
	}
	if number < 0 {
		return 0, fmt.Errorf("%s %q is negative", what, s)
	}
	for _, u := range table {
		if u.name == suffix {
			return number * u.scale, nil
		}
	}
	var names []string
	for _, u := range table {
		names = append(names, u.name)
	}
	return 0, fmt.Errorf("%s %q: unknown unit %q (known: %s)", what, s, suffix, strings.Join(names, ", "))
}

// String writes the largest unit that keeps the number at or above one, exactly: 49.875mbit.
func (r Rate) String() string { return format(float64(r), rateUnits[:writtenRates]) }

// Rounded is a rate in bit/s to five digits: as exact as one that was measured.
func Rounded(rate float64) Rate {
	digits := math.Pow(10, math.Max(0, math.Floor(math.Log10(rate))-4))
	return Rate(math.Round(rate/digits) * digits)
}

// String writes 1.25mb as 1220.703125kb would be unreadable: sizes that are not whole in a larger unit stay in bytes.
func (s Size) String() string {
	for _, u := range sizeUnits[:3] {
		if s != 0 && float64(s) >= u.scale && uint64(s)%uint64(u.scale) == 0 {
			return strconv.FormatUint(uint64(s)/uint64(u.scale), 10) + u.name
		}
	}
	return strconv.FormatUint(uint64(s), 10) + "b"
}

func (d Duration) String() string {
	if d == 0 {
		return "0s"
	}
	return format(float64(d), timeUnits[:writtenTimes])
}

// Round returns d to the nearest multiple of m.
func (d Duration) Round(m Duration) Duration {
	return Duration(time.Duration(d).Round(time.Duration(m)))
}

// String writes at most six digits after the point: 33.333333%.
func (s Share) String() string {
	return strconv.FormatFloat(math.Round(float64(s)*1e8)/1e6, 'f', -1, 64) + "%"
}

func format(v float64, table []unit) string {
	for _, u := range table {
		if v >= u.scale || u == table[len(table)-1] {
			return strconv.FormatFloat(v/u.scale, 'f', -1, 64) + u.name
		}
	}
	return ""
}

// The text forms, so that TOML and JSON carry what a person would write.

func (r Rate) MarshalText() ([]byte, error)     { return []byte(r.String()), nil }
func (s Size) MarshalText() ([]byte, error)     { return []byte(s.String()), nil }
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
func (s Share) MarshalText() ([]byte, error)    { return []byte(s.String()), nil }

func (r *Rate) UnmarshalText(b []byte) (err error) { *r, err = ParseRate(string(b)); return err }
func (s *Size) UnmarshalText(b []byte) (err error) { *s, err = ParseSize(string(b)); return err }
func (s *Share) UnmarshalText(b []byte) (err error) {
	*s, err = ParseShare(string(b))
	return err
}
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := ParseDuration(string(b))
	*d = Duration(v)
	return err
}
