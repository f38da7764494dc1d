// Requests that failed or were slow, and lines of the error log, as they happen: the newest first.
import { useState } from "preact/hooks";
import { ago, clock, count, ms } from "./format";
import type { Happening, Live } from "./live";

type Kind = "all" | "failed" | "slow" | "log";
const KINDS: [Kind, string][] = [["all", "All"], ["failed", "Failed"], ["slow", "Slow"], ["log", "Error log"]];

function kind(h: Happening): Kind {
  if (h.text !== undefined) return "log";
  return (h.status ?? 0) >= 500 ? "failed" : "slow";
}

const NAMES: Record<Kind, string> = { all: "", failed: "failed", slow: "slow", log: "log" };

function One(p: { h: Happening; now: number }) {
  const { h } = p;
  const of = kind(h);
  return (
    <li class={`happening ${of}`}>
      <time title={new Date(h.t).toISOString()}>{clock(h.t)}</time>
      <span class={`mark ${of}`}>{of === "log" ? h.level : of === "failed" ? h.status : NAMES[of]}</span>
      {of === "log" ? (
        <span class="what">{h.text}</span>
      ) : (
        <span class="what">
          <b>{h.method}</b> {h.path}
          <small>
            {of === "slow" && ` ${h.status} `} in {(h.ms ?? 0) < 1 ? "less than 1 ms" : ms(h.ms ?? 0)} · {h.server}
            {h.upstream && ` · from ${h.upstream}`}
          </small>
        </span>
      )}
      <span class="ago">{ago(p.now - h.t)}{h.more ? ` · ${count(h.more)} more before` : ""}</span>
    </li>
  );
}

export function Problems(p: { live: Live; few?: number; of?: Kind; search?: string }) {
  const { live } = p;
  const words = (p.search ?? "").toLowerCase();
  const found = live.happenings.filter((h) => {
    if (p.of && p.of !== "all" && kind(h) !== p.of) return false;
    return !words || `${h.text ?? ""} ${h.path ?? ""} ${h.server ?? ""} ${h.upstream ?? ""} ${h.status ?? ""}`.toLowerCase().includes(words);
  });
  const shown = found.slice(-(p.few ?? 200)).reverse();
  if (live.happenings.length === 0) {
    return <p class="none well">Nothing has failed or been slow since the page's first second.</p>;
  }
  if (shown.length === 0) return <p class="none">Nothing is found.</p>;
  return <ol class="happenings" aria-live="off">{shown.map((h) => <One key={h.n} h={h} now={live.now} />)}</ol>;
}

export function ProblemsPage(p: { live: Live }) {
  const [of, setOf] = useState<Kind>("all");
  const [search, setSearch] = useState("");
  return (
    <section aria-labelledby="problems-head">
      <div class="head">
        <h2 id="problems-head">Problems</h2>
        <span class="choice" role="group" aria-label="Which">
          {KINDS.map(([id, name]) => <button key={id} type="button" aria-pressed={of === id} onClick={() => setOf(id)}>{name}</button>)}
        </span>
        <input type="search" id="search" placeholder="Search (/)" aria-label="Search in problems" value={search} onInput={(e) => setSearch(e.currentTarget.value)} />
      </div>
      <Problems live={p.live} of={of} search={search} />
      <p class="foot">Answers 5xx, requests that took {ms(p.live.about.slow_ms ?? 1000)} or longer, and errors of the log; the newest 200, and of a flood ten a second. Clients and what is behind a question mark are left out.</p>
    </section>
  );
}
