// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * shaper.h before senders: local and routed TCP, floods, and clients that come and go, in virtual time. What leaves goes through a FIFO at the rate that
 * was sold, as a provider has it. It says in JSON what each client got and how long what waited.
 *
 *	fair SEED RATE SECONDS PARAMETERS GROUP...
 *
 * RATE is bytes/s. PARAMETERS are the numbers of struct params in their order, with commas. A group is
 * KIND:CLIENTS:CONNECTIONS[:WEIGHT[:CAP[:FROM:TO]]]: kinds are local, ecn, routed, routedecn, web, flood and ectflood; CAP is bytes/s, FROM and TO seconds.
 * A flood sends CONNECTIONS times RATE. With no CLIENTS the senders are the last client's, too.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
typedef int32_t s32;

#define STEP() ((void)0)

#include "../../bpf/include/dice.h"
#define DICE() ((u32)roll64())

#include "shaper.h"

enum { MSS = 1448, HEADERS = 66, INITIAL = 10 * MSS, MAX_CLIENTS = 4096, MAX_FLOWS = 65536, SAMPLES = 1 << 20 };
enum { LOCAL, ECN, ROUTED, ROUTED_ECN, WEB, FLOOD, ECT_FLOOD, PROBE };	/* kinds of senders */
enum { ARRIVE, LEAVE, ACK, LOST, GO, STOP, DATAGRAM };	/* kinds of events */

struct sender {
	int kind, client;
	struct flow flow;
	double cwnd, ssthresh, before, inflight, left; /* bytes */
	double srtt, path, cut, since;	/* ns: cut is when it last backed off, since when it last grew from there */
	double delivered;		/* bytes on the wire, once it counts */
	double waiting;			/* bytes here: a local connection has no more than two superpackets here */
	bool on;
};
struct event {
	double at, sent;		/* ns */
	int kind, sender;
	u32 bytes;
	bool marked;
};
struct samples {
	int count;
	float of[SAMPLES];		/* ms */
};

static struct params params;
static struct shaper shaper;
static struct client clients[MAX_CLIENTS];
static struct sender senders[MAX_FLOWS];
static int client_count, sender_count, measured;
static struct event *events;
static int event_count, event_room;
static double now, from, until, rate, link_free, on_wire;
static struct samples other, same, provider;
static u64 marks, drops, probe_drops;
static u32 biggest;			/* superpacket, bytes */

static bool routed(const struct sender *x) { return x->kind == ROUTED || x->kind == ROUTED_ECN; }

static double random_part(void) { return (double)(roll64() >> 11) / (double)(1ULL << 53); }
static double exponential(double mean) { return -log(random_part() + 1e-12) * mean; }

static void push(struct event e)
{
	int i = event_count++;

	if (event_count > event_room)
		events = realloc(events, (event_room = event_room * 2 + 1024) * sizeof *events);
	for (; i && events[(i - 1) / 2].at > e.at; i = (i - 1) / 2)
		events[i] = events[(i - 1) / 2];
	events[i] = e;
}

static struct event pop(void)
{
	struct event first = events[0], last = events[--event_count];
	int i = 0, child;

	for (; (child = 2 * i + 1) < event_count; i = child) {
		if (child + 1 < event_count && events[child + 1].at < events[child].at)
			child++;
		if (events[child].at >= last.at)
			break;
		events[i] = events[child];
	}
	events[i] = last;
	return first;
}

static void sample(struct samples *s, double ns)
{
	if (now >= from && s->count < SAMPLES)
		s->of[s->count++] = (float)(ns / 1e6);
}

/* Once for what was sent before it was told last. */
static void back_off(struct sender *x, double sent)
{
	if (sent < x->cut)
		return;
	x->cut = x->since = now;
	x->before = x->cwnd;
	x->cwnd *= 0.7;
	if (x->cwnd < 2 * MSS)
		x->cwnd = 2 * MSS;
	x->ssthresh = x->cwnd;
}

/* CUBIC (RFC 9438). */
static void grow(struct sender *x, double acked)
{
	double t, k, target;

	if (x->cwnd < x->ssthresh) {
		x->cwnd += acked;
		return;
	}
	t = (now + x->srtt - x->since) / 1e9;
	k = cbrt(x->before / MSS * 0.3 / 0.4);
	target = (0.4 * (t - k) * (t - k) * (t - k) + x->before / MSS) * MSS;
	if (target > 1.5 * x->cwnd)
		target = 1.5 * x->cwnd;
	t = MSS * acked / x->cwnd * 0.53;	/* as Reno would */
	if (target > x->cwnd && (target - x->cwnd) * acked / x->cwnd > t)
		t = (target - x->cwnd) * acked / x->cwnd;
	x->cwnd += t;
}

