// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The RTT between this host and the far end of each TCP connection that it forwards, by the timestamps of RFC 7323, after an idea of Kathleen Nichols'
 * (pping): a timestamp that goes out with data comes back with the acknowledgement. It is the time from here through the host's own queue and the
 * provider's to the far end, and back.
 *
 * The programs look and let go: they return TCX_NEXT whatever comes, and write to no packet. What they do not understand they do not count: fragments,
 * options of IP, packets that are cut short, segments without timestamps.
 */
#include "rtt.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define TCX_NEXT -1	/* the same as TC_ACT_UNSPEC */
#define START_NET 1	/* BPF_HDR_START_NET */
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8
#define IPPROTO_TCP 6
#define SYN_RST 6
#define ACK 16
#define TCP_HEADER 20
#define TCP_OPTIONS 40
#define TIMESTAMPS 8	/* kind of the option, which is 10 bytes long; with those it needs to fill up there are 12 */
/* us: what has not come back after so long does not come; an RTT that is longer is not believed */
#define STALE 4000000
/* bytes: a connection that leaps by more than this has begun anew */
#define LEAP (1 << 28)

/* What is of interest in a segment. */
struct segment {
	struct flow_key key;
	u32 seq, ack, payload, stamp, echo, flags;
};

static __always_inline u32 be32(const u8 *b)
{
	return (u32)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3];
}

static __always_inline bool load(struct __sk_buff *skb, u32 at, void *to, u32 bytes)
{
	return !bpf_skb_load_bytes_relative(skb, at, to, bytes, START_NET);
}

/* Where IP begins: a tag of a VLAN may still be before it. */
static __always_inline u32 ip_at(struct __sk_buff *skb)
{
	u8 tag[4];

	if (skb->protocol != bpf_htons(ETH_P_8021Q) && skb->protocol != bpf_htons(ETH_P_8021AD))
		return 0;
	if (!load(skb, 0, tag, sizeof(tag)))
		return 0;
	return (tag[2] << 8 | tag[3]) == ETH_P_IP || (tag[2] << 8 | tag[3]) == ETH_P_IPV6 ? sizeof(tag) : 0;
}

/* Reads the IP header at *at, moves *at behind it, and gives how many bytes come there; 0 if they are no whole TCP segment. */
static __always_inline u32 read_ip(struct __sk_buff *skb, u32 *at, u8 *from, u8 *to)
{
	u8 h[40];

	if (!load(skb, *at, h, 20))
		return 0;
	if (h[0] == 0x45) {
		u32 total = h[2] << 8 | h[3];

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
	return h[4] << 8 | h[5];
}

/* Finds the timestamps among the options of a TCP header. */
static __always_inline bool read_stamps(struct __sk_buff *skb, u32 at, u32 bytes, struct segment *s)
{
	u8 o[64 + 12] = {};
	u32 i = 0;

	asm volatile("%0 &= 63" : "+r"(bytes)); /* so that the verifier sees it, too */
	if (bytes < 12 || bytes > TCP_OPTIONS || !load(skb, at, o, bytes))
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
		if (kind == TIMESTAMPS && size == 10) {
			s->stamp = be32(o + i + 2);
			s->echo = be32(o + i + 6);
			return true;
		}
		if (!kind || size < 2)
			return false;
		i += size;
	}
	return false;
}

/* Reads a segment that goes out, or comes in; false for what is not looked at. */
static __always_inline bool read(struct __sk_buff *skb, struct segment *s, bool out)
{
	u8 h[TCP_HEADER];
	u32 at = ip_at(skb), left, header;

	left = out ? read_ip(skb, &at, s->key.here, s->key.there) : read_ip(skb, &at, s->key.there, s->key.here);
	if (left < TCP_HEADER || !load(skb, at, h, sizeof(h)))
		return false;
	header = (h[12] >> 4) * 4;
	s->flags = h[13];
	if (header <= TCP_HEADER || left < header || s->flags & SYN_RST)
		return false;
	s->payload = left - header;
	if (out && !s->payload)
		return false;
	__builtin_memcpy(out ? &s->key.here_port : &s->key.there_port, h, 2);
	__builtin_memcpy(out ? &s->key.there_port : &s->key.here_port, h + 2, 2);
	s->key.ifindex = skb->ifindex;
	s->seq = be32(h + 4);
	s->ack = be32(h + 8);
	return read_stamps(skb, at + TCP_HEADER, header - TCP_HEADER, s);
}

