// The server as a whole: what it does now, and what it has done.
import { useState } from "preact/hooks";
import { bytes, clock, count, ms, percent, perSecond } from "./format";
import type { Live } from "./live";
import { Plot } from "./plot";
import { serverRows, ServerTable } from "./servers";
import { peerRows } from "./upstreams";

const RANGES = ["5 minutes", "1 hour", "1 day"];
const CLASSES = ["2xx", "3xx", "4xx", "5xx"];

function Tile(p: { name: string; value: string; more?: string; bad?: boolean }) {
  return (
    <dl class="tile">
      <dt>{p.name}</dt>
      <dd class={p.bad ? "bad" : ""}>{p.value}</dd>
      <dd>{p.more ?? "\u00a0"}</dd>
    </dl>
  );
}

function Tiles(p: { live: Live }) {
  const { live } = p;
  const rows = live.steps[0]?.rows ?? [];
  const last = rows[rows.length - 1];
  const at = (name: string) => last?.[live.column(name)] ?? 0;
  const connections = live.group("connections");
  const requests = live.group("http", "requests");
  const zones = serverRows(live);
  const peers = peerRows(live);
  const wrong = peers.filter((peer) => peer.state !== "up");
  const sum = (f: (z: (typeof zones)[number]) => number) => zones.reduce((all, z) => all + f(z), 0);
  const answered = sum((z) => z.answered);
  const failed = sum((z) => z.c5);
  return (
    <div class="tiles">
      <Tile name="Requests a second" value={perSecond(sum((z) => z.requests))} more={`${count(live.num(requests, "total"))} since the start`} />
      <Tile name="Connections" value={count(live.num(connections, "active"))} more={`${perSecond(live.rate(connections, "accepted"))} new a second`} />
      <Tile name="Latency, median" value={ms(at("p50") / 1000)} more={`99 of 100: ${ms(at("p99") / 1000)}`} />
      <Tile name="Sent a second" value={bytes(sum((z) => z.sent))} more={`received: ${bytes(sum((z) => z.received))}`} />
      <Tile name="Answers 5xx" value={percent(answered ? failed / answered : 0)} more={`${perSecond(failed)} a second`} bad={failed > 0} />
      {peers.length > 0 && (
        <Tile name="Servers asked" value={`${peers.length - wrong.length} of ${peers.length} up`} more={wrong[0] ? `${wrong[0].upstream}: ${wrong[0].server}` : undefined} bad={wrong.length > 0} />
      )}
    </div>
  );
}

function Plots(p: { live: Live; frozen: boolean; theme: string }) {
  const { live } = p;
  const [range, setRange] = useState(0);
  const step = live.steps[range];
  const rows = step?.rows ?? [];
  const secs = step?.secs ?? 1;
  const times = rows.map((row) => row[0] ?? 0);
  const column = (name: string, scale: number) => {
    const at = live.column(name);
    return rows.map((row) => (row[at] ?? 0) * scale);
  };
  const common = { times, frozen: p.frozen, theme: p.theme };
  return (
    <section aria-labelledby="over-time">
      <h2 id="over-time">
        Over time
        <select aria-label="Time shown" value={range} onChange={(e) => { setRange(Number(e.currentTarget.value)); void live.fetchHistory(); }}>
          {RANGES.map((name, n) => <option key={name} value={n}>{name}</option>)}
        </select>
        <small>drag to zoom, double click to see all</small>
      </h2>
      <div class="plots">
        <Plot {...common} title="Answers a second" stacked format={perSecond}
          lines={CLASSES.map((name) => ({ label: name, color: `--c${name[0]}`, values: column(name, 1 / secs) }))} />
        <Plot {...common} title="Latency" format={(n) => (n > 0 ? ms(n) : "0")}
          lines={[["p50", "--c2"], ["p95", "--c4"], ["p99", "--c5"]].map(([name, color]) => ({ label: name!, color: color!, values: column(name!, 1 / 1000) }))} />
        <Plot {...common} title="Traffic a second" format={bytes}
          lines={[{ label: "sent", color: "--out", fill: true, values: column("sent", 1 / secs) }, { label: "received", color: "--in", values: column("received", 1 / secs) }]} />
        <Plot {...common} title="Connections" format={count}
          lines={[{ label: "open", color: "--out", fill: true, values: column("active", 1) }, { label: "new a second", color: "--in", values: column("accepted", 1 / secs) }]} />
      </div>
    </section>
  );
}

export function Overview(p: { live: Live; frozen: boolean; theme: string }) {
  const { live } = p;
  const about = live.group("nginx");
  const load = live.text(about, "load_timestamp");
  return (
    <>
      <section aria-label="Now"><Tiles live={live} /></section>
      <Plots {...p} />
      <section aria-labelledby="busiest">
        <h2 id="busiest">Busiest servers</h2>
        <ServerTable live={live} rows={serverRows(live)} few={8} label="Busiest servers" />
      </section>
      {about && (
        <p class="dim">
          {live.text(about, "version")} · configuration {live.text(about, "generation")}
          {load && `, loaded ${clock(Date.parse(load))}`}
        </p>
      )}
    </>
  );
}