static void send(struct sender *x);

/* Through the shaper; false if it is dropped. */
static bool shape(struct sender *x, u32 bytes, double sent)
{
	u64 at = (u64)now, to = at >> params.slot_shift, slot = begin_walk(&shaper, to), leaves;
	u32 wire = bytes + (bytes + MSS - 1) / MSS * HEADERS;
	struct arrival a = { .now = at, .bytes = wire, .small = wire <= 3028, .ect = x->kind == ECN || x->kind == ROUTED_ECN || x->kind == ECT_FLOOD };

	if (slot < to) {
		for (; slot < to; slot++)
			end_slot(&shaper, &params, slot);
		end_walk(&shaper, &params, to);
	}
	leaves = departure(&shaper, &params, &clients[x->client], &x->flow, &a);
	if (leaves)
		push((struct event){ (double)leaves, sent, LEAVE, (int)(x - senders), bytes, a.marked });
	marks += leaves && a.marked;
	drops += !leaves;
	probe_drops += !leaves && x->kind == PROBE;
	return leaves;
}

static void leave(struct event e)
{
	struct sender *x = &senders[e.sender];
	u32 wire = e.bytes + (e.bytes + MSS - 1) / MSS * HEADERS;
	double wait;

	if (link_free < now)
		link_free = now;
	wait = link_free - now;
	link_free += wire * 1e9 / rate;
	if (now >= from) {
		on_wire += wire;
		x->delivered += wire;
	}
	sample(&provider, wait);
	if (x->kind == PROBE) {
		sample(x->client < measured ? &same : &other, now - e.sent + wait);
		return;
	}
	if (x->kind >= FLOOD)
		return;
	x->waiting -= e.bytes;
	push((struct event){ link_free + (routed(x) ? x->path / 2 : x->path), e.sent, ACK, e.sender, e.bytes, e.marked });
	send(x);
}

static void send(struct sender *x)
{
	while (x->on && x->kind < FLOOD) {
		double size = 1.2 * x->cwnd / x->srtt * 1e6, room = x->cwnd - x->inflight; /* a millisecond's (tcp_tso_autosize) */

		if (size < 2 * MSS)
			size = 2 * MSS;
		if (size > biggest)
			size = biggest;
		if (!routed(x) && x->waiting >= 2 * size)
			return;
		if (size > room) {
			if (room < MSS || (x->inflight > 0 && room < size / 3))
				return;
			size = room;
		}
		if (size > x->left)
			size = x->left;
		if (size < 1)
			return;
		if (routed(x)) { /* from another host: half the path is before this one */
			push((struct event){ now + x->path / 2, now, ARRIVE, (int)(x - senders), (u32)size, false });
		} else if (!shape(x, (u32)size, now)) { /* TCP hears of it at once, and keeps the data (tcp_enter_cwr) */
			back_off(x, now - x->srtt);
			if (x->inflight < 1)
				push((struct event){ now + 200e6, now, GO, (int)(x - senders), 0, false });
			return;
		}
		x->inflight += floor(size);
		x->waiting += floor(size);
		x->left -= floor(size);
	}
}

static void ack(struct event e)
{
	struct sender *x = &senders[e.sender];
	bool limited = x->inflight + 2 * e.bytes >= 0.9 * x->cwnd;

	x->inflight -= e.bytes;
	x->srtt += (now - e.sent - x->srtt) / 8;
	if (e.marked)
		back_off(x, e.sent);
	else if (limited)
		grow(x, e.bytes);
	if (x->kind == WEB && x->left < 1 && x->inflight < 1) {
		x->left = 3000 + exponential(300e3);
		x->cwnd = INITIAL;
		x->ssthresh = 1e18;
		push((struct event){ now + exponential(30e6), now, GO, e.sender, 0, false });
		return;
	}
	send(x);
}

static void step(struct event e)
{
	struct sender *x = &senders[e.sender];

	switch (e.kind) {
	case ARRIVE:
		if (!shape(x, e.bytes, e.sent)) {
			x->waiting -= e.bytes;
			push((struct event){ now + x->path / 2, e.sent, LOST, e.sender, e.bytes, false });
		}
		break;
	case LEAVE:
		leave(e);
		break;
	case ACK:
		ack(e);
		break;
	case LOST:
		x->inflight -= e.bytes;
		x->left += e.bytes;
		back_off(x, e.sent);
		send(x);
		break;
	case GO:
		x->on = true;
		send(x);
		break;
	case STOP:
		x->on = false;
		break;
	case DATAGRAM:
		if (!x->on)
			break;
		shape(x, x->kind == PROBE ? 40 : MSS, now);
		push((struct event){ now + (x->kind == PROBE ? 4.5e6 + random_part() * 1e6 : MSS * 1e9 / (x->left * rate)), now, DATAGRAM, e.sender, 0, false });
		break;
	}
}

