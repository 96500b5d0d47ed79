// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* bpf_bbr: bbr.h as a tcp_congestion_ops of BPF, for kernels from 6.1. */
#include "kernel.h"

char _license[] SEC("license") = "Dual BSD/GPL";

const volatile u32 may_limit = 1;	/* may app_limited be written? The loader tries: 6.1 does not let it */

/* A verifier follows a function that is global once, and not from each place where it is called. */
#define GLOBAL __noinline

#include "bbr.h"

#define TP ((struct tcp_sock *)ctx[0])
#define SK ((struct sock *)ctx[0])

SEC("struct_ops")
void init(u64 *ctx) { bbr_start(SK, TP); }

SEC("struct_ops")
u32 ssthresh(u64 *ctx) { return bbr_ssthresh(TP); }

SEC("struct_ops")
u32 undo_cwnd(u64 *ctx) { return bbr_undo(TP); }

SEC("struct_ops")
void set_state(u64 *ctx) { bbr_state(TP, (u8)ctx[1]); }

SEC("struct_ops")
void cong_control(u64 *ctx) { bbr_ack(SK, TP, (const struct rate_sample *)ctx[3]); }

/* Before 6.10 it has two arguments: the loader takes this one. */
SEC("struct_ops")
void cong_control_2(u64 *ctx) { bbr_ack(SK, TP, (const struct rate_sample *)ctx[1]); }

SEC("struct_ops")
void cwnd_event(u64 *ctx)
{
	if ((u32)ctx[1] == CA_EVENT_TX_START)
		bbr_restart(SK, TP);
}

SEC("struct_ops")
void cwnd_event_tx_start(u64 *ctx) { bbr_restart(SK, TP); }

/* As the kernel's bbr: three times cwnd, so that there is something to send in recovery. */
SEC("struct_ops")
u32 sndbuf_expand(u64 *ctx) { return 3; }

SEC(".struct_ops.link")
struct tcp_congestion_ops bpf_bbr = {
	.init = (void *)init,
	.ssthresh = (void *)ssthresh,
	.undo_cwnd = (void *)undo_cwnd,
	.set_state = (void *)set_state,
	.cong_control = (void *)cong_control,
	.cwnd_event = (void *)cwnd_event,
	.cwnd_event_tx_start = (void *)cwnd_event_tx_start,
	.sndbuf_expand = (void *)sndbuf_expand,
	.name = "bpf_bbr",
	.flags = TCP_CONG_NON_RESTRICTED,
};
