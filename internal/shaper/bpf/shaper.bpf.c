// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * shaper.h at a device's egress hook: each packet is given its time of departure, which fq below keeps. Nothing here waits, and nothing is held.
 *
 * A client is an address, or all that is no IP. A packet of a tunnel is its outer address's.
 */
#pragma clang diagnostic ignored "-Wparentheses"

#include "../../bpf/include/types.h"
#include "../../bpf/include/packet.h"

enum { BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_LRU_HASH = 9, BPF_MAP_TYPE_LPM_TRIE = 11 };
enum { BPF_NOEXIST = 1, BPF_F_NO_PREALLOC = 1 };
#include <bpf/bpf_helpers.h>

#include "../../bpf/include/ip.h"

#define STEP() ((void)0)
#define DICE() bpf_get_prandom_u32()
#include "shaper.h"

#define TC_ACT_UNSPEC (-1)	/* go on: TCX_NEXT as well (include/uapi/linux/pkt_cls.h) */
#define TC_ACT_SHOT 2
#define MAX_CLIENTS 65536	/* who was not heard of for longest is forgotten, and begins anew */
#define FLOWS 65536		/* records; flows that share one are kept in order, which costs little */
#define MAX_POLICIES 65536

struct config {
	struct params params;
	struct framing framing;
	u32 link_header;	/* bytes */
	u32 by_source;		/* a client is a source, as of what comes in by an ifb; else a destination */
	u32 generation;		/* of the policies */
	__be32 mask6[4];	/* the bits of an IPv6 address that are a client */
	u32 raw;		/* the framing has the link's header in it; to be read back, too */
	u32 share;		/* of the rate, in millionths; this and the rate are in params, and here to be read back */
	u64 rate;		/* bit/s */
};

/* Two, so that a new one is in force at once and whole. */
struct configs {
	struct config slot[2];
	u32 active;
};

struct address {
	__be32 word[4];		/* IPv4 as ::ffff:0:0/96 */
};

struct policy {
	u64 cap;		/* as struct client's */
	u64 rate;		/* the same in bit/s, to be read back */
	u32 weight;
};

struct prefix {
	u32 length;		/* bits */
	struct address address;
};

struct entry {
	struct client client;
	u32 generation;		/* of its policy */
	u64 bytes, marks, drops;
};

/* What the loader keeps here. */
struct instance {
	u32 layout;		/* LAYOUT in load_linux.go: of all that is read back */
	u32 gso_max_segs;	/* the device's before */
	u32 clsact;		/* was added for this program, on a kernel without TCX */
};

struct instance own SEC(".data.instance") = {};
struct configs conf SEC(".data.config") = {};
struct shaper state;
struct totals {
	u64 marks, drops;	/* packets */
	u64 wait;		/* ns, that a packet was given of late: the longest, which wears off */
};
struct totals total SEC(".data.total") = {};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_CLIENTS);
	__type(key, struct address);
	__type(value, struct entry);
} clients SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOWS);
	__type(key, u32);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, MAX_POLICIES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, struct policy);
} policies SEC(".maps");

static __always_inline void find_client(const struct config *c, struct __sk_buff *skb, const struct ip *ip, struct address *client)
{
	u32 at = (ip->at + (c->by_source ? 12 : 16)) & 63;
	__be32 *near = (void *)(long)skb->data + at;

	*client = (struct address){};
	if (ip->version == 4) {
		client->word[2] = __builtin_bswap32(0xffff);
		if ((void *)(near + 1) <= (void *)(long)skb->data_end) /* nearly always */
			client->word[3] = *near;
		else
			bpf_skb_load_bytes(skb, at, &client->word[3], 4);
	} else if (ip->version == 6) {
		bpf_skb_load_bytes(skb, ip->at + (c->by_source ? 8 : 24), client->word, sizeof(client->word));
		for (int i = 0; i < 4; i++)
			client->word[i] &= c->mask6[i];
	}
}

static __always_inline void set_policy(struct entry *e, u32 generation, const struct address *client)
{
	struct prefix key = { .length = 128, .address = *client };
	struct policy *p = bpf_map_lookup_elem(&policies, &key);

	e->client.weight = p ? p->weight : 1;
	e->client.cap = p ? p->cap : 0;
	e->generation = generation;
}

static __always_inline struct entry *find_entry(const struct config *c, const struct address *client, u64 now)
{
	struct entry *e = bpf_map_lookup_elem(&clients, client);
	u32 generation = READ(c->generation);

	if (!e) {
		struct entry new = { .client.word = new_word(now) };

		set_policy(&new, generation, client);
		bpf_map_update_elem(&clients, client, &new, BPF_NOEXIST);
		e = bpf_map_lookup_elem(&clients, client);
	} else if (e->generation != generation) {
		set_policy(e, generation, client);
	}
	return e;
}

struct walk {
	const struct config *config;
	u64 from;
};

/* After so many slots without as long a wait two thirds of it are forgotten. */
#define WAIT_SLOTS 128

static __always_inline void wear_off(u64 slots)
{
	u64 wait = READ(total.wait);

	READ(total.wait) = slots < WAIT_SLOTS ? wait - wait * slots / WAIT_SLOTS : 0;
}

static long end_one(u32 i, struct walk *w)
{
	end_slot(&state, &w->config->params, w->from + i);
	return 0;
}

SEC("tc")
int shaper_stamp(struct __sk_buff *skb)
{
	const struct config *c = &conf.slot[READ(conf.active) & 1];
	struct arrival a = { .now = bpf_ktime_get_ns(), .wanted = skb->tstamp };
	u64 to = a.now >> (c->params.slot_shift & 63), from, leaves;
	struct address client;
	struct entry *e;
	struct flow *f;
	struct ip ip;
	u32 number;

	if (!READ(own.layout)) /* that it refers to the map is how the loader finds that */
		return TC_ACT_UNSPEC;
	find_ip(c->link_header, skb, &ip);
	find_client(c, skb, &ip, &client);
	e = find_entry(c, &client, a.now);
	number = skb->hash; /* mostly there already, as the device has several queues */
	if (!number)
		number = bpf_get_hash_recalc(skb);
	number &= FLOWS - 1;
	f = bpf_map_lookup_elem(&flows, &number);
	if (!e || !f)
		return TC_ACT_UNSPEC;
	from = begin_walk(&state, to);
	if (from < to) {
		struct walk w = { .config = c, .from = from };

		bpf_loop((u32)(to - from), end_one, &w, 0);
		end_walk(&state, &c->params, to);
		wear_off(to - from);
	}
	a.bytes = on_the_wire(&c->framing, true, skb);
	a.small = a.bytes <= 2 * FULL_FRAME;
	a.ect = ecn_of(&ip);
	if (a.wanted > a.now + LONGEST) /* by another clock (SO_TXTIME) */
		a.wanted = 0;
	leaves = departure(&state, &c->params, &e->client, f, &a);
	if (!leaves || a.marked && !set_ce(skb, &ip) && ecn_of(&ip) != CE) {
		add(&total.drops, 1);
		add(&e->drops, 1);
		return TC_ACT_SHOT;
	}
	if (a.marked) {
		add(&total.marks, 1);
		add(&e->marks, 1);
	}
	add(&e->bytes, a.bytes);
	if (leaves - a.now > READ(total.wait))
		READ(total.wait) = leaves - a.now;
	skb->tstamp = leaves;
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
