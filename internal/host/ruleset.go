// SPDX-License-Identifier: Apache-2.0

package host

import "slices"

// ruleset is what the kernel tells of its rules, and what they refer to.
type ruleset struct {
	suspects []*ruleReader // those that may become such by their map, too
	hooks    map[member]string
	chains   map[member][]member // to which the rules of a chain jump
	maps     []member            // of verdicts
	mapped   map[member][]member // the chains whose rules have such a map
	uses     map[member]int      // of a counter, by rules
	counters map[member]uint64   // packets
	drops    map[member]bool     // of maps: an element does
	unknown  []string            // what rules do that was not followed
}

func newRuleset() *ruleset {
	return &ruleset{hooks: map[member]string{}, chains: map[member][]member{}, mapped: map[member][]member{},
		uses: map[member]int{}, counters: map[member]uint64{}, drops: map[member]bool{}}
}

// add takes a rule's message.
func (s *ruleset) add(msg []byte) {
	r := readRule(msg)
	own := r.member(r.Chain)
	for _, to := range r.chains {
		s.chains[own] = append(s.chains[own], r.member(to))
	}
	if m := r.member(r.verdicts); r.verdicts != "" {
		if s.mapped[m] == nil {
			s.maps = append(s.maps, m)
		}
		s.mapped[m] = append(s.mapped[m], own)
	}
	if r.counter != "" {
		s.uses[r.member(r.counter)]++
	}
	if r.object && r.decides {
		s.noteMissing("what rules take from maps of limits, quotas or counters")
	}
	if r.isSuspect() || r.decides && r.verdicts != "" && r.Limit != "" {
		s.suspects = append(s.suspects, r)
	}
}

func (s *ruleset) noteMissing(what string) {
	if !slices.Contains(s.unknown, what) {
		s.unknown = append(s.unknown, what)
	}
}

// addElements takes a message about the elements of a map.
func (s *ruleset) addElements(of member, msg []byte) {
	for _, v := range verdicts(msg) {
		s.drops[of] = s.drops[of] || v.drops
		for _, from := range s.mapped[of] {
			if v.chain != "" {
				s.chains[from] = append(s.chains[from], member{of.family, of.table, v.chain})
			}
		}
	}
}

// hooksByChain gives each chain the hooks from which packets come to it.
func (s *ruleset) hooksByChain() map[member][]string {
	reached := map[member][]string{}
	for first, hook := range s.hooks {
		if hook == "" {
			continue
		}
		for todo := []member{first}; len(todo) > 0; {
			c := todo[0]
			todo = todo[1:]
			if !slices.Contains(reached[c], hook) {
				reached[c] = append(reached[c], hook)
				todo = append(todo, s.chains[c]...)
			}
		}
	}
	for _, hooks := range reached {
		slices.Sort(hooks)
	}
	return reached
}

// rules are those that limit, and those that do nothing but drop what leaves, and count it. Of these it keeps the
// first ones: who bans thousands of addresses has as many.
func (s *ruleset) rules() (list []Rule) {
	const most = 1000
	plain, hooks := 0, s.hooksByChain()
	for _, r := range s.suspects {
		r.Hooks = hooks[r.member(r.Chain)]
		if r.verdicts != "" {
			r.Drops = s.drops[r.member(r.verdicts)]
		}
		if of := r.member(r.counter); r.counter != "" { // which counts for one rule, or says nothing of each
			packets, known := s.counters[of]
			r.Counted, r.Dropped = known && s.uses[of] == 1, packets
		}
		if !r.Drops || !r.Counted {
			r.Counted, r.Dropped = false, 0
		}
		switch {
		case !r.isSuspect():
			continue
		case r.Limit == "" && (plain == most || !r.Outgoing()):
			continue
		case r.Limit == "":
			plain++
		}
		list = append(list, r.Rule)
	}
	return list
}
