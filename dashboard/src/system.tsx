// The process: its workers side by side, TLS and versions of HTTP, limits of the system, the configuration.
import { useEffect } from "preact/hooks";
import { ago, clock, count, ms, percent, perSecond } from "./format";
import { entries, sub, type Group, type Limit, type Live, type Node } from "./live";
import { Fill, Plain } from "./rest";
import { Table, type Column } from "./table";

interface WorkerRow {
  id: string;
  connections: number;
  requests: number;
  total: number;
  /** In its current turn. */
  busyMs: number;
  /** Of the time since the last look it computed, and waited for a processor. */
  busy: number;
  waits: number;
  hint: string;
}

/** With less than this a second nothing can be said of how work is shared. */
const LITTLE = 50;
const STUCK_MS = 1000;
/** Of its time; then what comes waits. */
const SATURATED = 0.9;

function workerRows(live: Live): WorkerRow[] {
  const workers: Node | undefined = live.names["workers"];
  const groups = Array.isArray(workers) ? (workers as Group[]).map((g, n) => [String(n), g] as const) : entries(workers as Group | undefined);
  const rows = groups.map(([name, g]) => {
    const requests = sub(sub(g, "http"), "requests");
    const connections = sub(g, "connections");
    return {
      id: live.text(g, "id") || name,
      connections: live.num(connections, "active") + live.num(connections, "idle"),
      requests: live.rate(requests, "total"),
      total: live.num(requests, "total"),
      busyMs: live.num(g, "busy_ms"),
      busy: Math.min(1, live.rate(g, "busy_time") / 1000),
      waits: Math.min(1, live.rate(g, "queued_time") / 1000),
      hint: "",
    };
  });
  const most = Math.max(...rows.map((r) => r.requests), 0);
  const all = rows.reduce((sum, r) => sum + r.requests, 0);
  for (const row of rows) {
    if (row.busyMs >= STUCK_MS && row.requests === 0) row.hint = `stuck for ${ms(row.busyMs)}`;
    else if (row.busy + row.waits >= SATURATED) row.hint = "saturated";
    else if (rows.length > 1 && all > LITTLE && row.requests < most / 4) row.hint = "does little";
  }
  return rows;
}

/** What is to be said of all of them. */
function verdict(rows: WorkerRow[]): { text: string; bad: boolean } {
  const stuck = rows.filter((r) => r.hint.startsWith("stuck"));
  if (stuck.length > 0) return { text: `Worker ${stuck.map((r) => r.id).join(", ")} does not come back: something in it blocks, a file on a slow disk or a script that computes.`, bad: true };
  const full = rows.filter((r) => r.hint === "saturated");
  if (full.length > 0) return { text: `Worker ${full.map((r) => r.id).join(", ")} has no time left: what comes waits for it. ${full.some((r) => r.waits > r.busy / 2) ? "It waits for a processor itself: others take them. " : ""}"weir profile" says with what; a lower gzip_comp_level, or more workers where processors are idle, is what helps mostly.`, bad: true };
  if (rows.some((r) => r.hint)) return { text: "Work is shared out unevenly: a few connections carry most of it, and each stays where it was accepted. More connections, reuseport, or fewer keepalive_requests even it out.", bad: true };
  return { text: rows.length > 1 ? "All workers come back, and none is left out." : "One worker serves.", bad: false };
}

function Workers(p: { live: Live }) {
  const rows = workerRows(p.live);
  const most = Math.max(1, ...rows.map((w) => w.requests));
  const columns: Column<WorkerRow>[] = [
    { name: "Worker", by: (r) => Number(r.id), show: (r) => r.id, left: true },
    { name: "Beside the busiest", by: (r) => r.requests, left: true, show: (r) => <span class="bar wide"><i class="c3" style={{ width: `${(100 * r.requests) / most}%` }} /></span> },
    { name: "Busy", by: (r) => r.busy, show: (r) => <span class={r.busy + r.waits >= SATURATED ? "bad" : ""}>{percent(r.busy)}</span>, title: "Of the time since the last look" },
    { name: "Waits", by: (r) => r.waits, show: (r) => percent(r.waits), title: "For a processor, of the time since the last look" },
    { name: "Requests/s", by: (r) => r.requests, show: (r) => perSecond(r.requests) },
    { name: "Connections", by: (r) => r.connections, show: (r) => count(r.connections) },
    { name: "Requests", by: (r) => r.total, show: (r) => count(r.total) },
    { name: "Hint", by: (r) => r.hint, show: (r) => <span class="warn">{r.hint}</span> },
  ];
  if (rows.length === 0) return <p class="none">No figures yet.</p>;
  const said = verdict(rows);
  return (
    <>
      <Table label="Workers" columns={columns} rows={rows} id={(r) => r.id} />
      <p class={said.bad ? "foot warn" : "foot"}>{said.text}</p>
    </>
  );
}

