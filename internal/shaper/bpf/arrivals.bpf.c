// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What arrives at a device, and when: for tests. */
#include "../../bpf/include/types.h"
#include "../../bpf/include/packet.h"

#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual BSD/GPL";

#define HEADERS 66	/* bytes: of each segment of the tests' TCP */
#define BINS 65536
#define BIN_SHIFT 18	/* 0.26 ms */

u64 bins[BINS];		/* bytes */

SEC("tc")
int arrivals_count(struct __sk_buff *skb)
{
	u32 more = skb->gso_segs > 1 ? skb->gso_segs - 1 : 0;

	__sync_fetch_and_add(&bins[bpf_ktime_get_ns() >> BIN_SHIFT & (BINS - 1)], skb->len + more * HEADERS);
	return -1; /* TC_ACT_UNSPEC */
}
