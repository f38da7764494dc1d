// Servers that are asked, whether they are well, and what can be done with them where the API writes.
import { useRef, useState } from "preact/hooks";
import { bytes, count, ms, perSecond } from "./format";
import { entries, sub, type Group, type Live } from "./live";
import { Shares } from "./servers";
import { Table, type Column } from "./table";

export interface PeerRow {
  upstream: string;
  id: number;
  /** Its upstream has a zone: workers share it, and it can be changed. */
  shared: boolean;
  server: string;
  backup: boolean;
  state: string;
  weight: number;
  active: number;
  /** `max_conns`; 0: as many as there are. */
  most: number;
  requests: number;
  total: number;
  answers: number[];
  sent: number;
  received: number;
  fails: number;
  p50: number;
  p99: number;
}

const STATES = ["down", "unavail", "unhealthy", "checking", "draining", "up"];
const ILL = STATES.slice(0, 3);

function peer(live: Live, upstream: string, shared: boolean, g: Group, asked: string): PeerRow {
  const answers = sub(g, "responses");
  const latency = sub(g, "latency");
  const times = live.times(latency, "header") ?? live.times(latency, "first_byte");
  return {
    upstream,
    id: live.num(g, "id"),
    shared,
    server: live.text(g, "server"),
    backup: live.leaf(g, "backup") === true,
    state: live.text(g, "state") || "up",
    weight: live.num(g, "weight"),
    active: live.num(g, "active"),
    most: live.num(g, "max_conns"),
    requests: live.rate(g, asked),
    total: live.num(g, asked),
    answers: ["2xx", "3xx", "4xx", "5xx"].map((kind) => live.rate(answers, kind)),
    sent: live.rate(g, "sent"),
    received: live.rate(g, "received"),
    fails: live.num(g, "fails") + live.num(g, "unavail"),
    p50: times?.p50 ?? 0,
    p99: times?.p99 ?? 0,
  };
}

export function peerRows(live: Live, block = "http"): PeerRow[] {
  const asked = block === "http" ? "requests" : "connections";
  return entries(live.group(block, "upstreams")).flatMap(([name, upstream]) => {
    const peers = upstream["peers"];
    const shared = live.has(upstream, "zone");
    return Array.isArray(peers) ? peers.map((p) => peer(live, name, shared, p as Group, asked)) : [];
  });
}

/** An upstream: whether it can take the next request, and who waits for it. */
export interface GroupRow {
  name: string;
  state: string;
  up: number;
  servers: number;
  /** Those that should answer and do not, or are not asked. */
  ill: number;
  queued: boolean;
  waiting: number;
  most: number;
  refused: number;
  p50: number;
  p99: number;
}

const GROUP_STATES = ["unavail", "no servers", "queue full", "at max_conns", "up"];

export function groupRows(live: Live, block = "http"): GroupRow[] {
  return entries(live.group(block, "upstreams")).map(([name, g]) => {
    const peers = Array.isArray(g["peers"]) ? (g["peers"] as Group[]) : [];
    const queue = sub(g, "queue");
    const wait = live.times(queue, "wait");
    return {
      name,
      state: live.text(g, "state") || "up",
      up: peers.filter((peer) => live.text(peer, "state") === "up").length,
      servers: peers.length,
      ill: peers.filter((peer) => ILL.includes(live.text(peer, "state"))).length,
      queued: queue !== undefined,
      waiting: live.num(queue, "size"),
      most: live.num(queue, "max_size"),
      refused: live.rate(queue, "overflows"),
      p50: wait?.p50 ?? 0,
      p99: wait?.p99 ?? 0,
    };
  });
}

/** Servers in the order in which somebody is to look at them: of upstreams that take no request, of those that have lost some of their
    servers, and of all others. Within these, and within an upstream, as the configuration has them. */
export function troubleFirst(rows: PeerRow[], groups: GroupRow[]): PeerRow[] {
  const rank = new Map(groups.map((g) => [g.name, g.state !== "up" ? 0 : g.ill > 0 ? 1 : 2]));
  const of = (r: PeerRow) => rank.get(r.upstream) ?? 2;
  return [...rows].sort((a, b) => of(a) - of(b));
}

function Mark(p: { state: string }) {
  return <span class={`mark ${p.state.replaceAll(" ", "-")}`}>{p.state}</span>;
}

