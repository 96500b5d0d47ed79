// SPDX-License-Identifier: Apache-2.0

package bbr

import (
	"errors"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"

	"weir/internal/bpf"
)

// Kernels differ in what they give cong_control, and in how they tell of a silence that is over: each gets the programs
// that fit it, and one that is like none of them says so.
func TestFit(t *testing.T) {
	function := func(parameters int) btf.Type {
		return &btf.Pointer{Target: &btf.FuncProto{Return: &btf.Void{}, Params: make([]btf.FuncParam, parameters)}}
	}
	common := []string{"init", "ssthresh", "undo_cwnd", "set_state", "sndbuf_expand"}
	for what, c := range map[string]struct {
		control btf.Type
		members []string
		want    []string // besides the common ones; nil: an error
	}{
		"6.1":  {function(2), []string{"cwnd_event"}, []string{"cong_control_2", "cwnd_event"}},
		"6.12": {function(4), []string{"cwnd_event"}, []string{"cong_control", "cwnd_event"}},
		"7.3": {function(4), []string{"cwnd_event", "cwnd_event_tx_start"},
			[]string{"cong_control", "cwnd_event", "cwnd_event_tx_start"}},
		"three parameters": {function(3), []string{"cwnd_event"}, nil},
		"no function":      {&btf.Pointer{Target: &btf.Void{}}, []string{"cwnd_event"}, nil},
		"no pointer":       {&btf.Int{Size: 4}, []string{"cwnd_event"}, nil},
		"no cong_control":  {nil, []string{"cwnd_event"}, nil},
	} {
		ops := &btf.Struct{Name: "tcp_congestion_ops"}
		if c.control != nil {
			ops.Members = append(ops.Members, btf.Member{Name: "cong_control", Type: c.control})
		}
		for _, name := range slices.Concat(common, c.members) {
			ops.Members = append(ops.Members, btf.Member{Name: name, Type: function(1)})
		}
		spec, err := loadObject()
		if err != nil {
			t.Fatal(err)
		}
		err = fit(spec, ops)
		if c.want == nil {
			if !errors.Is(err, bpf.ErrNotSupported) {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		var got []string
		for name, p := range spec.Programs {
			if p.AttachTo != "" {
				got = append(got, name)
			}
		}
		want := slices.Concat(common, c.want)
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", what, got, err, want)
		}
		if p := spec.Programs["cong_control_2"]; p != nil && p.AttachTo != "tcp_congestion_ops:cong_control" {
			t.Errorf("%s: it is attached to %s", what, p.AttachTo)
		}
	}
}

// The version is the code's, and fits the kernel's name for a map, of 15 characters.
func TestVersion(t *testing.T) {
	if v := Version(); len(v) != 8 || len(prefix+v) > 15 || v != Version() {
		t.Error(v)
	}
}
