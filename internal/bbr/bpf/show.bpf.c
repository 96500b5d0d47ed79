// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What bpf_bbr knows of each connection. A congestion control in BPF has no get_info, by which ss(8) shows the state of the kernel's own, so this goes over
 * the TCP sockets of a network namespace (an iterator) and writes a record for each that has it. It changes nothing.
 */
#include "kernel.h"

char _license[] SEC("license") = "Dual BSD/GPL";

static const u32 may_limit;

#define GLOBAL static __always_inline

#include "bbr.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	u8 bytes[16];
};
struct sock_common {
	u16 skc_family;
	volatile unsigned char skc_state;
	u16 skc_num, skc_dport;		/* the first in the host's order */
	u32 skc_rcv_saddr, skc_daddr;
	struct in6_addr skc_v6_rcv_saddr, skc_v6_daddr;
};
struct bpf_iter_meta {
	struct seq_file *seq;
};
struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};
/* Beside what kernel.h has of them for the algorithm. */
struct inet_connection_sock___show {
	const void *icsk_ca_ops;
};
struct tcp_congestion_ops___show {
	char name[16];
};
struct bpf_map {
	char name[16];
};
struct bpf_struct_ops_value {
	char data[0];
};
struct bpf_struct_ops_map {
	struct bpf_map map;
	struct bpf_struct_ops_value kvalue;
};

#pragma clang attribute pop

/* include/uapi/linux/socket.h, include/net/tcp_states.h */
enum { AF_INET = 2, AF_INET6 = 10, TCP_CLOSE = 7, TCP_LISTEN = 10 };

/* What it writes of a connection. Go's showShown is made of it. */
struct shown {
	u8 local[16], remote[16];	/* an IPv4 address has 4 */
	u8 map[16];			/* that the kernel keeps the congestion control in: its version */
	u64 rate, most, pacing;		/* bytes/s: it goes by, it has measured, it is sent by */
	u32 srtt, min_rtt;		/* us */
	u32 mss, cwnd, flight, hi, lo;	/* bytes; packets; ~0 is no bound */
	u32 queue;			/* quarters of a packet */
	u16 family, local_port, remote_port;
	u16 tolerate;			/* of 1024 */
	u8 state, held, aim;		/* aim: of 256 */
	u8 unused[5];
};
const struct shown *shown_type __attribute__((unused)); /* so that the object describes the type */

#define OFFSET(type, field) __builtin_preserve_field_info(((struct type *)0)->field, 0 /* BPF_FIELD_BYTE_OFFSET */)

static __always_inline bool ours(const char *name)
{
	const char own[] = "bpf_bbr";
	int i;

	for (i = 0; i < (int)sizeof(own); i++)
		if (name[i] != own[i])
			return false;
	return true;
}

SEC("iter/tcp")
int show(struct bpf_iter__tcp *ctx)
{
	struct sock_common *sk = ctx->sk_common;
	struct shown s = {};
	struct tcp_sock *tp;
	const struct bbr *b;
	char name[16] = {};
	const void *ops = NULL;

	if (!sk || sk->skc_state == TCP_LISTEN || sk->skc_state == TCP_CLOSE)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	bpf_probe_read_kernel(&ops, sizeof(ops), (void *)tp + OFFSET(inet_connection_sock___show, icsk_ca_ops));
	bpf_probe_read_kernel(name, sizeof(name), ops + OFFSET(tcp_congestion_ops___show, name));
	if (!ours(name))
		return 0;
	bpf_probe_read_kernel(s.map, sizeof(s.map), ops - OFFSET(bpf_struct_ops_map, kvalue) - OFFSET(bpf_struct_ops_value, data) +
			      OFFSET(bpf_struct_ops_map, map) + OFFSET(bpf_map, name));
	s.family = sk->skc_family;
	s.local_port = sk->skc_num;
	s.remote_port = __builtin_bswap16(sk->skc_dport);
	if (s.family == AF_INET) {
		*(u32 *)s.local = sk->skc_rcv_saddr;
		*(u32 *)s.remote = sk->skc_daddr;
	} else {
		bpf_probe_read_kernel(s.local, sizeof(s.local), &sk->skc_v6_rcv_saddr);
		bpf_probe_read_kernel(s.remote, sizeof(s.remote), &sk->skc_v6_daddr);
	}
	s.mss = tp->mss_cache;
	s.srtt = tp->srtt_us >> 3;
	s.cwnd = tp->snd_cwnd;
	s.flight = in_flight(tp);
	s.pacing = ((struct sock *)tp)->sk_pacing_rate;

	b = BBR(tp);
	s.rate = bytes_per_second(tp, bw_of(b));
	s.most = bytes_per_second(tp, max_bw(b));
	s.min_rtt = b->min_rtt;
	s.hi = b->hi;
	s.lo = b->lo;
	s.queue = b->queue;
	s.tolerate = b->tolerate;
	s.state = b->state;
	s.held = b->held;
	s.aim = b->aim;
	bpf_seq_write(ctx->meta->seq, &s, sizeof(s));
	return 0;
}
