// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The RTT between this host and the far end of each TCP connection that it forwards: from when a segment has left the device's queue to the
 * acknowledgement that names where it ends. So it is the provider's queue and the path, and no wait of this host's.
 *
 * The program is the filter of a packet socket, which sees what leaves behind the queue, and what comes before all else. It lets nothing into the
 * socket and changes no packet. What it does not understand it does not count: fragments, options of IP, packets that are cut short.
 *
 * Four things are no RTT. An acknowledgement of one segment may have been put off (RFC 9293, section 3.8.6.3), so it has to be of more, or
 * selective. What went out twice may be acknowledged for the first time (Karn). What came before a hole was filled has waited for that. And
 * nobody acknowledges what was never sent.
 */
#include "rtt.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define NOTHING 0	/* is what the socket gets of a packet */
#define PACKET_OUTGOING 4	/* include/uapi/linux/if_packet.h */
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define IPPROTO_TCP 6
#define SYN 2
#define RST 4
#define ACK 16
#define TCP_HEADER 20
#define TCP_OPTIONS 40
#define SACK 5	/* kind of the option, with 8 bytes for each block */
/* us: what has not come back after so long does not come; an RTT that is longer is not believed */
#define STALE 4000000
/* bytes: two segments that are not more may be put off, however large the largest was: Linux knows no smaller MSS (tcp_initialize_rcv_mss()) */
#define LEAST_MSS 536
/* bytes: a connection that leaps by more than this has begun anew */
#define LEAP (1 << 28)

/* What is of interest in a segment. */
struct segment {
	struct flow_key key;
	u32 seq, ack, payload, flags;
	u32 options, at;	/* bytes of them, and where they are */
};

static __always_inline u32 be32(const u8 *b)
{
	return (u32)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
}

static __always_inline bool load(struct __sk_buff *skb, u32 at, void *to, u32 bytes)
{
	return !bpf_skb_load_bytes(skb, at, to, bytes);
}

/* Where IP begins. Of two tags of VLANs the inner one is before it in what comes in. */
static __always_inline u32 ip_at(struct __sk_buff *skb, bool out)
{
	u8 tag[4];

	if (out || (skb->protocol != bpf_htons(ETH_P_8021Q) && skb->protocol != bpf_htons(ETH_P_8021AD)) || !load(skb, 0, tag, sizeof(tag)))
		return 0;
	return (tag[2] << 8 | tag[3]) == ETH_P_IP || (tag[2] << 8 | tag[3]) == ETH_P_IPV6 ? sizeof(tag) : 0;
}

/* How many bytes there are from somewhere on, if those are more than IP's field for the length holds: it is 0 then (BIG TCP). */
static __always_inline u32 beyond(struct __sk_buff *skb, u32 at)
{
	return skb->len - at > 0xffff ? skb->len - at : 0;
}

/* Reads the IP header at *at, moves *at behind it, and gives how many bytes come there; 0 if they are no whole TCP segment. */
static __always_inline u32 read_ip(struct __sk_buff *skb, u32 *at, u8 *from, u8 *to)
{
	u8 h[40];

	if (!load(skb, *at, h, 20))
		return 0;
	if (h[0] == 0x45) {
		u32 total = h[2] << 8 | h[3] ?: beyond(skb, *at);

		if (h[6] & 0x3f || h[7] || h[9] != IPPROTO_TCP || total < 20)
			return 0;
		from[10] = from[11] = to[10] = to[11] = 0xff;
		__builtin_memcpy(from + 12, h + 12, 4);
		__builtin_memcpy(to + 12, h + 16, 4);
		*at += 20;
		return total - 20;
	}
	if (h[0] >> 4 != 6 || h[6] != IPPROTO_TCP || !load(skb, *at, h, 40))
		return 0;
	__builtin_memcpy(from, h + 8, 16);
	__builtin_memcpy(to, h + 24, 16);
	*at += 40;
	return h[4] << 8 | h[5] ?: beyond(skb, *at);
}

