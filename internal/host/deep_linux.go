// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"runtime"
	"weir/internal/qdisc"
)

// ReadDeep is Read and everything that a diagnosis wants besides. What cannot be read, for lack of root or of a module,
// is in Unknown.
func ReadDeep() (Facts, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f, p, err := read()
	if err != nil {
		return f, err
	}
	root := os.DirFS("/")
	d := readDeep(root, &f, p)
	for _, l := range f.Links {
		if q, there := l.Tree.Root(); there && d.Counts != nil {
			d.Counts[QueueDrops(l.Name)] = q.Stats.Drops
			for _, q := range l.Tree.Qdiscs {
				d.Counts[QueueOverflows(l.Name)] += q.Stats.Overflows
			}
		}
	}
	d.Sockets.senders = &senders{accounts: map[uint64]account{}}
	if why := unloaded(root, f.Kernel, "tcp_diag"); why != "" {
		d.Unknown = append(d.Unknown, Unread{What: "live connections", Why: why})
	} else if err := d.Sockets.read(sockDiag, f.Links, f.Uplink); err != nil {
		d.Unknown = append(d.Unknown, Unread{What: "live connections", Why: err.Error()})
	}
	d.Netfilter.readRules(root, f.Kernel)
	if d.Routes, err = readMetrics(f.Links); err != nil {
		d.Unknown = append(d.Unknown, Unread{What: "routes", Why: err.Error()})
	}
	d.Droppers, err = ReadDroppers(f.Links)
	if err != nil {
		d.Unknown = append(d.Unknown, Unread{What: DroppingFilters, Why: err.Error()})
	}
	if tool, err := openEthtool(); err == nil {
		defer tool.close()
		d.Offloads = map[string][]string{}
		for _, l := range f.Links {
			if l.Kind == "" && !l.Loopback {
				d.Offloads[l.Name] = tool.offloads(l.Name)
				if d.Counts != nil {
					tool.counters(l.Name, func(names, values []byte) { d.Counts.allowances(l.Name, names, values) })
				}
			}
		}
	}
	return f, nil
}

// ReadDroppers asks the devices that have filters, or may have.
func ReadDroppers(links []Link) (all []Dropper, err error) {
	conn, err := qdisc.Dial(0)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for _, l := range links {
		found, err := conn.Droppers(l.Index, l.Tree)
		if err != nil {
			return all, err
		}
		for _, d := range found {
			all = append(all, Dropper{Dev: l.Name, Dropper: d})
		}
	}
	return all, nil
}