const GROUPS: Column<GroupRow>[] = [
  { name: "Upstream", by: (r) => r.name, left: true, show: (r) => <span title={r.name}>{r.name}</span> },
  { name: "Next request", by: (r) => GROUP_STATES.indexOf(r.state), left: true, show: (r) => <Mark state={r.state} />, title: "Whether a server takes it" },
  { name: "Servers up", by: (r) => r.up, show: (r) => `${count(r.up)} of ${count(r.servers)}` },
  { name: "Waiting", by: (r) => (r.most ? r.waiting / r.most : 0), show: (r) => (r.queued ? `${count(r.waiting)} of ${count(r.most)}` : "–"), title: "In the queue" },
  { name: "Refused/s", by: (r) => r.refused, show: (r) => (r.queued ? <span class={r.refused > 0 ? "bad" : ""}>{perSecond(r.refused)}</span> : "–"), title: "As the queue was full" },
  { name: "Waited, median", by: (r) => r.p50, show: (r) => ms(r.p50) },
  { name: "p99", by: (r) => r.p99, show: (r) => ms(r.p99) },
];

/** Those that have a queue, or that cannot take the next request. */
function Groups(p: { live: Live; block: string }) {
  const rows = groupRows(p.live, p.block).filter((r) => r.queued || r.state !== "up");
  if (rows.length === 0) return null;
  return (
    <>
      <Table label="Queues, and upstreams without a server" columns={GROUPS} rows={rows} id={(r) => r.name} sort={1} />
      <p class="foot">
        <code>no servers</code>: all are removed, or none is found by its name. <code>unavail</code>: none is up. <code>queue full</code>, <code>at max_conns</code>: servers answer, but take no more at once: raise max_conns or <code>queue</code>, or add servers.
      </p>
    </>
  );
}

type Change = { verb: string; done: string; ask: string; body: object };

/** What can be done with a server in its state. */
function changes(r: PeerRow, block: string): Change[] {
  const what = block === "http" ? "requests" : "connections";
  const enable = { verb: "Enable", done: "is enabled", ask: "", body: block === "http" ? { down: false, drain: false } : { down: false } };
  const drain = { verb: "Drain", done: "is drained", ask: `Only ${what} of clients that are bound to it go there, until it is enabled again.`, body: { drain: true } };
  const disable = { verb: "Disable", done: "is disabled", ask: `It is not asked any more; those that it answers now go on to their ends.`, body: { down: true } };
  if (r.state === "down") return [enable];
  if (r.state === "draining") return [enable, disable];
  return block === "http" ? [drain, disable] : [disable];
}

async function send(live: Live, block: string, r: PeerRow, change: Change): Promise<string> {
  const api = (live.about.api ?? "").replace(/\/$/, "");
  const url = new URL(`${api}/9/${block}/upstreams/${encodeURIComponent(r.upstream)}/servers/${r.id}`, live.base);
  try {
    const answer = await fetch(url, { method: "PATCH", headers: { "Content-Type": "application/json" }, body: JSON.stringify(change.body) });
    if (answer.ok) return "";
    const told = (await answer.json().catch(() => ({}))) as { error?: { text?: string } };
    return told.error?.text ?? `the API answers ${answer.status}`;
  } catch (e) {
    return String(e);
  }
}

interface Asked {
  row: PeerRow;
  change: Change;
}

function columns(block: string, act: ((asked: Asked) => void) | undefined): Column<PeerRow>[] {
  const all: Column<PeerRow>[] = [
    { name: "Upstream", by: (r) => r.upstream, left: true, show: (r) => <span title={r.upstream}>{r.upstream}</span> },
    { name: "Server", by: (r) => r.server, left: true, show: (r) => (r.backup ? <>{r.server} <small>backup</small></> : r.server) },
    { name: "State", by: (r) => STATES.indexOf(r.state), left: true, show: (r) => <Mark state={r.state} /> },
    { name: block === "http" ? "Requests/s" : "Connections/s", by: (r) => r.requests, show: (r) => perSecond(r.requests) },
    { name: "Now", by: (r) => r.active, show: (r) => (r.most ? <span class={r.active >= r.most ? "bad" : ""}>{`${count(r.active)} of ${count(r.most)}`}</span> : count(r.active)), title: "Being answered, and max_conns" },
  ];
  if (block === "http") all.push({ name: "Answers", by: (r) => r.answers[3] ?? 0, show: (r) => <Shares of={r.answers} />, title: "Shares of 2xx, 3xx, 4xx, 5xx" });
  all.push(
    { name: "Median", by: (r) => r.p50, show: (r) => ms(r.p50), title: block === "http" ? "Until the answer's head" : "Until the first byte" },
    { name: "p99", by: (r) => r.p99, show: (r) => ms(r.p99) },
    { name: "Failures", by: (r) => r.fails, show: (r) => <span class={r.fails > 0 ? "bad" : ""}>{count(r.fails)}</span> },
    { name: "Received/s", by: (r) => r.received, show: (r) => bytes(r.received) },
    { name: "Weight", by: (r) => r.weight },
  );
  if (act) {
    const show = (r: PeerRow) => r.shared && (
      <span class="acts" id={`acts-${block}-${r.upstream}-${r.id}`} tabIndex={-1}>
        {changes(r, block).map((change) => (
          <button key={change.verb} type="button" aria-label={`${change.verb} ${r.server} of ${r.upstream}`} onClick={() => act({ row: r, change })}>{change.verb}</button>
        ))}
      </span>
    );
    all.splice(3, 0, { name: "Change", left: true, by: (r) => Number(r.shared), show, title: "Servers of upstreams that have a zone can be changed" });
  }
  return all;
}

