/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few kernel types that the programs look at. Members carry no offsets that count: the loader takes those from the running kernel's BTF
 * (CO-RE), so one object fits all kernels and there is no vmlinux.h to build with.
 */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u16 __sum16;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

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

/* What a TC program sees of a packet (include/uapi/linux/bpf.h): part of the ABI, so its offsets do count. */
struct __sk_buff {
	u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority, ingress_ifindex, ifindex, tc_index, cb[5],
		hash, tc_classid, data, data_end, napi_id, family, remote_ip4, local_ip4, remote_ip6[4], local_ip6[4], remote_port, local_port,
		data_meta;
	u64 flow_keys, tstamp;
	u32 wire_len, gso_segs;
	u64 sk;
	u32 gso_size;
};

#include <bpf/bpf_helpers.h>

#ifndef __kptr
#define __kptr __attribute__((btf_type_tag("kptr")))
#endif

void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free) __ksym;
void bpf_kfree_skb(struct sk_buff *skb) __ksym;
void bpf_qdisc_watchdog_schedule(struct Qdisc *sch, u64 expire, u64 delta_ns) __ksym;
void bpf_qdisc_bstats_update(struct Qdisc *sch, const struct sk_buff *skb) __ksym;

#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))