type Part = { name: string; n: number };

/** The numbers of groups by their names, added up; the largest first. */
function added(live: Live, groups: (Group | undefined)[]): Part[] {
  const all = new Map<string, number>();
  for (const group of groups) {
    for (const name of Object.keys(group ?? {})) {
      if (typeof live.leaf(group, name) === "number") all.set(name, (all.get(name) ?? 0) + live.num(group, name));
    }
  }
  return [...all].map(([name, n]) => ({ name, n })).sort((x, y) => y.n - x.n);
}

function Parts(p: { title: string; parts: Part[] }) {
  const all = p.parts.reduce((sum, x) => sum + x.n, 0);
  return (
    <div class="card">
      <h3>{p.title}</h3>
      {all === 0 ? <p class="dim">None yet.</p> : (
        <ul class="parts">
          {p.parts.filter((x) => x.n > 0).map((x) => (
            <li key={x.name}>
              <span>{x.name}</span>
              <span class="bar"><i class="c3" style={{ width: `${(100 * x.n) / all}%` }} /></span>
              <b>{percent(x.n / all)}</b> <small>{count(x.n)}</small>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function Tls(p: { live: Live }) {
  const { live } = p;
  const ssl = live.group("ssl");
  const names = Object.keys(ssl ?? {}).filter((k) => typeof live.leaf(ssl, k) === "number");
  const some = names.some((k) => live.num(ssl, k) > 0);
  return (
    <div class="cards">
      <div class="card">
        <h3>TLS handshakes</h3>
        {!some ? <p class="dim">None yet.</p> : (
          <dl class="pairs">
            {names.map((k) => <div key={k}><dt>{k.replaceAll("_", " ")}</dt><dd>{count(live.num(ssl, k))}</dd></div>)}
          </dl>
        )}
      </div>
      <Parts title="TLS versions" parts={added(live, [live.group("ssl", "protocols")])} />
      <Parts title="TLS ciphers" parts={added(live, [live.group("ssl", "ciphers")])} />
      <Parts title="HTTP versions" parts={added(live, entries(live.group("http", "server_zones")).map(([, zone]) => sub(zone, "protocols")))} />
    </div>
  );
}

const LIMITS: Column<Limit>[] = [
  { name: "Limit", by: (r) => r.name, left: true },
  { name: "In use", by: (r) => (r.max ? (r.used ?? 0) / r.max : (r.used ?? 0)), show: (r) => (r.used === undefined ? "–" : r.max ? <Fill of={r.used} max={r.max} words={count(r.used)} /> : count(r.used)) },
  { name: "Of", by: (r) => r.max ?? 0, show: (r) => (r.max === undefined ? "–" : count(r.max)) },
];

export function System(p: { live: Live }) {
  const { live } = p;
  useEffect(() => {
    void live.fetchAbout();
    const timer = setInterval(() => void live.fetchAbout(), 10_000);
    return () => clearInterval(timer);
  }, []);
  const about = live.group("nginx");
  const load = Date.parse(live.text(about, "load_timestamp"));
  const limits = live.about.limits ?? [];
  return (
    <>
      <section aria-labelledby="workers-head">
        <h2 id="workers-head">Workers</h2>
        <Workers live={live} />
      </section>
      <section aria-labelledby="tls-head">
        <h2 id="tls-head">TLS and HTTP</h2>
        <Tls live={live} />
      </section>
      <section aria-labelledby="limits-head">
        <h2 id="limits-head">Limits of the system</h2>
        {limits.length > 0 ? <Table label="Limits of the system" columns={LIMITS} rows={limits} id={(r) => r.name} sort={-1} /> : <p class="none">This system does not tell.</p>}
        <p class="foot"><code>weir doctor</code> says which of them are too low for this configuration, and what mends it.</p>
      </section>
      <section aria-labelledby="conf-head">
        <h2 id="conf-head">Configuration</h2>
        <div class="card">
          <dl class="pairs">
            <div><dt>version of Weir</dt><dd>{live.text(about, "version")}</dd></div>
            <div><dt>configuration</dt><dd>{live.text(about, "generation")}</dd></div>
            <div><dt>last loaded</dt><dd>{Number.isFinite(load) ? `${clock(load)}, ${ago(live.now - load)}` : "–"}</dd></div>
            <div><dt>process</dt><dd>{live.text(about, "pid")}</dd></div>
            <div><dt>started anew by the master</dt><dd>{count(live.num(live.group("processes"), "respawned"))}</dd></div>
          </dl>
        </div>
      </section>
      <section aria-labelledby="resolvers-head">
        <h2 id="resolvers-head">Resolvers</h2>
        <Plain live={live} title="Resolvers" group={live.group("resolvers")} none="No resolver has a status_zone." />
      </section>
    </>
  );
}
