// SPDX-License-Identifier: Apache-2.0

// Measures the way between this browser and the server that sent this page: small requests all the time, and bulk data
// over WebSockets (ndt7), first towards the browser, then from it. The figures come of the server, which sums up what
// was recorded here as it does for weir measure. Nothing is asked of anybody else.

const base = location.pathname.replace(/[^/]*$/, "");
const idleTime = 4, loadTime = 8, rest = 1, ramp = 2; // seconds, as weir measure has them
const every = 50; // ms between two probes
const patience = 5000; // ms that a probe may take
const flows = 4; // at once
const most = 24; // probes under way; the server allows 32 requests at once
const all = idleTime + 2 * (loadTime + rest);

const $ = (id) => document.getElementById(id);
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

// Recorder is what a test has seen so far: times in seconds since it began.
class Recorder {
	constructor(hello) {
		this.began = performance.now();
		this.kernel = []; // {at, rtt}: the server's kernel, in ms
		this.bytes = [];  // {at, n}: of the phase that is on
		this.moved = 0;   // bytes, of all phases
		this.out = 0;
		this.rec = { target: location.host, time: new Date().toISOString().slice(0, 19) + "Z", local: "a browser",
			remote: hello, probe: "https", interval: every, samples: [], spans: [] };
	}
	now() { return (performance.now() - this.began) / 1000; }

	// probe asks for one byte, and books how long that took: from the browser's own stopwatch of the network, not of
	// this script, which may be busy.
	async probe(n) {
		const at = this.now(), url = new URL(base + "small?n=" + n, location.href).href;
		let rtt = -1;
		this.out++;
		try {
			const answer = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(patience) });
			await answer.arrayBuffer();
			const [entry] = performance.getEntriesByName(url);
			if (answer.ok) rtt = entry && entry.requestStart > 0 && entry.responseStart > entry.requestStart ?
				entry.responseStart - entry.requestStart : (this.now() - at) * 1000;
		} catch { /* no answer: it is lost */ }
		this.out--;
		performance.clearResourceTimings();
		this.rec.samples.push({ at, rtt });
	}
	async probes(running) {
		for (let n = 0, next = performance.now(); running(); n++) {
			if (this.out < most) this.probe(n);
			next = Math.max(next + every * (0.75 + Math.random() / 2), performance.now()); // none beats with the traffic
			await wait(next - performance.now());
		}
	}
}

// Load is a WebSocket that carries bulk data in one direction, until it is stopped.
class Load {
	constructor(recorder, direction) {
		this.recorder = recorder;
		this.flow = { direction, kernel: false, bins: [], rtt: [], min_rtt: 0, rttvar: 0 };
		this.far = { direction, kernel: false, bins: [], rtt: [], min_rtt: 0, rttvar: 0 };
		this.marks = [{ at: 0, n: 0 }]; // what the server has received
		this.socket = new WebSocket(`wss://${location.host}${base}ndt/v7/${direction}`, "net.measurementlab.ndt.v7");
		this.socket.binaryType = "arraybuffer";
		this.began = recorder.now();
		this.opened = new Promise((yes, no) => {
			this.socket.onopen = yes;
			this.socket.onerror = () => no(new Error("the server does not take the WebSocket"));
		});
		this.closed = new Promise((done) => { this.socket.onclose = done; });
		this.socket.onmessage = (m) => this.take(m.data);
	}
	count(n) {
		const bin = Math.floor((this.recorder.now() - this.began) * 10);
		while (this.flow.bins.length <= bin) this.flow.bins.push(0);
		this.flow.bins[bin] += n;
		this.recorder.moved += n;
		this.recorder.bytes.push({ at: this.recorder.now(), n });
	}
	take(data) {
		if (typeof data !== "string") {
			this.count(data.byteLength);
			return;
		}
		const said = JSON.parse(data), info = said.TCPInfo, up = this.flow.direction === "upload";
		const at = this.recorder.now() - this.began;
		if (up) this.marks.push({ at, n: said.AppInfo.NumBytes });
		if (!info) return;
		this.recorder.kernel.push({ at: this.recorder.now(), rtt: info.RTT / 1000, least: info.MinRTT / 1000 });
		if (!up) Object.assign(this.far, { kernel: true, cc: info.CC, ecn: info.ECN, rtt: [...this.far.rtt, info.RTT],
			min_rtt: info.MinRTT, rttvar: info.RTTVar, sent: info.BytesSent, again: info.BytesRetrans,
			delivered: info.Delivered, ce: info.DeliveredCE, elapsed: info.ElapsedTime, busy: info.BusyTime,
			receiver: info.RWndLimited, buffer: info.SndBufLimited });
	}

