package dualpi2

import (
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

func TestGuestVlog(t *testing.T) {
	if os.Getpid() != 1 {
		t.Skip()
	}
	spec, _ := loadObject()
	spec.Maps["rings"].MaxEntries = 4096
	objects, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelBranch | ebpf.LogLevelInstruction, LogSizeStart: 8 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	re := regexp.MustCompile(`^(?:from \d+ to )?(\d+): `)
	src := regexp.MustCompile(`; .* @ (\S+:\d+)`)
	for _, name := range []string{"dualpi2_dequeue", "dualpi2_mark"} {
		p := objects.Programs[name]
		counts := map[int]int{}
		lines := map[int]string{}
		cur := ""
		fn := map[string]int{}
		for _, l := range strings.Split(p.VerifierLog, "\n") {
			if m := src.FindStringSubmatch(l); m != nil {
				cur = m[1]
			}
			if strings.HasPrefix(l, "from ") {
				continue
			}
			if m := re.FindStringSubmatch(l); m != nil {
				i, _ := strconv.Atoi(m[1])
				counts[i]++
				lines[i] = cur
				fn[cur]++
			}
			if strings.Contains(l, "processed") || strings.Contains(l, "Func#") || strings.Contains(l, "Validating") {
				t.Log(l)
			}
		}
		var ls []string
		for k := range fn {
			ls = append(ls, k)
		}
		sort.Slice(ls, func(i, j int) bool { return fn[ls[i]] > fn[ls[j]] })
		for _, l := range ls[:min(45, len(ls))] {
			t.Log(l, fn[l])
		}
	}
}
