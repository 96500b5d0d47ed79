/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What programs at a device's hooks need to know of a packet: where its IP header is, its ECN field, and what it takes on the wire.
 */
#pragma once

#include "types.h"
#include "packet.h"

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8
#define VLAN_TAG 4		/* bytes */
#define ECN_MASK 3
#define CE 3
#define BE16(x) __builtin_bswap16(x)

/* An IP header: where it is, in bytes from the packet's start, and its first two bytes, which both versions have the ECN field in. */
struct ip {
	u32 at;
	u8 version;		/* 4 or 6; 0: no IP */
	u8 tagged;		/* behind VLAN tags that are part of the packet */
	u8 head[2];
};

static __always_inline u32 ecn_of(const struct ip *ip)
{
	return ip->version == 4 ? ip->head[1] & ECN_MASK : ip->version == 6 ? ip->head[1] >> 4 & ECN_MASK : 0;
}

/*
 * Finds it behind a link's header of so many bytes. Tags that the device adds are not part of the packet, and skb->protocol is what they would hide; up to
 * two that are part of it are looked behind.
 */
static __always_inline void find_ip(u32 link_header, struct __sk_buff *skb, struct ip *ip)
{
	u32 protocol = skb->protocol;
	u8 *header;
	__be16 inner;

	ip->at = link_header;
	ip->version = ip->tagged = 0;
	for (int i = 0; i < 2 && (protocol == BE16(ETH_P_8021Q) || protocol == BE16(ETH_P_8021AD)); i++) {
		if (bpf_skb_load_bytes(skb, ip->at + 2, &inner, sizeof(inner)))
			return;
		protocol = inner;
		ip->at += VLAN_TAG;
		ip->tagged = 1;
	}
	if (protocol != BE16(ETH_P_IP) && protocol != BE16(ETH_P_IPV6))
		return;
	header = (void *)(long)skb->data + (ip->at & 63);
	if ((void *)(header + 2) <= (void *)(long)skb->data_end) { /* nearly always */
		ip->head[0] = header[0];
		ip->head[1] = header[1];
	} else if (bpf_skb_load_bytes(skb, ip->at, ip->head, sizeof(ip->head))) {
		return;
	}
	if (ip->head[0] >> 4 == (protocol == BE16(ETH_P_IP) ? 4 : 6)) /* else it is not where it should be: nothing to be marked */
		ip->version = ip->head[0] >> 4;
}

/* Marks a packet CE; false if it cannot be written to. */
static __always_inline bool set_ce(struct __sk_buff *skb, struct ip *ip)
{
	__be16 before = *(__be16 *)ip->head, after;

	/* Of the two ways the cheaper one takes no packet whose header others share, and none behind tags. */
	if (!ip->tagged && bpf_skb_ecn_set_ce((void *)skb))
		return true;
	ip->head[1] |= ip->version == 4 ? CE : CE << 4;
	after = *(__be16 *)ip->head;
	if (ip->version == 4 && bpf_l3_csum_replace(skb, ip->at + 10, before, after, sizeof(after)))
		return false;
	return !bpf_skb_store_bytes(skb, ip->at, ip->head, sizeof(ip->head), 0);
}

/* What a link makes of a packet (tc-cake(8): overhead, mpu, atm, ptm). */
struct framing {
	s32 overhead;		/* bytes */
	u32 mpu;		/* bytes */
	u32 cells;		/* NO_CELLS, ATM or PTM */
};
enum { NO_CELLS, ATM, PTM };

/* What one packet takes on the wire, in bytes. */
static __always_inline u32 framed(const struct framing *f, u32 len)
{
	s32 n = (s32)len + f->overhead;

	if (n < (s32)f->mpu)
		n = f->mpu;
	if (f->cells == ATM)
		return ((u32)n + 47) / 48 * 53;
	if (f->cells == PTM)
		return (u32)n + ((u32)n + 63) / 64;
	return n;
}

/* What a packet has instead of a segment's size if each of its segments has one of its own, as SCTP's have (include/linux/skbuff.h). */
#define GSO_BY_FRAGS 0xffff

/*
 * The same of a packet that may be several segments: all but the last are of one size, or are taken to be where nobody says. Where the link does not
 * count, it is what the kernel says.
 */
static __always_inline u32 on_the_wire(const struct framing *f, bool counts, struct __sk_buff *skb)
{
	u32 len = skb->wire_len, more = skb->gso_segs, size = skb->gso_size, full;

	if (!counts)
		return len;
	if (size && !more) /* a virtual machine's, that nobody has counted */
		more = (skb->len + size - 1) / size;
	if (more <= 1)
		return framed(f, len);
	more--;
	if (size == GSO_BY_FRAGS)
		full = len / (more + 1);
	else
		full = size + (len - skb->len) / more; /* wire_len counts the headers of each segment */
	return more * framed(f, full) + framed(f, len - more * full);
}
