// What is counted of servers and locations.
import { useState } from "preact/hooks";
import { bytes, count, ms, perSecond } from "./format";
import { entries, sub, type Group, type Live } from "./live";
import { Table, type Column } from "./table";

export interface ServerRow {
  name: string;
  requests: number;
  total: number;
  processing: number;
  answered: number;
  c2: number;
  c3: number;
  c4: number;
  c5: number;
  received: number;
  sent: number;
  p50: number;
  p99: number;
}

function row(live: Live, name: string, zone: Group): ServerRow {
  const answers = sub(zone, "responses");
  const of = (kind: string) => live.rate(answers, kind);
  const times = live.times(zone, "latency");
  return {
    name,
    requests: live.rate(zone, "requests"),
    total: live.num(zone, "requests"),
    processing: live.num(zone, "processing"),
    answered: of("total"),
    c2: of("1xx") + of("2xx"),
    c3: of("3xx"),
    c4: of("4xx"),
    c5: of("5xx"),
    received: live.rate(zone, "received"),
    sent: live.rate(zone, "sent"),
    p50: times?.p50 ?? 0,
    p99: times?.p99 ?? 0,
  };
}

export function serverRows(live: Live, kind = "server_zones"): ServerRow[] {
  return entries(live.group("http", kind)).map(([name, zone]) => row(live, name, zone));
}

/** Shares of the classes of answers, by their colours. */
export function Shares(p: { of: number[] }) {
  const all = p.of.reduce((a, b) => a + b, 0);
  if (all === 0) return <span class="bar" aria-label="none" />;
  const words = p.of.map((n, i) => `${i + 2}xx ${Math.round((100 * n) / all)} %`).join(", ");
  return (
    <span class="bar" role="img" aria-label={words} title={words}>
      {p.of.map((n, i) => n > 0 && <i key={i} class={`c${i + 2}`} style={{ width: `${(100 * n) / all}%` }} />)}
    </span>
  );
}

const COLUMNS: Column<ServerRow>[] = [
  { name: "Name", by: (r) => r.name, left: true, show: (r) => <span title={r.name}>{r.name}</span> },
  { name: "Requests/s", by: (r) => r.requests, show: (r) => perSecond(r.requests) },
  { name: "Now", by: (r) => r.processing, show: (r) => count(r.processing), title: "Being answered" },
  { name: "Answers", by: (r) => (r.answered ? (r.c4 + r.c5) / r.answered : 0), show: (r) => <Shares of={[r.c2, r.c3, r.c4, r.c5]} />, title: "Shares of 2xx, 3xx, 4xx, 5xx" },
  { name: "5xx/s", by: (r) => r.c5, show: (r) => <span class={r.c5 > 0 ? "bad" : ""}>{perSecond(r.c5)}</span> },
  { name: "Median", by: (r) => r.p50, show: (r) => ms(r.p50) },
  { name: "p99", by: (r) => r.p99, show: (r) => ms(r.p99), title: "99 of 100 took no longer" },
  { name: "Sent/s", by: (r) => r.sent, show: (r) => bytes(r.sent) },
  { name: "Received/s", by: (r) => r.received, show: (r) => bytes(r.received) },
  { name: "Requests", by: (r) => r.total, show: (r) => count(r.total), title: "Since the start" },
];

export function ServerTable(p: { live: Live; rows: ServerRow[]; few?: number; label: string }) {
  return <Table label={p.label} columns={COLUMNS} rows={p.rows} id={(r) => r.name} sort={1} few={p.few} plain />;
}

export function Servers(p: { live: Live }) {
  const [search, setSearch] = useState("");
  const words = search.toLowerCase();
  const found = (rows: ServerRow[]) => (words ? rows.filter((r) => r.name.toLowerCase().includes(words)) : rows);
  const [servers, locations] = [serverRows(p.live), serverRows(p.live, "location_zones")];
  return (
    <>
      <section aria-labelledby="servers-head">
        <div class="head">
          <h2 id="servers-head">Servers <small>{count(servers.length)}</small></h2>
          <input type="search" id="search" placeholder="Search (/)" aria-label="Search by name" value={search} onInput={(e) => setSearch(e.currentTarget.value)} />
        </div>
        <ServerTable live={p.live} rows={found(servers)} label="Servers" />
      </section>
      <section aria-labelledby="locations-head">
        <h2 id="locations-head">Locations <small>{count(locations.length)}</small></h2>
        {locations.length > 0 ? (
          <ServerTable live={p.live} rows={found(locations)} label="Locations" />
        ) : (
          <p class="none">A location is counted by itself where it has <code>status_zone NAME;</code></p>
        )}
      </section>
    </>
  );
}
