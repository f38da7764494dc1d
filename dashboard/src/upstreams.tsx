// Servers that are asked, and whether they are well.
import { useState } from "preact/hooks";
import { bytes, count, ms, perSecond } from "./format";
import { entries, type Group, type Live } from "./live";
import { Shares } from "./servers";
import { Table, type Column } from "./table";

export interface PeerRow {
  upstream: string;
  server: string;
  backup: boolean;
  state: string;
  weight: number;
  active: number;
  requests: number;
  total: number;
  answers: number[];
  sent: number;
  received: number;
  fails: number;
  header: number;
  p99: number;
}

const STATES = ["down", "unavail", "unhealthy", "checking", "draining", "up"];

function peer(live: Live, upstream: string, g: Group, asked: string): PeerRow {
  const answers = g["responses"] as Group | undefined;
  const latency = g["latency"] as Group | undefined;
  const times = live.times(latency, "header") ?? live.times(latency, "first_byte");
  return {
    upstream,
    server: live.text(g, "server"),
    backup: live.leaf(g, "backup") === true,
    state: live.text(g, "state") || "up",
    weight: live.num(g, "weight"),
    active: live.num(g, "active"),
    requests: live.rate(g, asked),
    total: live.num(g, asked),
    answers: ["2xx", "3xx", "4xx", "5xx"].map((kind) => live.rate(answers, kind)),
    sent: live.rate(g, "sent"),
    received: live.rate(g, "received"),
    fails: live.num(g, "fails") + live.num(g, "unavail"),
    header: times?.p50 ?? 0,
    p99: times?.p99 ?? 0,
  };
}

export function peerRows(live: Live, block = "http"): PeerRow[] {
  const asked = block === "http" ? "requests" : "connections";
  return entries(live.group(block, "upstreams")).flatMap(([name, upstream]) => {
    const peers = upstream["peers"];
    return Array.isArray(peers) ? peers.map((p) => peer(live, name, p as Group, asked)) : [];
  });
}

const COLUMNS: Column<PeerRow>[] = [
  { name: "Upstream", by: (r) => r.upstream, left: true },
  { name: "Server", by: (r) => r.server, left: true, show: (r) => (r.backup ? `${r.server} (backup)` : r.server) },
  { name: "State", by: (r) => STATES.indexOf(r.state), left: true, show: (r) => <span class={`mark ${r.state}`}>{r.state}</span> },
  { name: "Requests/s", by: (r) => r.requests, show: (r) => perSecond(r.requests) },
  { name: "Now", by: (r) => r.active, show: (r) => count(r.active) },
  { name: "Answers", by: (r) => r.answers[3] ?? 0, show: (r) => <Shares of={r.answers} /> },
  { name: "Median", by: (r) => r.header, show: (r) => ms(r.header) },
  { name: "p99", by: (r) => r.p99, show: (r) => ms(r.p99) },
  { name: "Failures", by: (r) => r.fails, show: (r) => <span class={r.fails > 0 ? "bad" : ""}>{count(r.fails)}</span> },
  { name: "Received/s", by: (r) => r.received, show: (r) => bytes(r.received) },
  { name: "Weight", by: (r) => r.weight },
];

export function Upstreams(p: { live: Live; block: string; title: string }) {
  const [search, setSearch] = useState("");
  const [wrong, setWrong] = useState(false);
  const rows = peerRows(p.live, p.block);
  const words = search.toLowerCase();
  const found = rows.filter((r) => (!wrong || r.state !== "up") && `${r.upstream} ${r.server}`.toLowerCase().includes(words));
  if (rows.length === 0) {
    return <p class="none">No <code>upstream</code> block is configured in <code>{p.block}</code>.</p>;
  }
  return (
    <section aria-labelledby={`upstreams-${p.block}`}>
      <h2 id={`upstreams-${p.block}`}>
        {p.title} <small>{rows.filter((r) => r.state === "up").length} of {rows.length} servers up</small>
        <label><input type="checkbox" style={{ width: "auto" }} checked={wrong} onChange={(e) => setWrong(e.currentTarget.checked)} /> only those that are not</label>
        <input type="search" id="search" placeholder="Search (/)" aria-label="Search by upstream or server" value={search} onInput={(e) => setSearch(e.currentTarget.value)} />
      </h2>
      <Table label={p.title} columns={COLUMNS} rows={found} id={(r) => `${r.upstream} ${r.server}`} />
    </section>
  );
}