export function Upstreams(p: { live: Live; block: string; title: string }) {
  const { live, block } = p;
  const [search, setSearch] = useState("");
  const [wrong, setWrong] = useState(false);
  const [asked, setAsked] = useState<Asked | null>(null);
  const [failed, setFailed] = useState("");
  const [said, setSaid] = useState("");
  const dialog = useRef<HTMLDialogElement>(null);
  const groups = groupRows(live, block);
  const rows = troubleFirst(peerRows(live, block), groups);
  if (rows.length === 0 && groups.length === 0) {
    return (
      <section aria-labelledby={`upstreams-${block}`}>
        <h2 id={`upstreams-${block}`}>{p.title}</h2>
        <p class="none">No <code>upstream</code> block is configured in <code>{block}</code>.</p>
      </section>
    );
  }
  const words = search.toLowerCase();
  const found = rows.filter((r) => (!wrong || r.state !== "up") && (!words || `${r.upstream} ${r.server} ${r.state}`.toLowerCase().includes(words)));
  const go = async (it: Asked) => {
    const text = await send(live, block, it.row, it.change);
    setFailed(text);
    if (text) {
      setAsked(it);
      dialog.current?.showModal();
    } else {
      dialog.current?.close();
      setSaid(`${it.row.server} of ${it.row.upstream} ${it.change.done}.`);
      // The button that was pressed is gone, or another one: what can be done next stands in the same place.
      document.getElementById(`acts-${block}-${it.row.upstream}-${it.row.id}`)?.focus();
    }
  };
  const act = (it: Asked) => {
    setFailed("");
    if (!it.change.ask) return void go(it);
    setAsked(it);
    dialog.current?.showModal();
  };
  return (
    <section aria-labelledby={`upstreams-${block}`}>
      <div class="head">
        <h2 id={`upstreams-${block}`}>{p.title} <small>{count(rows.filter((r) => r.state === "up").length)} of {count(rows.length)} servers up</small></h2>
        <label><input type="checkbox" checked={wrong} onChange={(e) => setWrong(e.currentTarget.checked)} /> only those that are not</label>
        <input type="search" id="search" placeholder="Search (/)" aria-label="Search by upstream, server or state" value={search} onInput={(e) => setSearch(e.currentTarget.value)} />
      </div>
      <p class="said" role="status">{said}</p>
      <Groups live={live} block={block} />
      <Table label={p.title} columns={columns(block, live.about.writes ? act : undefined)} rows={found} id={(r) => `${r.upstream} ${r.id} ${r.server}`} sort={-1} />
      {!live.about.writes && <p class="foot">Servers are drained, enabled and disabled here where the configuration says <code>dashboard api=/api/;</code> and <code>api write=on;</code></p>}
      <dialog ref={dialog} aria-labelledby="ask" onClose={() => setFailed("")}>
        {asked && (
          <>
            <h3 id="ask">{asked.change.verb} {asked.row.server}?</h3>
            <p class="dim">of upstream {asked.row.upstream}</p>
            <p>{asked.change.ask}</p>
            {failed && <p class="bad" role="alert">{failed}</p>}
            <div class="answers">
              <button type="button" onClick={() => dialog.current?.close()}>Cancel</button>
              <button type="button" class="main" id="do-it" onClick={() => void go(asked)}>{asked.change.verb}</button>
            </div>
          </>
        )}
      </dialog>
    </section>
  );
}
