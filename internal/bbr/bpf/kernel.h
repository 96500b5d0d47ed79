/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few kernel types that the programs look at. Members carry no offsets that count: the loader takes those from the running kernel's BTF
 * (CO-RE), so one object fits all kernels and there is no vmlinux.h to build with.
 */
#pragma once

#include "../../bpf/include/types.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock {
	unsigned long sk_pacing_rate, sk_max_pacing_rate; /* bytes/s */
	u32 sk_pacing_status;
};
struct inet_connection_sock {
	u64 icsk_ca_priv[13];		/* what a congestion control keeps: 104 bytes */
};
struct minmax_sample {
	u32 t, v;
};
struct minmax {
	struct minmax_sample s[3];
};
struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u64 tcp_mstamp;			/* us, of the ACK that is looked at */
	u32 delivered, delivered_ce;	/* packets */
	u32 lost;
	u32 srtt_us;			/* << 3 */
	u32 snd_cwnd, snd_ssthresh, snd_cwnd_clamp;
	u32 mss_cache;			/* bytes */
	u32 packets_out, retrans_out, sacked_out, lost_out;
	u32 app_limited;
	struct minmax rtt_min;		/* us: the least of tcp_min_rtt_wlen, 300 s */
};
struct rate_sample {
	u32 prior_delivered;
	s32 delivered;
	long interval_us, rtt_us;
	u32 acked_sacked;
	bool is_app_limited;
};

#pragma clang attribute pop

/* The loader fills the kernel's tcp_congestion_ops by the names of these members. */
struct tcp_congestion_ops {
	void (*cong_control)(struct sock *, u32, int, const struct rate_sample *);
	u32 (*ssthresh)(struct sock *);
	void (*set_state)(struct sock *, u8);
	void (*cwnd_event)(struct sock *, u32);
	void (*cwnd_event_tx_start)(struct sock *);	/* since 7.1, in place of cwnd_event */
	u32 (*undo_cwnd)(struct sock *);
	u32 (*sndbuf_expand)(struct sock *);
	char name[16];
	u32 flags;
	void (*init)(struct sock *);
};

#include <bpf/bpf_helpers.h>

/* include/net/tcp.h */
#define TCP_CONG_NON_RESTRICTED	(1 << 0)
enum { TCP_CA_Open, TCP_CA_Loss = 4 };
enum { CA_EVENT_TX_START };
/* include/net/sock.h */
enum { SK_PACING_NONE, SK_PACING_NEEDED };

static __always_inline u32 in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - (tp->sacked_out + tp->lost_out) + tp->retrans_out;
}

static __always_inline void pace(struct sock *sk)
{
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}
