// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/internal/host"
	"weir/internal/text"
	"weir/internal/units"
)

// checkRoutes is about routes of what leaves and comes in by the uplink, where they set more than the way.
func checkRoutes(p *patient) (found []Finding) {
	var others []string
	for _, r := range p.routes() {
		why := p.boundBy(r)
		if why == nil {
			others = append(others, routeName(r)+": "+routeText(r))
			continue
		}
		f := Finding{
			Code: "route-bounds", Severity: Notable,
			Plain:  "A route on this server has settings that can make transfers slower.",
			Title:  "The route " + routeName(r) + " bounds its connections.",
			Seen:   routeText(r) + ".",
			Why:    strings.Join(why, " "),
			Remark: "change the route where it is set up; " + routeCommand(r) + " shows it",
		}
		found = append(found, f)
	}
	if others != nil {
		found = append(found, Finding{Code: "route-sets", Severity: Fine,
			Title: "Routes have settings for their connections.", Seen: strings.Join(others, "; ") + "."})
	}
	return found
}

// routes are those by the uplink, and by what is below it.
func (p *patient) routes() (all []host.RouteMetrics) {
	for _, r := range p.deep.Routes {
		below := slices.ContainsFunc(p.links, func(l host.Link) bool { return l.Name == r.Dev })
		if r.Dev != "" && (below || r.Dev == p.Uplink) {
			all = append(all, r)
		}
	}
	return all
}

// routeWith is the first of them that bounds its connections so.
func (p *patient) routeWith(bounds func(host.RouteMetrics) bool) (r host.RouteMetrics, there bool) {
	all := p.routes()
	if i := slices.IndexFunc(all, bounds); i >= 0 {
		return all[i], true
	}
	return r, false
}

func hasWindow(r host.RouteMetrics) bool { return r.Metrics["window"] > 0 }

func locksCwnd(r host.RouteMetrics) bool {
	return r.Metrics["cwnd"] > 0 && slices.Contains(r.Locked, "cwnd")
}

// boundBy says what a route's settings keep from its connections; nil if nothing.
func (p *patient) boundBy(r host.RouteMetrics) (why []string) {
	const first, small = 10, 1000 // segments that the kernel starts with (RFC 6928); bytes, of which more is common
	m := r.Metrics
	isBelow := func(name string, usual int) bool { n, set := m[name]; return set && n > 0 && n < usual }
	if hasWindow(r) {
		s := fmt.Sprintf("No more than about %s can be on its way to this host", text.Bytes(float64(m["window"])))
		if rtt := time.Duration(p.deep.Sockets.RTT); rtt > 0 {
			rate := units.Rate(float64(8*m["window"]) / rtt.Seconds())
			s += fmt.Sprintf(": %s at %s", threeDigits(rate), millis(p.deep.Sockets.RTT))
		}
		why = append(why, s+".")
	}
	if locksCwnd(r) {
		why = append(why, fmt.Sprintf("No more than %s can be on their way from here.",
			text.Counted(m["cwnd"], "segment")))
	}
	if isBelow("initcwnd", first) || isBelow("initrwnd", first) {
		why = append(why, fmt.Sprintf("Connections start with less than the kernel's %d segments.", first))
	}
	if slices.Contains(r.Locked, "mtu") {
		why = append(why, "Where the path takes only smaller packets, they leave in fragments.")
	}
	if isBelow("mtu", small) || isBelow("advmss", small) {
		why = append(why, "Packets are small, and more of each is header.")
	}
	return why
}

func routeName(r host.RouteMetrics) string {
	name := r.To
	if r.IPv6 && r.To == "default" {
		name = "default of IPv6"
	}
	if r.Table != 0 {
		name += fmt.Sprintf(" of table %d", r.Table)
	}
	return name + " by " + r.Dev
}

// routeText writes what a route sets as ip-route(8) does.
func routeText(r host.RouteMetrics) string {
	var words []string
	for name, n := range r.Metrics {
		if slices.Contains(r.Locked, name) {
			name += " lock"
		}
		words = append(words, fmt.Sprintf("%s %d", name, n))
	}
	if r.Congestion != "" {
		words = append(words, "congctl "+r.Congestion)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func routeCommand(r host.RouteMetrics) string {
	command := "ip route show "
	if r.IPv6 {
		command = "ip -6 route show "
	}
	if r.Table != 0 {
		command += fmt.Sprintf("table %d ", r.Table)
	}
	return command + r.To
}

// pace is how fast TCP sends, in percent of as fast as it is acknowledged.
type pace struct {
	sysctl          string
	percent, kernel uint64 // as it is; the kernel's own (Documentation/networking/ip-sysctl.rst)
}

// lowPaces are those below the kernel's own.
func (p *patient) lowPaces() (low []pace) {
	for _, s := range []pace{{"net.ipv4.tcp_pacing_ss_ratio", 0, 200}, {"net.ipv4.tcp_pacing_ca_ratio", 0, 120}} {
		_, err := fmt.Sscan(p.Sysctls[s.sysctl].Value, &s.percent)
		if err == nil && s.percent < s.kernel && p.cc != "bbr" {
			low = append(low, s)
		}
	}
	return low
}

// slowPace is the lowest at which TCP never has on its way what it may; none where the queue does not spread it.
func (p *patient) slowPace() (slow pace) {
	const all = 100
	for _, s := range p.lowPaces() {
		if s.percent < all && queueOf(p.link) == "fq" && (slow.sysctl == "" || s.percent < slow.percent) {
			slow = s
		}
	}
	return slow
}

// checkPacing is about how fast TCP sends what it may have on its way, in percent of as fast as it is acknowledged.
func checkPacing(p *patient) (found []Finding) {
	for _, s := range p.lowPaces() {
		f := Finding{
			Code: "pace-lowered", Severity: Notable,
			Plain: "A setting makes this server send more slowly than TCP would.",
			Title: fmt.Sprintf("%s is %d (kernel: %d).", text.Short(s.sysctl), s.percent, s.kernel),
			Seen:  fmt.Sprintf("%s = %d, %s.", s.sysctl, s.percent, p.source(s.sysctl)),
			Why: "fq spreads what TCP sends by this. " +
				"Below 100 TCP never has on its way what it may, and asks for no more.",
			Remark: fmt.Sprintf("sysctl %s=%d, until the next boot; then mend the file that sets it", s.sysctl,
				s.kernel),
		}
		if queueOf(p.link) != "fq" {
			f.Severity, f.Plain, f.Why = Fine, "", "It has an effect on what fq sends, and that is not the queue here."
		}
		found = append(found, f)
	}
	return found
}