static __always_inline u32 now_us(void)
{
	return bpf_ktime_get_ns() / 1000;
}

/* Remembers when a timestamp goes out first: one in a sixteenth of an RTT, so that the slots last for one. */
static __always_inline void remember(struct flow *f, u32 stamp)
{
	u64 *slot = &f->slot[f->turn & (SLOTS - 1)];
	u32 now = now_us();

	if (now - f->at < f->smooth >> 3 >> SLOTS_LOG)
		return;
	if (*slot && now - (u32)*slot < STALE)
		return;
	*slot = (u64)stamp << 32 | now;
	f->turn++;
	f->at = now;
}

/*
 * Counts data that goes out. What goes out a second time was lost beyond this host, unless it fills a hole: that was lost before it came here.
 */
static __always_inline void count(struct flow *f, const struct segment *s)
{
	u32 end = s->seq + s->payload, old = s->payload, fill;
	s32 ahead = s->seq - f->next, fresh = end - f->next;

	f->sent += s->payload;
	if (ahead > LEAP || ahead < -LEAP) {
		f->next = end;
		f->holes = 0;
		return;
	}
	if (ahead > 0) {
		f->holes += ahead;
		f->next = end;
		return;
	}
	if (fresh > 0) {
		f->next = end;
		old -= fresh;
	}
	fill = old < f->holes ? old : f->holes;
	f->holes -= fill;
	f->again += old - fill;
}

u32 any; /* connection is known: else what comes in need not be read */

static const struct flow nothing; /* is too large for the stack beside the rest */

SEC("tc")
int rtt_out(struct __sk_buff *skb)
{
	struct segment s = {};
	struct flow *f;
	u32 segments = 1, size;

	/* What this host sends itself has a socket, which knows more than can be seen here. */
	if (skb->sk || !read(skb, &s, true))
		return TCX_NEXT;
	f = bpf_map_lookup_elem(&flows, &s.key);
	if (!f) {
		bpf_map_update_elem(&flows, &s.key, &nothing, BPF_NOEXIST);
		f = bpf_map_lookup_elem(&flows, &s.key);
		if (!f)
			return TCX_NEXT;
		any = 1;
		f->next = s.seq;
		f->una = s.seq;
		f->stamp = s.stamp - 1;
		f->echoed = s.stamp - 1;
		f->at = now_us() - STALE;
	}
	/* A virtual card's superpackets do not say of how many segments they are. */
	size = s.payload;
	if (skb->gso_size && skb->gso_size < size) {
		size = skb->gso_size;
		segments = (s.payload + size - 1) / size;
	}
	if (size > f->mss)
		f->mss = size;
	f->packets += segments;
	count(f, &s);
	if ((s32)(s.stamp - f->stamp) > 0) {
		f->stamp = s.stamp;
		remember(f, s.stamp);
	}
	return TCX_NEXT;
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
	f->samples++;
}

SEC("tc")
int rtt_in(struct __sk_buff *skb)
{
	struct segment s = {};
	struct flow *f;
	u32 now;

	if (!any || !read(skb, &s, false) || !(s.flags & ACK))
		return TCX_NEXT;
	f = bpf_map_lookup_elem(&flows, &s.key);
	if (!f)
		return TCX_NEXT;
	if ((s32)(s.ack - f->una) > 0) {
		f->acked += s.ack - f->una;
		f->una = s.ack;
		if (f->una == f->next)
			f->holes = 0;
	}
	if ((s32)(s.echo - f->echoed) <= 0)
		return TCX_NEXT;
	f->echoed = s.echo;
	now = now_us();
	for (int i = 0; i < SLOTS; i++) {
		u64 kept = f->slot[i];
		s32 later = (u32)(kept >> 32) - s.echo;

		if (!kept || later > 0)
			continue;
		f->slot[i] = 0;
		if (!later)
			sample(f, now - (u32)kept);
	}
	return TCX_NEXT;
}
