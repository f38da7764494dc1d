// Caches, limits, workers, stream, and what else is reported.
import { bytes, count, percent, perSecond } from "./format";
import { entries, type Group, type Live, type Node } from "./live";
import { Table, type Column } from "./table";
import { Upstreams } from "./upstreams";

interface CacheRow {
  name: string;
  hit: number;
  asked: number;
  size: number;
  max: number;
  cold: boolean;
  served: number;
}

const HITS = ["hit", "stale", "updating", "revalidated"];
const ALL = [...HITS, "miss", "expired", "bypass"];

function cacheRows(live: Live): CacheRow[] {
  return entries(live.group("http", "caches")).map(([name, g]) => {
    const of = (kinds: string[], what: string) => kinds.reduce((all, kind) => all + live.num(g[kind] as Group | undefined, what), 0);
    return {
      name,
      hit: of(HITS, "responses"),
      asked: of(ALL, "responses"),
      served: of(HITS, "bytes"),
      size: live.num(g, "size"),
      max: live.num(g, "max_size"),
      cold: live.leaf(g, "cold") === true,
    };
  });
}

const CACHE: Column<CacheRow>[] = [
  { name: "Cache", by: (r) => r.name, left: true },
  { name: "Hits", by: (r) => (r.asked ? r.hit / r.asked : 0), show: (r) => percent(r.asked ? r.hit / r.asked : 0) },
  { name: "Asked", by: (r) => r.asked, show: (r) => count(r.asked) },
  { name: "From the cache", by: (r) => r.served, show: (r) => bytes(r.served) },
  { name: "Size", by: (r) => r.size, show: (r) => bytes(r.size) },
  { name: "Of", by: (r) => r.max, show: (r) => (r.max ? bytes(r.max) : "–") },
  { name: "State", by: (r) => Number(r.cold), show: (r) => (r.cold ? "loading" : "warm") },
];

/** Numbers of things that have few of them, as a table whose head is their names. */
function Plain(p: { live: Live; title: string; group: Group | undefined; none: string }) {
  const rows = entries(p.group).map(([name, g]) => ({ name, g }));
  const names = [...new Set(rows.flatMap((r) => Object.keys(r.g).filter((k) => typeof r.g[k] === "number")))];
  if (rows.length === 0) return <p class="none">{p.none}</p>;
  const columns: Column<(typeof rows)[number]>[] = [
    { name: "Name", by: (r) => r.name, left: true },
    ...names.map((k) => ({
      name: k.replaceAll("_", " "),
      by: (r: (typeof rows)[number]) => p.live.num(r.g, k),
      show: (r: (typeof rows)[number]) => (k.endsWith("bytes") || k === "sent" || k === "received" ? bytes(p.live.num(r.g, k)) : count(p.live.num(r.g, k))),
    })),
  ];
  return <Table label={p.title} columns={columns} rows={rows} id={(r) => r.name} />;
}

export function CachesAndLimits(p: { live: Live }) {
  const caches = cacheRows(p.live);
  const limits = ["limit_reqs", "limit_conns"] as const;
  return (
    <>
      <section aria-labelledby="caches">
        <h2 id="caches">Caches</h2>
        {caches.length > 0 ? (
          <Table label="Caches" columns={CACHE} rows={caches} id={(r) => r.name} />
        ) : (
          <p class="none">No <code>proxy_cache_path</code> is configured.</p>
        )}
      </section>
      {limits.map((kind) => (
        <section key={kind} aria-labelledby={kind}>
          <h2 id={kind}>{kind === "limit_reqs" ? "Limits of requests" : "Limits of connections"}</h2>
          <Plain live={p.live} title={kind} group={p.live.group("http", kind)} none={`No ${kind.slice(0, -1)}_zone is configured.`} />
        </section>
      ))}
    </>
  );
}

interface WorkerRow {
  id: string;
  connections: number;
  requests: number;
}

function workerRows(live: Live): WorkerRow[] {
  const workers: Node | undefined = live.names["workers"];
  const groups = Array.isArray(workers) ? (workers as Group[]).map((g, n) => [String(n), g] as const) : entries(workers as Group | undefined);
  return groups.map(([name, g]) => {
    const http = g["http"] as Group | undefined;
    const requests = http?.["requests"] as Group | undefined;
    return {
      id: live.text(g, "id") || name,
      connections: live.num(g["connections"] as Group | undefined, "active"),
      requests: live.rate(requests, "total"),
    };
  });
}

export function System(p: { live: Live }) {
  const { live } = p;
  const workers = workerRows(live);
  const most = Math.max(1, ...workers.map((w) => w.requests));
  const columns: Column<WorkerRow>[] = [
    { name: "Worker", by: (r) => Number(r.id), show: (r) => r.id, left: true },
    { name: "Requests/s", by: (r) => r.requests, show: (r) => perSecond(r.requests) },
    { name: "Beside the busiest", by: (r) => r.requests, show: (r) => <span class="bar"><i style={{ width: `${(100 * r.requests) / most}%`, background: "var(--out)" }} /></span> },
    { name: "Connections", by: (r) => r.connections, show: (r) => count(r.connections) },
  ];
  const ssl = live.group("ssl");
  return (
    <>
      <section aria-labelledby="workers">
        <h2 id="workers">Workers</h2>
        {workers.length > 0 ? <Table label="Workers" columns={columns} rows={workers} id={(r) => r.id} /> : <p class="none">No figures yet.</p>}
      </section>
      {ssl && (
        <section aria-labelledby="tls">
          <h2 id="tls">TLS</h2>
          <Plain live={live} title="TLS" group={{ "all connections": ssl }} none="" />
        </section>
      )}
      <section aria-labelledby="resolvers">
        <h2 id="resolvers">Resolvers</h2>
        <Plain live={live} title="Resolvers" group={live.group("resolvers")} none="No resolver has a status_zone." />
      </section>
    </>
  );
}

export function Streams(p: { live: Live }) {
  return (
    <>
      <section aria-labelledby="stream-servers">
        <h2 id="stream-servers">Stream servers</h2>
        <Plain live={p.live} title="Stream servers" group={p.live.group("stream", "server_zones")} none="No server is configured in stream." />
      </section>
      <Upstreams live={p.live} block="stream" title="Stream upstreams" />
    </>
  );
}
