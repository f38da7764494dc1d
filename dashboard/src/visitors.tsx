// Who comes and what for, where the server counts that: the panels of its reports, as they are told.
import { useEffect, useState } from "preact/hooks";
import { bytes, count, ms, whole } from "./format";
import type { Live } from "./live";

interface PanelRow {
  name: string;
  note?: string;
  hits: number;
  bytes?: number;
  visitors?: number;
  longest_us?: number;
}
interface Panel {
  title: string;
  rows: PanelRow[];
}
interface Report {
  summary?: Record<string, unknown>;
  panels?: Record<string, Panel>;
}

const EVERY_MS = 10_000;
const ROWS = 10;

export function hasVisitors(live: Live): boolean {
  return Object.keys(live.group("http", "analytics_zones") ?? {}).length > 0;
}

/** What a panel is about: the figure that its rows have, as a number and as it is read. */
interface Figure {
  of: (row: PanelRow) => number;
  show: (n: number) => string;
}
const HITS: Figure = { of: (r) => r.hits, show: count };
const OTHER: Record<string, Figure> = {
  visitors: { of: (r) => r.visitors ?? 0, show: count },
  heaviest: { of: (r) => r.bytes ?? 0, show: bytes },
  slowest: { of: (r) => r.longest_us ?? 0, show: (us) => ms(us / 1000) },
};

/** All that is known of a row, of which its panel shows one figure. */
function told(r: PanelRow): string {
  const all = [r.name];
  if (r.hits > 0) all.push(`${whole(r.hits)} requests`);
  if (r.visitors !== undefined) all.push(`${whole(r.visitors)} visitors`);
  if (r.bytes) all.push(bytes(r.bytes));
  if (r.longest_us) all.push(`${ms(r.longest_us / 1000)} at most`);
  return all.join(", ");
}

function List(p: { id: string; panel: Panel }) {
  const { of, show } = OTHER[p.id] ?? HITS;
  // The last days, of all others the first.
  const rows = p.id === "visitors" ? p.panel.rows.slice(-ROWS) : p.panel.rows.slice(0, ROWS);
  const most = Math.max(1, ...rows.map(of));
  return (
    <div class="card" id={`panel-${p.id}`}>
      <h3>{p.panel.title}</h3>
      <ul class="parts">
        {rows.map((r) => (
          <li key={`${r.name} ${r.note ?? ""}`} title={told(r)}>
            <span>{r.name} {r.note && <small>{r.note}</small>}</span>
            <span class="bar"><i class="c3" style={{ width: `${(100 * of(r)) / most}%` }} /></span>
            <b>{show(of(r))}</b>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** A day's hours side by side. */
function Hours(p: { panel: Panel }) {
  const most = Math.max(1, ...p.panel.rows.map((r) => r.hits));
  return (
    <div class="card" id="panel-hours">
      <h3>{p.panel.title}</h3>
      <ol class="hours">
        {p.panel.rows.map((r, n) => (
          <li key={r.name} title={told(r)} aria-label={told(r)}>
            <i class="c3" style={{ height: `${(100 * r.hits) / most}%` }} />
            {n % 6 === 0 && <small aria-hidden="true">{r.name}</small>}
          </li>
        ))}
      </ol>
      <p class="foot">{whole(most)} requests in the busiest</p>
    </div>
  );
}

export function Visitors(p: { live: Live }) {
  const [reports, setReports] = useState<[string, Report][]>([]);
  useEffect(() => {
    const look = async () => {
      try {
        const told = (await (await fetch(p.live.base + "analytics")).json()) as Report & Record<string, Report>;
        setReports(told.panels ? [["", told]] : Object.entries(told));
      } catch {
        // The next look may tell more.
      }
    };
    void look();
    const timer = setInterval(() => void look(), EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  if (reports.length === 0) return <p class="none">Nobody has come yet.</p>;
  return (
    <>
      {reports.map(([name, report]) => (
        <section key={name} aria-label={`Visitors ${name}`}>
          <h2>Visitors {name && <small>{name}</small>}</h2>
          <div class="tiles">
            {Object.entries(report.summary ?? {}).filter((e): e is [string, number] => typeof e[1] === "number").map(([k, n]) => (
              <div class="tile" key={k}><dl><dt>{k.replaceAll("_", " ")}</dt><dd class="value">{k === "bytes" ? bytes(n) : count(n)}</dd></dl></div>
            ))}
          </div>
          <div class="cards">
            {Object.entries(report.panels ?? {}).filter(([, panel]) => panel.rows.length > 0).map(([id, panel]) => (
              id === "hours" ? <Hours key={id} panel={panel} /> : <List key={id} id={id} panel={panel} />
            ))}
          </div>
        </section>
      ))}
    </>
  );
}