/* Reads a segment that goes out, or comes in; false for what is none. */
static __always_inline bool read(struct __sk_buff *skb, struct segment *s, bool out)
{
	u8 h[TCP_HEADER];
	u32 at = ip_at(skb, out), left, header;

	left = out ? read_ip(skb, &at, s->key.here, s->key.there) : read_ip(skb, &at, s->key.there, s->key.here);
	if (left < TCP_HEADER || !load(skb, at, h, sizeof(h)))
		return false;
	header = (h[12] >> 4) * 4;
	if (header < TCP_HEADER || left < header)
		return false;
	s->flags = h[13];
	s->payload = left - header;
	__builtin_memcpy(out ? &s->key.here_port : &s->key.there_port, h, 2);
	__builtin_memcpy(out ? &s->key.there_port : &s->key.here_port, h + 2, 2);
	s->key.ifindex = skb->ifindex;
	s->seq = be32(h + 4);
	s->ack = be32(h + 8);
	s->at = at + TCP_HEADER;
	s->options = header - TCP_HEADER;
	return true;
}

/* Finds where the first block ends that is acknowledged selectively: it is of what came last (RFC 2018, section 4). */
static __always_inline bool read_sack(struct __sk_buff *skb, const struct segment *s, u32 *end)
{
	u8 o[64 + 12] = {};
	u32 i = 0, bytes = s->options;

	asm volatile("%0 &= 63" : "+r"(bytes)); /* so that the verifier sees it, too */
	if (bytes < 10 || bytes > TCP_OPTIONS || !load(skb, s->at, o, bytes))
		return false;
	for (int n = 0; n < TCP_OPTIONS && i + 10 <= bytes; n++) {
		u32 kind, size;

		i &= 63;
		kind = o[i];
		size = o[i + 1];
		if (kind == 1) { /* nothing */
			i++;
			continue;
		}
		if (kind == SACK && size >= 10) {
			*end = be32(o + i + 6);
			return true;
		}
		if (!kind || size < 2)
			return false;
		i += size;
	}
	return false;
}

static __always_inline u32 now_us(void)
{
	return bpf_ktime_get_ns() / 1000;
}

/*
 * Remembers where segments end, and when they went out: two in an eighth of an RTT, so that the slots last for one. Two that follow each other, since
 * clients acknowledge every second one.
 */
static __always_inline void remember(struct flow *f, u32 end)
{
	u64 *slot = &f->slot[f->turn & (SLOTS - 1)];
	u32 now = now_us();
	bool second = f->turn & 1;

	if (!second && now - f->at < f->smooth >> 3 >> (SLOTS_LOG - 1))
		return;
	if (*slot && now - (u32)*slot < STALE)
		return;
	*slot = (u64)end << 32 | now;
	f->turn++;
	if (!second)
		f->at = now;
}

/* Forgets what ends in a segment that goes out again: which of the two is acknowledged cannot be told. */
static __always_inline void forget(struct flow *f, const struct segment *s)
{
	for (int i = 0; i < SLOTS; i++) {
		u32 end = f->slot[i] >> 32;

		if (end - s->seq - 1 < s->payload)
			f->slot[i] = 0;
	}
}

/*
 * Counts data that goes out, and tells whether it is all new. What goes out a second time was lost beyond this host, unless it fills a hole: that was
 * lost before it came here.
 */
static __always_inline bool count(struct flow *f, const struct segment *s)
{
	u32 end = s->seq + s->payload, old = s->payload, fill;
	s32 ahead = s->seq - f->next, fresh = end - f->next;

	f->sent += s->payload;
	if (ahead > LEAP || ahead < -LEAP) {
		f->next = end;
		f->una = f->mark = s->seq;
		f->holes = 0;
		return true;
	}
	if (ahead >= 0) {
		f->holes += ahead;
		f->next = end;
		return true;
	}
	if (fresh > 0) {
		f->next = end;
		old -= fresh;
	}
	fill = old < f->holes ? old : f->holes;
	f->holes -= fill;
	f->again += old - fill;
	return false;
}