	// feed keeps a tenth of a second of data waiting in the browser: enough to fill the link, and soon gone.
	async feed(running) {
		const block = crypto.getRandomValues(new Uint8Array(1 << 16)), least = 1 << 14;
		let sent = 0;
		while (running() && this.socket.readyState === WebSocket.OPEN) {
			const gone = sent - this.socket.bufferedAmount, time = Math.max(this.recorder.now() - this.began, 0.05);
			const want = Math.max(least, gone / time * 0.1);
			for (let more = want - this.socket.bufferedAmount; more > 0; more -= block.length) {
				const n = Math.min(block.length, Math.max(Math.ceil(more), 1024));
				this.socket.send(block.subarray(0, n));
				sent += n;
				this.count(n);
			}
			await wait(10);
		}
	}

	// arrived spreads what the server has counted over tenths of a second.
	arrived() {
		const last = this.marks.at(-1), count = (t) => {
			const i = this.marks.findIndex((m) => m.at >= t);
			if (i <= 0) return i < 0 ? last.n : 0;
			const a = this.marks[i - 1], b = this.marks[i];
			return a.n + (b.n - a.n) * (t - a.at) / Math.max(b.at - a.at, 1e-9);
		};
		const bins = [];
		for (let i = 0; (i + 1) / 10 <= last.at; i++) bins.push(Math.round(count((i + 1) / 10) - count(i / 10)));
		return bins;
	}
}

// phase loads a direction, or none, and tells what it saw.
async function phase(recorder, name, seconds) {
	const from = recorder.now(), span = { name, from, to: from };
	recorder.bytes = [];
	recorder.phase = span;
	recorder.rec.spans.push(span);
	if (name === "idle") {
		await wait(seconds * 1000);
		span.to = recorder.now();
		return;
	}
	const loads = Array.from({ length: flows }, () => new Load(recorder, name));
	await Promise.all(loads.map((l) => l.opened));
	span.from = recorder.now();
	for (const l of loads) l.began = span.from;
	let running = true;
	if (name === "upload") for (const l of loads) l.feed(() => running);
	await Promise.race([wait(seconds * 1000), Promise.all(loads.map((l) => l.closed))]);
	running = false;
	span.to = recorder.now();
	for (const l of loads) {
		if (l.socket.readyState === WebSocket.CLOSED) l.far.error = "the server closed it";
		if (name === "upload") {
			l.far.bins = l.arrived();
			l.flow.bins = []; // what was sent is no news, once it is known what arrived
		}
		l.socket.close();
	}
	span.local = loads.map((l) => l.flow);
	span.far = loads.map((l) => l.far);
	recorder.phase = null;
	await Promise.race([wait(3000), Promise.all(loads.map((l) => l.closed))]);
	await wait(rest * 1000);
}

// Problem is something that the person in front of the page can do something about.
class Problem extends Error {}

async function ask(path, options, again = 0) {
	const answer = await fetch(base + path, { method: "POST", cache: "no-store", ...options }).catch(() => {
		throw new Problem("The server does not answer. Is weir serve still running?");
	});
	if (answer.status === 403) {
		$("ask").hidden = false;
		throw new Problem("This server wants a token.");
	}
	if (answer.status === 429) {
		const seconds = Number(answer.headers.get("Retry-After")) || 10;
		if (again > 0) {
			await wait(seconds * 1000);
			return ask(path, options, again - 1);
		}
		throw new Problem(`The server is busy. Try again in ${seconds} seconds.`);
	}
	if (!answer.ok) throw new Problem("The server says: " + (await answer.text()).slice(0, 200));
	return answer.json();
}

async function measure() {
	const hello = await ask("weir/1/session");
	$("host").textContent = hello.name;
	const recorder = new Recorder(hello);
	let running = true;
	const show = setInterval(() => { live(recorder); draw(recorder); }, 200);
	const probes = recorder.probes(() => running);
	try {
		await phase(recorder, "idle", idleTime);
		await phase(recorder, "download", loadTime);
		await phase(recorder, "upload", loadTime);
	} finally {
		running = false;
		clearInterval(show);
		await probes;
	}
	for (let i = 0; recorder.out > 0 && i < patience / 100; i++) await wait(100);
	recorder.rec.samples.sort((a, b) => a.at - b.at);
	draw(recorder);
	const result = await ask("weir/1/summary?session=" + hello.session, { body: JSON.stringify(recorder.rec) }, 70);
	return { result, shown: brief(result, recorder) };
}

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];

