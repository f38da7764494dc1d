// Several servers: each beside the others, and what they do together. This server asks them; the page asks it alone.
import { useEffect, useState } from "preact/hooks";
import { ago, bytes, count, ms, perSecond } from "./format";
import type { Live } from "./live";
import { Shares } from "./servers";
import { Table, type Column } from "./table";

interface Did {
  requests: number;
  "1xx": number;
  "2xx": number;
  "3xx": number;
  "4xx": number;
  "5xx": number;
  received: number;
  sent: number;
  total: number;
  /** Milliseconds; none where a server does not tell what adds up. */
  p50: number | null;
  p95: number | null;
  p99: number | null;
}
interface Machine extends Partial<Did> {
  name: string;
  state: "answers" | "silent" | "asked";
  silent_ms?: number;
  error?: string;
  version?: string;
  connections?: number;
  accepted?: number;
}
interface Told {
  machines: Machine[];
  sum: Did & { connections: number; accepted: number; answer: number; machines: number };
  zones: Record<string, Did & { machines: number }>;
}

const EVERY_MS = 2000;

function time(n: number | null | undefined): string {
  return n === null || n === undefined ? "–" : ms(n);
}

/** What is not told is no zero. */
function told(n: number | undefined, show: (n: number) => string): string {
  return n === undefined ? "–" : show(n);
}

function shares(r: Partial<Did>): number[] {
  return [r["2xx"] ?? 0, r["3xx"] ?? 0, r["4xx"] ?? 0, r["5xx"] ?? 0];
}

function figures<T extends Partial<Did>>(): Column<T>[] {
  return [
    { name: "Requests/s", by: (r) => r.requests ?? -1, show: (r) => told(r.requests, perSecond) },
    { name: "Answers", by: (r) => r["5xx"] ?? -1, show: (r) => (r.requests === undefined ? "–" : <Shares of={shares(r)} />), title: "Shares of 2xx, 3xx, 4xx, 5xx" },
    { name: "5xx/s", by: (r) => r["5xx"] ?? -1, show: (r) => <span class={(r["5xx"] ?? 0) > 0 ? "bad" : ""}>{told(r["5xx"], perSecond)}</span> },
    { name: "Median", by: (r) => r.p50 ?? -1, show: (r) => time(r.p50) },
    { name: "p95", by: (r) => r.p95 ?? -1, show: (r) => time(r.p95) },
    { name: "p99", by: (r) => r.p99 ?? -1, show: (r) => time(r.p99) },
    { name: "Sent/s", by: (r) => r.sent ?? -1, show: (r) => told(r.sent, bytes) },
    { name: "Received/s", by: (r) => r.received ?? -1, show: (r) => told(r.received, bytes) },
    { name: "Requests", by: (r) => r.total ?? -1, show: (r) => told(r.total, count) },
  ];
}

function state(r: Machine) {
  if (r.state === "silent") return <span class="bad" title={r.error}>silent for {ago(r.silent_ms ?? 0).replace(/ ago$/, "")}</span>;
  return r.state;
}

const MACHINES: Column<Machine>[] = [
  { name: "Machine", by: (r) => r.name, left: true },
  { name: "State", by: (r) => r.state, left: true, show: state },
  { name: "Connections", by: (r) => r.connections ?? -1, show: (r) => told(r.connections, count) },
  ...figures<Machine>(),
  { name: "Version", by: (r) => r.version ?? "", left: true },
];

type Zone = Did & { name: string; machines: number };
const ZONES: Column<Zone>[] = [
  { name: "Name", by: (r) => r.name, left: true },
  { name: "Machines", by: (r) => r.machines, show: (r) => count(r.machines) },
  ...figures<Zone>(),
];

function Tile(p: { name: string; value: string; more?: string; bad?: boolean }) {
  return (
    <div class="tile"><dl><dt>{p.name}</dt><dd class={p.bad ? "value bad" : "value"}>{p.value}</dd><dd class="more">{p.more ?? "\u00a0"}</dd></dl></div>
  );
}

export function Machines(p: { live: Live }) {
  const [now, setNow] = useState<Told | null>(null);
  const [lost, setLost] = useState(false);
  useEffect(() => {
    const look = async () => {
      if (document.hidden) return;
      try {
        const answer = await fetch(p.live.base + "machines");
        if (!answer.ok) throw new Error(String(answer.status));
        setNow((await answer.json()) as Told);
        setLost(false);
      } catch {
        setLost(true);
      }
    };
    void look();
    const timer = setInterval(() => void look(), EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  if (!now) return <p class="none">{lost ? <>No <code>dashboard_peer</code> is configured.</> : "The machines are asked."}</p>;
  const { sum } = now;
  const silent = now.machines.filter((m) => m.state === "silent");
  const zones = Object.entries(now.zones).map(([name, zone]) => ({ name, ...zone }));
  return (
    <>
      <section aria-labelledby="sum-head">
        <h2 id="sum-head">All together <small>{sum.answer} of {sum.machines} machines</small></h2>
        <div class="tiles">
          <Tile name="Requests a second" value={perSecond(sum.requests)} more={`${count(sum.total)} since their starts`} />
          <Tile name="Connections" value={count(sum.connections)} more={`${perSecond(sum.accepted)} new a second`} />
          <Tile name="Latency, median" value={time(sum.p50)} more={`p99: ${time(sum.p99)}`} />
          <Tile name="Sent a second" value={bytes(sum.sent)} more={`${bytes(sum.received)} received`} />
          <Tile name="Answers 5xx a second" value={perSecond(sum["5xx"])} bad={sum["5xx"] > 0} />
        </div>
        {silent.length > 0 && <p class="foot warn" role="alert">Left out of the sum, as they do not answer: {silent.map((m) => `${m.name} (${m.error ?? ""})`).join(", ")}</p>}
        {lost && <p class="foot warn">This server does not answer; these are the last figures seen.</p>}
      </section>
      <section aria-labelledby="machines-head">
        <h2 id="machines-head">Machines</h2>
        <Table label="Machines" columns={MACHINES} rows={now.machines} id={(r) => r.name} sort={-1} />
      </section>
      <section aria-labelledby="zones-together">
        <h2 id="zones-together">Servers, over all machines</h2>
        <Table label="Servers, over all machines" columns={ZONES} rows={zones} id={(r) => r.name} sort={2} />
      </section>
    </>
  );
}
