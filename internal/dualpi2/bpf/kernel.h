/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few kernel types that the programs look at. Members carry no offsets that count: the loader takes those from the running kernel's BTF
 * (CO-RE), so one object fits all kernels and there is no vmlinux.h to build with.
 */
#pragma once

#include "../../bpf/include/types.h"

enum { BPF_MAP_TYPE_ARRAY = 2 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct net {
	u64 net_cookie;
};
typedef struct {
	struct net *net;
} possible_net_t;
struct net_device {
	int ifindex;
	unsigned int mtu;	/* bytes, without the link's header */
	unsigned short hard_header_len; /* bytes */
	possible_net_t nd_net;
};
struct netdev_queue {
	struct net_device *dev;
};
struct sk_buff {
	unsigned int len;	/* bytes */
	unsigned int truesize;	/* bytes of kernel memory */
	char cb[48];
};
struct qdisc_skb_cb {
	unsigned int pkt_len;	/* bytes on the wire, the headers of all segments included */
	unsigned char data[20];	/* what the marker has said: its __sk_buff.cb */
};
struct qdisc_skb_head {
	u32 qlen;		/* packets */
};
struct gnet_stats_queue {
	u32 qlen, backlog, drops, requeues, overlimits;
};
struct Qdisc {
	u32 limit, handle, parent;
	struct netdev_queue *dev_queue;
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
};
struct bpf_sk_buff_ptr {
	struct sk_buff *skb;
};
struct netlink_ext_ack;
struct nlattr;

#pragma clang attribute pop

/* The loader fills the kernel's Qdisc_ops by the names of these members. */
struct Qdisc_ops {
	char id[16];
	int (*enqueue)(struct sk_buff *, struct Qdisc *, struct sk_buff **);
	struct sk_buff *(*dequeue)(struct Qdisc *);
	int (*init)(struct Qdisc *, struct nlattr *, struct netlink_ext_ack *);
	void (*reset)(struct Qdisc *);
	void (*destroy)(struct Qdisc *);
};

#include "../../bpf/include/packet.h"

#include <bpf/bpf_helpers.h>

#ifndef __kptr
#define __kptr __attribute__((btf_type_tag("kptr")))
#endif

void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free) __ksym;
void bpf_kfree_skb(struct sk_buff *skb) __ksym;
void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, u64 expire, u64 delta_ns) __ksym;
void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb) __ksym;

#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))