// live says how it goes.
function live(recorder) {
	const now = recorder.now(), since = now - 1, last = recorder.rec.samples.slice(-10).filter((s) => s.rtt >= 0);
	let text = `${Math.min(Math.round(now), all)} of ${all} s`;
	if (recorder.phase) {
		text = recorder.phase.name + " · " + text;
		const bits = 8 * recorder.bytes.filter((b) => b.at > since).reduce((sum, b) => sum + b.n, 0);
		if (bits > 0) text += ` · ${figure(bits / 1e6)} Mbit/s`;
	}
	if (recorder.moved > 0) text += ` · ${Math.ceil(recorder.moved / 1e6)} MB so far`;
	if (last.length) text += ` · round trip ${figure(median(last.map((s) => s.rtt)))} ms`;
	$("state").textContent = text;
}

// figure writes a number with three digits.
const figure = (v) => v.toFixed(Math.abs(v) >= 100 ? 0 : Math.abs(v) >= 10 ? 1 : 2);

// draw shows the round trips so far. A few that took far longer than the others stand at the upper edge, so that the
// others can be seen.
function draw(recorder) {
	drawn = recorder;
	$("figure").hidden = false;
	const width = Math.max($("figure").clientWidth, 300), height = 280, left = 44, bottom = 26, top = 22;
	const end = Math.max(all + 1, recorder.now()), inner = height - bottom - top;
	const samples = recorder.rec.samples.filter((s) => s.rtt >= 0);
	const waits = [...samples, ...recorder.kernel].map((s) => s.rtt).sort((a, b) => a - b);
	const highest = Math.max(10, Math.min(waits.at(-1) ?? 0, 1.5 * (waits[Math.floor(waits.length * 0.98)] ?? 0)));
	const step = [1, 10, 100, 1000].flatMap((m) => [m, 2 * m, 5 * m]).find((s) => highest / s <= 5) ?? 10000;
	const roof = Math.ceil(highest / step) * step;
	const x = (t) => left + t / end * (width - left), y = (ms) => top + (1 - Math.min(ms / roof, 1)) * inner;
	const parts = [];
	const add = (tag, attributes, text) => {
		const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
		for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
		if (text !== undefined) e.textContent = text;
		parts.push(e);
	};
	for (const s of recorder.rec.spans) {
		const to = s.to > s.from ? s.to : recorder.now();
		add("rect", { class: "phase " + s.name, x: x(s.from), y: top, width: x(to) - x(s.from), height: inner });
		add("text", { x: x(s.from) + 4, y: top - 6 }, s.name);
	}
	for (let ms = 0; ms <= roof; ms += step) {
		add("line", { class: "rule", x1: left, x2: width, y1: y(ms), y2: y(ms) });
		add("text", { x: left - 6, y: y(ms) + 4, "text-anchor": "end" }, ms);
	}
	add("text", { x: left - 6, y: top - 8, "text-anchor": "end" }, "ms");
	for (let t = 0; t < end; t += 5) add("text", { x: x(t), y: height - 8, "text-anchor": "middle" }, t + " s");
	for (const s of recorder.kernel) add("circle", { class: "kernel", cx: x(s.at), cy: y(s.rtt), r: 2.5 });
	for (const s of samples) add("circle", { class: "browser", cx: x(s.at), cy: y(s.rtt), r: 2 });
	$("plot").setAttribute("viewBox", `0 0 ${width} ${height}`);
	$("plot").replaceChildren(...parts);
}

// grades are what the command says of them, too.
const grades = { good: "That is good: a wait below 30 ms is hardly noticed.",
	fair: "That is fair: from 30 ms on, games and calls suffer.",
	bad: "That is bad: from 200 ms on, calls falter and typing lags." };

// brief is what is shown of a result, and what a link holds.
function brief(result, recorder) {
	const three = (e) => e && [e.value, e.low, e.high].map((v) => Number(v.toPrecision(6)));
	return { version: 1, target: result.target, name: result.remote, time: result.time, says: result.says, grade: grades[result.grade],
		notes: result.notes ?? [], phases: result.phases.map((p) => {
			const span = recorder.rec.spans.find((s) => s.name === p.name), counts = span.from + (p.name === "idle" ? 0 : ramp);
			const kernel = recorder.kernel.filter((k) => k.at >= counts && k.at < span.to);
			return { name: p.name, goodput: three(p.goodput?.[p.name]), p50: three(p.added?.p50), p99: three(p.added?.p99),
				rtt: Number(p.rtt.p50.toPrecision(6)), kernel: kernel.length ? [median(kernel.map((k) => k.rtt)),
					Math.min(...kernel.map((k) => k.least))].map((v) => Number(v.toPrecision(6))) : undefined };
		}) };
}

