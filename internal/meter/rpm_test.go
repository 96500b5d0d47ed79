// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"encoding/json"
	"math"
	"net/url"
	"strings"
	"testing"
)

// The numbers are worked out by hand from the draft's formula.
func TestRPM(t *testing.T) {
	var probes []RPMProbe
	for i := range 20 {
		foreign, self := RPMProbe{Foreign: true, TCP: 50, TLS: 60, HTTP: 70}, RPMProbe{HTTP: 200}
		if i == 7 { // one in twenty is the slowest 5 %
			foreign, self = RPMProbe{Foreign: true, TCP: 5000, TLS: 6000, HTTP: 7000}, RPMProbe{HTTP: 9000}
		}
		probes = append(probes, foreign, self)
	}
	r, ok := RPM(probes)
	if !ok || math.Abs(r.Foreign-1000) > 1e-6 || math.Abs(r.Loaded-300) > 1e-6 || math.Abs(r.RPM-650) > 1e-6 ||
		r.Probes != 40 {
		t.Errorf("%+v %v", r, ok)
	}
	for _, few := range [][]RPMProbe{nil, {{Foreign: true, TCP: 1, TLS: 1, HTTP: 1}}, {{HTTP: 1}},
		{{HTTP: 0}, {Foreign: true}}} {
		if r, ok := RPM(few); ok {
			t.Errorf("of %v: %+v", few, r)
		}
	}
}

func TestHasSettled(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   bool
	}{
		{[]float64{10, 10, 10, 10, 10, 10}, false}, // four averages take seven values
		{[]float64{10, 10, 10, 10, 10, 10, 10}, true},
		{[]float64{1, 2, 4, 8, 16, 32, 64}, false},
		{[]float64{1, 1, 1, 10, 10, 10, 10, 10, 10, 10}, true},
		{[]float64{10, 10.2, 9.9, 10.1, 10, 10.3, 9.8}, true},
		{[]float64{0, 0, 0, 0, 0, 0, 0}, false},
	} {
		if got := hasSettled(c.values); got != c.want {
			t.Errorf("%v: %v", c.values, got)
		}
	}
	for rpm, want := range map[float64]string{299: "poor", 300: "fair", 1000: "good", 6000: "excellent"} {
		if got := class(rpm); got != want {
			t.Errorf("%v: %s", rpm, got)
		}
	}
}

// Whatever a responsiveness server's configuration is, what it tests is reached by https, and is one host.
func FuzzNQ(f *testing.F) {
	f.Add(`{"version":1,"urls":{"small_download_url":"https://a/s","large_download_url":"https://a/l",` +
		`"upload_url":"https://a/u"}}`)
	f.Add(`{"version":1,"urls":{"small_https_download_url":"https://a:1/s","large_https_download_url":"http://a:1/l",` +
		`"https_upload_url":"https://b:1/u"}}`)
	f.Add(`{"version":1,"urls":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		var config nqConfig
		if json.Unmarshal([]byte(text), &config) != nil {
			return
		}
		small, large, upload, err := config.urls()
		if err != nil {
			return
		}
		host := ""
		for _, s := range []string{small, large, upload} {
			u, err := url.Parse(s)
			if err != nil || u.Scheme != "https" || u.Host == "" || host != "" && u.Host != host {
				t.Errorf("%q of %q", s, text)
				return
			}
			host = u.Host
		}
	})
}

// A direction without data, or without an answer, is none that anything is known of.
func TestRPMSilent(t *testing.T) {
	full := RPMDirection{Direction: Download, Goodput: 50, Confidence: High,
		Responsiveness: Responsiveness{RPM: 1200, Probes: 99}}
	still, deaf := full, full
	still.Direction, still.Goodput = Upload, 0
	deaf.Direction, deaf.Responsiveness = Upload, Responsiveness{}
	for _, c := range []struct {
		second       RPMDirection
		says, silent string
	}{
		{still, "no data moved during uploads", Upload},
		{deaf, "no probe was answered during uploads", Upload},
		{full, "1200 round trips a minute during downloads", ""},
	} {
		r := &RPMResult{Directions: []RPMDirection{full, c.second}}
		if says := r.sentence(); !strings.Contains(says, c.says) || r.Silent() != c.silent {
			t.Errorf("%s; %q is silent", says, r.Silent())
		}
	}
}
