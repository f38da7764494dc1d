// Where events and figures go: each receiver, what waits for it, and what went wrong.
import { ago, bytes, clock, count, perSecond } from "./format";
import { entries, type Live } from "./live";
import { Fill } from "./rest";
import { Table, type Column } from "./table";

interface Receiver {
  name: string;
  kind: string;
  events: number;
  queued: number;
  max: number;
  sent: number;
  rate: number;
  dropped: number;
  refused: number;
  retries: number;
  oldest: number;
  failingFor: number;
  error: string;
  errorAt: number;
}

export function hasShipping(live: Live): boolean {
  return entries(live.group("ship")).length > 0;
}

function receivers(live: Live): Receiver[] {
  return entries(live.group("ship")).map(([name, g]) => ({
    name,
    kind: live.text(g, "kind"),
    events: live.num(g, "queued_events"),
    queued: live.num(g, "queued_bytes"),
    max: live.num(g, "max_bytes"),
    sent: live.num(g, "events_sent"),
    rate: live.rate(g, "events_sent"),
    dropped: live.num(g, "events_dropped"),
    refused: live.num(g, "events_refused"),
    retries: live.num(g, "retries"),
    oldest: live.num(g, "oldest_age"),
    failingFor: live.num(g, "failing_for"),
    error: live.text(g, "last_error"),
    errorAt: Date.parse(live.text(g, "last_error_time")),
  }));
}

function Lost(p: { n: number }) {
  return <span class={p.n > 0 ? "warn" : ""}>{count(p.n)}</span>;
}

function waits(ms: number): string {
  return ago(ms).replace(/ ago$/, "");
}

const COLUMNS: Column<Receiver>[] = [
  { name: "Receiver", by: (r) => r.name, left: true },
  { name: "Kind", by: (r) => r.kind, left: true },
  { name: "State", by: (r) => r.failingFor, left: true, show: (r) => (r.failingFor > 0 ? <span class="warn">fails for {waits(r.failingFor)}</span> : "well") },
  { name: "Waiting", by: (r) => r.events, show: (r) => count(r.events), title: "Events in the queue" },
  { name: "Queue", by: (r) => r.queued / Math.max(1, r.max), show: (r) => <Fill of={r.queued} max={r.max} words={`${bytes(r.queued)} of ${bytes(r.max)}`} /> },
  { name: "Oldest", by: (r) => r.oldest, show: (r) => (r.events > 0 ? waits(r.oldest) : "–"), title: "For how long the event has waited that waits longest" },
  { name: "Sent/s", by: (r) => r.rate, show: (r) => perSecond(r.rate) },
  { name: "Sent", by: (r) => r.sent, show: (r) => count(r.sent) },
  { name: "Dropped", by: (r) => r.dropped, show: (r) => <Lost n={r.dropped} />, title: "Events that found no room" },
  { name: "Refused", by: (r) => r.refused, show: (r) => <Lost n={r.refused} />, title: "Events that the receiver will never take" },
  { name: "Retries", by: (r) => r.retries, show: (r) => count(r.retries) },
];

export function Shipping(p: { live: Live }) {
  const rows = receivers(p.live);
  if (rows.length === 0) return <p class="none">No <code>ship</code> block is configured.</p>;
  const errors = rows.filter((r) => r.error);
  return (
    <>
      <section aria-labelledby="shipping-head">
        <h2 id="shipping-head">Shipping</h2>
        <Table label="Shipping" columns={COLUMNS} rows={rows} id={(r) => r.name} />
      </section>
      {errors.length > 0 && (
        <section aria-labelledby="shipping-errors">
          <h2 id="shipping-errors">Last errors</h2>
          <ol class="happenings">
            {errors.map((r) => (
              <li key={r.name} class="happening log">
                <time title={r.errorAt ? new Date(r.errorAt).toISOString() : ""}>{r.errorAt ? clock(r.errorAt) : ""}</time>
                <span class={r.failingFor > 0 ? "mark failed" : "mark"}>{r.name}</span>
                <span class="what">{r.error}{r.failingFor > 0 && <small> · failing since {clock(p.live.now - r.failingFor)}</small>}</span>
                <span class="ago">{r.errorAt ? ago(p.live.now - r.errorAt) : ""}</span>
              </li>
            ))}
          </ol>
        </section>
      )}
    </>
  );
}