u32 any; /* connection is known: else what comes in need not be read */

static const struct flow nothing; /* is too large for the stack beside the rest */

static __always_inline void leaves(struct __sk_buff *skb, struct segment *s)
{
	struct flow *f;
	u32 segments = 1, size;

	if (s->flags & SYN) {
		bpf_map_delete_elem(&flows, &s->key); /* a connection with these addresses and ports begins anew */
		return;
	}
	if (s->flags & RST || !s->payload)
		return;
	f = bpf_map_lookup_elem(&flows, &s->key);
	if (!f) {
		bpf_map_update_elem(&flows, &s->key, &nothing, BPF_NOEXIST);
		f = bpf_map_lookup_elem(&flows, &s->key);
		if (!f)
			return;
		any = 1;
		f->next = s->seq;
		f->una = f->mark = s->seq;
		f->at = now_us() - STALE;
	}
	/* A virtual card's superpackets do not say of how many segments they are. */
	size = s->payload;
	if (skb->gso_size && skb->gso_size < size) {
		size = skb->gso_size;
		segments = (s->payload + size - 1) / size;
	}
	if (size > f->mss)
		f->mss = size;
	f->packets += segments;
	if (count(f, s)) {
		remember(f, s->seq + s->payload);
	} else {
		forget(f, s);
		f->mark = f->next;
	}
}

/* Takes an RTT in us. */
static __always_inline void sample(struct flow *f, u32 rtt)
{
	if (rtt >= STALE)
		return;
	if (!rtt)
		rtt = 1;
	f->last = rtt;
	if (!f->samples || rtt < f->least)
		f->least = rtt;
	f->smooth = f->samples ? f->smooth + rtt - (f->smooth >> 3) : rtt << 3;
	f->sum += rtt;
	f->samples++;
}

static __always_inline void comes(struct __sk_buff *skb, struct segment *s)
{
	struct flow *f;
	u32 now, more, named;
	bool names, whole;

	if ((s->flags & (SYN | RST | ACK)) != ACK)
		return;
	f = bpf_map_lookup_elem(&flows, &s->key);
	/* A connection's end takes a number, too. */
	if (!f || (s32)(s->ack - f->next) > 1 || (s32)(s->ack - f->una) < 0)
		return;
	more = s->ack - f->una;
	whole = (s32)(f->una - f->mark) >= 0;
	f->acked += more;
	f->una = s->ack;
	if ((s32)(f->una - f->next) >= 0)
		f->holes = 0;
	names = read_sack(skb, s, &named) && (s32)(named - s->ack) > 0;
	if (!names && !more)
		return;
	if (!names) {
		named = s->ack;
		names = whole && more > f->mss && more > LEAST_MSS;
	}
	now = now_us();
	for (int i = 0; i < SLOTS; i++) {
		u64 kept = f->slot[i];
		s32 beyond = (u32)(kept >> 32) - s->ack;

		if (!kept)
			continue;
		if (names && (u32)(kept >> 32) == named) {
			f->slot[i] = 0;
			sample(f, now - (u32)kept);
		} else if (beyond <= 0) {
			f->slot[i] = 0;
		}
	}
}

SEC("socket")
int rtt(struct __sk_buff *skb)
{
	struct segment s = {};

	/* What this host sends itself came by no device. It has a socket, which knows more than can be seen here. */
	if (skb->pkt_type == PACKET_OUTGOING && skb->ingress_ifindex) {
		if (read(skb, &s, true))
			leaves(skb, &s);
	} else if (any && skb->pkt_type != PACKET_OUTGOING) {
		if (read(skb, &s, false))
			comes(skb, &s);
	}
	return NOTHING;
}
