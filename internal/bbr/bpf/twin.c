// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* bbr.h as a congestion control of a kernel's own, under the same name: for one without struct_ops, as the lab's (net/ipv4/tcp_bpf_bbr.c of it). */
#include <linux/module.h>
#include <linux/random.h>
#include <net/tcp.h>

static const u32 may_limit = 1;

#define GLOBAL static
#define bpf_get_prandom_u32 get_random_u32
#define in_flight(tp) tcp_packets_in_flight(tp)

static __always_inline void pace(struct sock *sk)
{
	cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
}

#include "bbr.h"

static void twin_init(struct sock *sk) { bbr_start(sk, tcp_sk(sk)); }
static u32 twin_ssthresh(struct sock *sk) { return bbr_ssthresh(tcp_sk(sk)); }
static u32 twin_undo_cwnd(struct sock *sk) { return bbr_undo(tcp_sk(sk)); }
static void twin_set_state(struct sock *sk, u8 to) { bbr_state(tcp_sk(sk), to); }
static void twin_tx_start(struct sock *sk) { bbr_restart(sk, tcp_sk(sk)); }
static u32 twin_sndbuf_expand(struct sock *sk) { return 3; }

static void twin_cong_control(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	bbr_ack(sk, tcp_sk(sk), rs);
}

static struct tcp_congestion_ops twin __read_mostly = {
	.init = twin_init,
	.ssthresh = twin_ssthresh,
	.undo_cwnd = twin_undo_cwnd,
	.set_state = twin_set_state,
	.cong_control = twin_cong_control,
	.cwnd_event_tx_start = twin_tx_start,
	.sndbuf_expand = twin_sndbuf_expand,
	.name = "bpf_bbr",
	.flags = TCP_CONG_NON_RESTRICTED,
	.owner = THIS_MODULE,
};

static int __init twin_register(void) { return tcp_register_congestion_control(&twin); }
module_init(twin_register);
MODULE_LICENSE("Dual BSD/GPL");