static int add_sender(int kind, int client, double begin, double end, double left)
{
	struct sender *x = &senders[sender_count];
	bool datagrams = kind >= FLOOD;

	if (sender_count == MAX_FLOWS)
		exit(2);
	*x = (struct sender){ .kind = kind, .client = client, .cwnd = INITIAL, .ssthresh = 1e18, .path = (5 + 35 * random_part()) * 1e6, .left = left,
		.cut = -1e18, .on = datagrams };
	x->srtt = x->path;
	push((struct event){ begin + random_part() * 0.2e9, 0, datagrams ? DATAGRAM : GO, sender_count, 0, false });
	if (end > 0)
		push((struct event){ end, 0, STOP, sender_count, 0, false });
	return sender_count++;
}

static void add_group(const char *text)
{
	static const char *const kinds[] = { "local", "ecn", "routed", "routedecn", "web", "flood", "ectflood" };
	char word[16];
	int count, connections, weight = 1, kind = 0;
	double cap = 0, begin = 0, end = 0;

	if (sscanf(text, "%15[a-z]:%d:%d:%d:%lf:%lf:%lf", word, &count, &connections, &weight, &cap, &begin, &end) < 3)
		exit(2);
	while (kind < PROBE && strcmp(kinds[kind], word))
		kind++;
	if (kind == PROBE || client_count + count >= MAX_CLIENTS || (!count && !client_count))
		exit(2);
	for (int i = 0; i < (count ? count : 1); i++) {
		if (count)
			clients[client_count++] = (struct client){ .word = new_word((u64)now), .weight = (u32)weight,
				.cap = cap > 0 ? (u64)(1e9 * (1 << NS_SHIFT) / cap) : 0 };
		for (int j = 0; j < (kind >= FLOOD ? 1 : connections); j++)
			add_sender(kind, client_count - 1, now + begin * 1e9, end > 0 ? now + end * 1e9 : 0,
				kind == WEB ? 3000 + exponential(300e3) : kind >= FLOOD ? connections : 1e18);
	}
}

static int in_order(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return x < y ? -1 : x > y;
}

static void print_samples(const char *name, struct samples *s)
{
	qsort(s->of, (size_t)s->count, sizeof *s->of, in_order);
	printf("\"%s\":[", name);
	if (s->count)
		printf("%.4f,%.4f,%.4f", s->of[s->count / 2], s->of[s->count * 99LL / 100], s->of[s->count - 1]);
	printf("],");
}

int main(int argc, char **argv)
{
	unsigned long long numbers[6];
	unsigned int shift;

	if (argc < 6 || sscanf(argv[4], "%llu,%llu,%llu,%llu,%llu,%llu,%u", &numbers[0], &numbers[1], &numbers[2], &numbers[3], &numbers[4], &numbers[5],
		&shift) != 7)
		return 2;
	dice = strtoull(argv[1], NULL, 0);
	rate = atof(argv[2]);
	params = (struct params){ numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], shift };
	shaper.ns_per_byte = params.ns_per_byte;
	biggest = (u32)(rate / 4000 < 2 * MSS ? 2 * MSS : rate / 4000 > 44 * MSS ? 44 * MSS : rate / 4000);
	now = 1e12;
	from = now + 1e9;
	until = from + atof(argv[3]) * 1e9;
	for (int i = 5; i < argc; i++)
		add_group(argv[i]);
	measured = client_count;
	clients[client_count] = (struct client){ .word = new_word((u64)now), .weight = 1 };
	add_sender(PROBE, client_count++, now, 0, 0);
	add_sender(PROBE, measured - 1, now, 0, 0);
	while (event_count && events[0].at <= until) {
		struct event e = pop();

		now = e.at;
		step(e);
	}
	printf("{\"util\":%.5f,", on_wire * 1e9 / (rate * (until - from)));
	print_samples("other", &other);
	print_samples("same", &same);
	print_samples("provider", &provider);
	printf("\"marks\":%llu,\"drops\":%llu,\"probe_drops\":%llu,\"flows\":[[", (unsigned long long)marks, (unsigned long long)drops,
		(unsigned long long)probe_drops);
	for (int i = 0; i < sender_count; i++)
		if (senders[i].kind != PROBE)
			printf("%s%.0f", !i ? "" : senders[i].client == senders[i - 1].client ? "," : "],[", senders[i].delivered);
	printf("]]}\n");
	return 0;
}
