// Caches, limits, and stream.
import { bytes, count, ms, percent, perSecond } from "./format";
import { entries, sub, type Group, type Live } from "./live";
import { Shares } from "./servers";
import { Table, type Column } from "./table";
import { Upstreams } from "./upstreams";

interface CacheRow {
  name: string;
  hit: number;
  asked: number;
  size: number;
  max: number;
  entries: number;
  entriesMax: number;
  evicted: number;
  inactive: number;
  cold: boolean;
  served: number;
}

const HITS = ["hit", "stale", "updating", "revalidated"];
const ALL = [...HITS, "miss", "expired", "bypass"];

function cacheRows(live: Live): CacheRow[] {
  return entries(live.group("http", "caches")).map(([name, g]) => {
    const of = (kinds: string[], what: string) => kinds.reduce((all, kind) => all + live.num(sub(g, kind), what), 0);
    return {
      name,
      hit: of(HITS, "responses"),
      asked: of(ALL, "responses"),
      served: of(HITS, "bytes"),
      size: live.num(g, "size"),
      max: live.num(g, "max_size"),
      entries: live.num(g, "entries"),
      entriesMax: live.num(g, "entries_max"),
      evicted: live.num(sub(g, "evictions"), "size") + live.num(sub(g, "evictions"), "keys"),
      inactive: live.num(sub(g, "evictions"), "inactive"),
      cold: live.leaf(g, "cold") === true,
    };
  });
}

/** How full something is. */
export function Fill(p: { of: number; max: number; words: string }) {
  const share = p.max > 0 ? Math.min(1, p.of / p.max) : 0;
  return (
    <span class="fill" title={p.words}>
      <span class="bar"><i class={share > 0.9 ? "c5" : share > 0.7 ? "c4" : "c3"} style={{ width: `${100 * share}%` }} /></span> {p.words}
    </span>
  );
}

const CACHE: Column<CacheRow>[] = [
  { name: "Cache", by: (r) => r.name, left: true },
  { name: "Hits", by: (r) => (r.asked ? r.hit / r.asked : 0), show: (r) => <span class="fill"><span class="bar"><i class="c2" style={{ width: `${r.asked ? (100 * r.hit) / r.asked : 0}%` }} /></span> {percent(r.asked ? r.hit / r.asked : 0)}</span> },
  { name: "Asked", by: (r) => r.asked, show: (r) => count(r.asked) },
  { name: "From the cache", by: (r) => r.served, show: (r) => bytes(r.served) },
  { name: "Size", by: (r) => r.size, show: (r) => (r.max ? <Fill of={r.size} max={r.max} words={`${bytes(r.size)} of ${bytes(r.max)}`} /> : bytes(r.size)) },
  { name: "Entries", by: (r) => r.entries, show: (r) => <Fill of={r.entries} max={r.entriesMax} words={count(r.entries)} />, title: "The bar: of those that the keys zone has room for" },
  { name: "Evicted", by: (r) => r.evicted, show: (r) => <span class={r.evicted > 0 ? "warn" : ""}>{count(r.evicted)}</span>, title: "Went to make room" },
  { name: "Unused", by: (r) => r.inactive, show: (r) => count(r.inactive), title: "Went because nobody had asked for them for so long (inactive)" },
  { name: "State", by: (r) => Number(r.cold), show: (r) => (r.cold ? "loading" : "warm") },
];

/** Numbers of things that have few of them, as a table whose head is their names. */
export function Plain(p: { live: Live; title: string; group: Group | undefined; none: string }) {
  const rows = entries(p.group).map(([name, g]) => ({ name, g }));
  const names = [...new Set(rows.flatMap((r) => Object.keys(r.g).filter((k) => typeof p.live.leaf(r.g, k) === "number")))];
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
      <section aria-labelledby="caches-head">
        <h2 id="caches-head">Caches</h2>
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
      <section aria-labelledby="zones-head">
        <h2 id="zones-head">Shared memory</h2>
        <Plain live={p.live} title="Shared memory" none="No zone is configured."
          group={Object.fromEntries(entries(p.live.group("slabs")).map(([name, g]) => [name, sub(g, "pages") ?? g]))} />
      </section>
    </>
  );
}

interface SessionRow {
  name: string;
  now: number;
  rate: number;
  total: number;
  answers: number[];
  received: number;
  sent: number;
  p50: number;
  p99: number;
}

function sessionRows(live: Live): SessionRow[] {
  return entries(live.group("stream", "server_zones")).map(([name, g]) => {
    const sessions = sub(g, "sessions");
    const times = live.times(g, "latency") ?? live.times(g, "session_time");
    return {
      name,
      now: live.num(g, "processing"),
      rate: live.rate(g, "connections"),
      total: live.num(g, "connections"),
      answers: ["2xx", "3xx", "4xx", "5xx"].map((kind) => live.rate(sessions, kind)),
      received: live.rate(g, "received"),
      sent: live.rate(g, "sent"),
      p50: times?.p50 ?? 0,
      p99: times?.p99 ?? 0,
    };
  });
}

const SESSIONS: Column<SessionRow>[] = [
  { name: "Name", by: (r) => r.name, left: true },
  { name: "Connections/s", by: (r) => r.rate, show: (r) => perSecond(r.rate) },
  { name: "Now", by: (r) => r.now, show: (r) => count(r.now) },
  { name: "Ends", by: (r) => r.answers[3] ?? 0, show: (r) => <Shares of={r.answers} />, title: "Shares of sessions that ended with 2xx, 4xx, 5xx" },
  { name: "Median", by: (r) => r.p50, show: (r) => ms(r.p50), title: "How long the sessions took that have ended" },
  { name: "p99", by: (r) => r.p99, show: (r) => ms(r.p99) },
  { name: "Sent/s", by: (r) => r.sent, show: (r) => bytes(r.sent) },
  { name: "Received/s", by: (r) => r.received, show: (r) => bytes(r.received) },
  { name: "Connections", by: (r) => r.total, show: (r) => count(r.total) },
];

export function Streams(p: { live: Live }) {
  const rows = sessionRows(p.live);
  return (
    <>
      <section aria-labelledby="stream-servers">
        <h2 id="stream-servers">Stream servers</h2>
        {rows.length > 0 ? <Table label="Stream servers" columns={SESSIONS} rows={rows} id={(r) => r.name} sort={1} /> : <p class="none">No server is configured in <code>stream</code>.</p>}
      </section>
      <Upstreams live={p.live} block="stream" title="Stream upstreams" />
    </>
  );
}
