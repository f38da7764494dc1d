// Who comes and what for, where the server counts that: the panels of its reports, as they are told.
import { useEffect, useState } from "preact/hooks";
import { bytes, count } from "./format";
import type { Live } from "./live";

interface PanelRow {
  name: string;
  note?: string;
  hits: number;
  bytes?: number;
  visitors?: number;
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

function List(p: { panel: Panel }) {
  const rows = p.panel.rows.slice(0, ROWS);
  const most = Math.max(1, ...rows.map((r) => r.hits));
  return (
    <div class="card">
      <h3>{p.panel.title}</h3>
      <ul class="parts">
        {rows.map((r) => (
          <li key={`${r.name} ${r.note ?? ""}`} title={`${r.name}: ${r.hits} requests${r.visitors === undefined ? "" : `, ${r.visitors} visitors`}, ${bytes(r.bytes ?? 0)}`}>
            <span>{r.name} {r.note && <small>{r.note}</small>}</span>
            <span class="bar"><i class="c3" style={{ width: `${(100 * r.hits) / most}%` }} /></span>
            <b>{count(r.hits)}</b>
          </li>
        ))}
      </ul>
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
            {Object.entries(report.panels ?? {}).filter(([, panel]) => panel.rows.length > 0).map(([id, panel]) => <List key={id} panel={panel} />)}
          </div>
        </section>
      ))}
    </>
  );
}