// render shows a brief. Nothing of it is taken for HTML, since a link can hold anything.
function render(shown, from) {
	const number = (v) => typeof v === "number" && Number.isFinite(v);
	const cell = (main, small) => { // a figure, and below it what else is to be known
		const td = Object.assign(document.createElement("td"), { textContent: main });
		if (small) td.append(document.createElement("br"),
			Object.assign(document.createElement("small"), { textContent: small }));
		return td;
	};
	const range = (e) => {
		if (!Array.isArray(e) || !e.every(number)) return cell("–");
		return cell(figure(e[0]), e[2] > 1e30 ? "" : `${figure(e[1])} to ${figure(e[2])}`);
	};
	const text = (s) => String(s ?? "").slice(0, 300);
	$("says").textContent = text(shown.says);
	$("grade").textContent = text(shown.grade);
	const time = new Date(shown.time);
	$("when").textContent = `${text(shown.name)} (${text(shown.target)}), ` +
		`${Number.isNaN(time.getTime()) ? "at an unknown time" : time.toLocaleString()}${from}`;
	$("rows").replaceChildren(...shown.phases.slice(0, 4).map((p) => {
		const row = document.createElement("tr"), head = document.createElement("th");
		head.scope = "row";
		head.textContent = text(p.name);
		const kernel = Array.isArray(p.kernel) && p.kernel.every(number) ?
			cell(figure(p.kernel[0]), "least " + figure(p.kernel[1])) : cell("–");
		row.append(head, range(p.goodput), range(p.p50), range(p.p99), cell(number(p.rtt) ? figure(p.rtt) : "–"), kernel);
		return row;
	}));
	$("notes").replaceChildren(...shown.notes.slice(0, 20).map((n) =>
		Object.assign(document.createElement("li"), { textContent: text(n) })));
	$("result").hidden = false;
}

// A link holds a brief as base64url after "#r=": a part of the address that no browser sends to a server.
function encode(shown) {
	const bytes = new TextEncoder().encode(JSON.stringify(shown));
	return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function decode(text) {
	const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
	const shown = JSON.parse(new TextDecoder().decode(bytes));
	if (shown.version !== 1 || !Array.isArray(shown.phases) || !Array.isArray(shown.notes)) throw new Error("no result");
	return shown;
}

let last, drawn;
// A phone that is turned, or a window that is made narrower, wants another picture.
new ResizeObserver(() => drawn && draw(drawn)).observe($("figure"));

async function run() {
	for (const id of ["problem", "result", "ask"]) $(id).hidden = true;
	$("start").disabled = true;
	$("kept").textContent = "";
	$("keep").hidden = false;
	try {
		last = await measure();
		render(last.shown, "");
		$("state").textContent = "done";
		$("says").focus();
		document.body.dataset.state = "done";
	} catch (e) {
		$("state").textContent = "";
		$("problem").textContent = e instanceof Problem ? e.message :
			`The test broke off: ${e.message}. Is weir serve still running?`;
		$("problem").hidden = false;
		document.body.dataset.state = "failed";
	}
	$("start").disabled = false;
	$("start").textContent = "Again";
}

$("start").addEventListener("click", run);

$("ask").addEventListener("submit", (e) => {
	e.preventDefault();
	location.assign("/t/" + encodeURIComponent($("token").value.trim()) + "/");
});

$("link").addEventListener("click", async () => {
	const link = location.origin + "/#r=" + encode(last.shown);
	history.replaceState(null, "", "#r=" + encode(last.shown));
	try {
		await navigator.clipboard.writeText(link);
		$("kept").textContent = "copied";
	} catch {
		$("kept").textContent = "It is in the address bar. Leave out /t/ and the token when you hand it on.";
	}
});

$("save").addEventListener("click", () => {
	const file = new Blob([JSON.stringify(last.result, null, "  ") + "\n"], { type: "application/json" });
	const a = Object.assign(document.createElement("a"), { href: URL.createObjectURL(file),
		download: `weir-${location.hostname}-${last.result.time.replaceAll(":", "")}.json` });
	a.click();
	setTimeout(() => URL.revokeObjectURL(a.href), 1000);
	$("kept").textContent = "saved";
});

if (location.hash.startsWith("#r=")) {
	try {
		render(decode(location.hash.slice(3)), ". From a link: who made it may have written anything.");
		$("keep").hidden = true;
	} catch {
		$("problem").textContent = "This link holds no result. Was it copied whole?";
		$("problem").hidden = false;
	}
} else if (location.hash === "#start") {
	run();
}
