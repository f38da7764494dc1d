// The server as a whole: what it does now, and what it has done.
import { useMemo, useState } from "preact/hooks";
import { ago, bytes, clock, count, ms, percent, perSecond } from "./format";
import type { Live, Row } from "./live";
import { Plot, Spark, type Zoom } from "./plot";
import { Problems } from "./problems";
import { serverRows, ServerTable } from "./servers";
import { groupRows, peerRows } from "./upstreams";

const RANGES = ["5 minutes", "1 hour", "1 day"];
const CLASSES = ["2xx", "3xx", "4xx", "5xx"];
const NO_ROWS: Row[] = [];

interface TileProps {
  name: string;
  value: string;
  more?: string;
  bad?: boolean;
  spark?: number[];
  color?: string;
}

function Tile(p: TileProps) {
  return (
    <div class="tile">
      <dl>
        <dt>{p.name}</dt>
        <dd class={p.bad ? "value bad" : "value"}>{p.value}</dd>
        <dd class="more" title={p.more}>{p.more ?? "\u00a0"}</dd>
      </dl>
      {p.spark && <Spark values={p.spark} color={p.color ?? "--out"} />}
    </div>
  );
}

function Tiles(p: { live: Live }) {
  const { live } = p;
  const rows = (live.steps[0]?.rows ?? NO_ROWS).slice(-61, -1);
  const last = rows[rows.length - 1];
  const at = (name: string) => (live.state === "lost" ? NaN : (last?.[live.column(name)] ?? 0));
  const line = (name: string) => rows.map((row) => row[live.column(name)] ?? 0);
  const peers = peerRows(live);
  const away = peers.filter((peer) => peer.state !== "up");
  // An upstream that cannot take the next request says more than one of its servers.
  const stuck = groupRows(live).find((group) => group.state !== "up");
  const wrong = stuck ? `${stuck.name}: ${stuck.state}` : away[0] && `${away[0].server} is ${away[0].state}`;
  const answered = ["1xx", ...CLASSES].reduce((all, name) => all + at(name), 0);
  const connections = live.group("connections");
  const open = live.num(connections, "active") + live.num(connections, "idle");
  return (
    <div class="tiles">
      <Tile name="Requests a second" value={perSecond(at("requests"))} more={`${count(live.num(live.group("http", "requests"), "total"))} since the start`} spark={line("requests")} color="--out" />
      <Tile name="Connections" value={count(open)} more={`${perSecond(at("accepted"))} new a second`} spark={line("active")} color="--out" />
      <Tile name="Latency, median" value={ms(at("p50") / 1000)} more={`p99: ${ms(at("p99") / 1000)}`} spark={line("p50")} color="--l1" />
      <Tile name="Sent a second" value={bytes(at("sent"))} more={`${bytes(at("received"))} received`} spark={line("sent")} color="--out" />
      <Tile name="Answers 5xx" value={percent(answered ? at("5xx") / answered : 0)} more={`${perSecond(at("5xx"))} a second`} bad={at("5xx") > 0} spark={line("5xx")} color="--c5" />
      {(peers.length > 0 || stuck) && (
        <Tile name="Servers asked" value={`${count(peers.length - away.length)} of ${count(peers.length)} up`} more={wrong ?? "all are well"} bad={wrong !== undefined} />
      )}
    </div>
  );
}

function Plots(p: { live: Live; theme: string }) {
  const { live } = p;
  const [range, setRange] = useState(0);
  const [zoom, setZoom] = useState<Zoom>(null);
  live.keepStep(range);
  const step = live.steps[range];
  const secs = step?.secs ?? 1;
  // The second that has yet to end is told when it has.
  const rows = step?.rows.slice(0, -1) ?? NO_ROWS;
  const last = rows[rows.length - 1]?.[0] ?? 0;
  const data = useMemo(() => {
    const times = rows.map((row) => row[0] ?? 0);
    const column = (name: string, scale: number) => {
      const at = live.column(name);
      return rows.map((row) => (row[at] ?? 0) * scale);
    };
    const answers = CLASSES.map((name) => ({ label: name, color: `--c${name[0]}`, values: column(name, 1 / secs) }));
    // Where nobody asked nothing took any time.
    const taken = (name: string) => column(name, 1 / 1000).map((n) => (n > 0 ? n : null));
    const latency = [
      { label: "p50", color: "--l1", values: taken("p50") },
      { label: "p95", color: "--l2", dash: [6, 3], values: taken("p95") },
      { label: "p99", color: "--l3", dash: [2, 3], values: taken("p99") },
    ];
    const traffic = [
      { label: "sent", color: "--out", fill: true, values: column("sent", 1 / secs) },
      { label: "received", color: "--in", dash: [5, 3], values: column("received", 1 / secs) },
    ];
    const connections = [
      { label: "open", color: "--out", fill: true, values: column("active", 1) },
      { label: "new a second", color: "--in", dash: [5, 3], values: column("accepted", 1 / secs) },
    ];
    return { times, answers, latency, traffic, connections };
  }, [last, rows.length, range, live.columns]);
  const common = { times: data.times, theme: p.theme, zoom, onZoom: setZoom };
  return (
    <section aria-labelledby="over-time">
      <div class="head">
        <h2 id="over-time">Over time</h2>
        <span class="choice" role="group" aria-label="Time shown">
          {RANGES.map((name, n) => (
            <button key={name} type="button" aria-pressed={range === n} onClick={() => { setRange(n); setZoom(null); if (n > 0) void live.fetchHistory(); }}>{name}</button>
          ))}
        </span>
        {zoom ? (
          <button type="button" class="plain" id="see-all" onClick={() => setZoom(null)}>
            {clock(zoom[0] * 1000)} to {clock(zoom[1] * 1000)} · see all
          </button>
        ) : (
          <small>drag over a plot to zoom, or look at it by keys: ← → + − 0</small>
        )}
      </div>
      <div class="plots">
        <Plot {...common} title="Answers a second" stacked format={perSecond} lines={data.answers} />
        <Plot {...common} title="Latency" format={(n) => (n > 0 ? ms(n) : "0")} lines={data.latency} />
        <Plot {...common} title="Traffic a second" binary format={bytes} lines={data.traffic} />
        <Plot {...common} title="Connections" whole format={count} lines={data.connections} />
      </div>
    </section>
  );
}

export function Overview(p: { live: Live; theme: string }) {
  const { live } = p;
  const about = live.group("nginx");
  const load = Date.parse(live.text(about, "load_timestamp"));
  const servers = serverRows(live);
  return (
    <>
      <section aria-label="Now"><Tiles live={live} /></section>
      <Plots {...p} />
      <section aria-labelledby="busiest">
        <h2 id="busiest">Busiest servers {servers.length > 8 && <a class="all" href="#servers">all {count(servers.length)}</a>}</h2>
        {servers.length > 0 ? <ServerTable live={live} rows={servers} few={8} label="Busiest servers" /> : <p class="none">No server has been asked yet.</p>}
      </section>
      <section aria-labelledby="lately">
        <h2 id="lately">Latest problems {live.happenings.length > 5 && <a class="all" href="#problems">all {live.happenings.length}</a>}</h2>
        <Problems live={live} few={5} />
      </section>
      {about && (
        <p class="foot">
          Weir {live.text(about, "version")} · configuration {live.text(about, "generation")}
          {Number.isFinite(load) && `, loaded ${ago(live.now - load)} at ${clock(load)}`}
        </p>
      )}
    </>
  );
}
