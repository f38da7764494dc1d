import { render } from "preact";
import { useEffect, useReducer, useState } from "preact/hooks";
import { Live } from "./live";
import { Machines } from "./machines";
import { Overview } from "./overview";
import { ProblemsPage } from "./problems";
import { CachesAndLimits, Streams } from "./rest";
import { Servers } from "./servers";
import { hasShipping, Shipping } from "./shipping";
import { System } from "./system";
import { Upstreams } from "./upstreams";
import { hasVisitors, Visitors } from "./visitors";
import "./style.css";

const PAGES = [
  ["overview", "Overview"],
  ["servers", "Servers"],
  ["upstreams", "Upstreams"],
  ["caches", "Caches and limits"],
  ["stream", "Stream"],
  ["system", "System"],
  ["problems", "Problems"],
  ["visitors", "Visitors"],
  ["shipping", "Shipping"],
  ["machines", "Machines"],
] as const;

type Theme = "light" | "dark";
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function wantedTheme(): Theme {
  const kept = localStorage.getItem("weir-theme");
  if (kept === "light" || kept === "dark") return kept;
  return prefersDark.matches ? "dark" : "light";
}

function here(): string {
  const name = location.hash.slice(1);
  return PAGES.some(([id]) => id === name) ? name : "overview";
}

// With the origin: a name without it is behind the page's own address, and nothing is fetched from one with a password.
const live = new Live(location.origin + location.pathname.replace(/\/?$/, "/"));

/** Some have something to show only where it is configured. */
function isThere(id: string): boolean {
  if (id === "visitors") return hasVisitors(live);
  if (id === "shipping") return hasShipping(live);
  return id !== "machines" || live.about.machines === true;
}

function Mark() {
  return (
    <svg class="logo" width="28" height="20" viewBox="0 0 56 40" fill="none" stroke="currentColor" stroke-width="5" stroke-linecap="round" aria-hidden="true">
      <path d="M3 9h18c9 0 6 20 15 20h17M3 19h12c7 0 7 18 16 18h14" />
    </svg>
  );
}

/** What keys do. */
function useKeys(pages: string[], pause: () => void): void {
  useEffect(() => {
    const key = (e: KeyboardEvent) => {
      const inField = e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement;
      if (e.key === "Escape" && inField) e.target.blur();
      if (inField || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
      if (e.key === "/") {
        const field = document.getElementById("search");
        if (field) {
          e.preventDefault();
          field.focus();
        }
      } else if (e.key === "p") {
        pause();
      } else if (e.key >= "1" && e.key <= String(pages.length)) {
        location.hash = pages[Number(e.key) - 1]!;
      }
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  });
}

function Page() {
  const [, again] = useReducer((n: number) => n + 1, 0);
  const [page, setPage] = useState(here());
  const [paused, setPaused] = useState(false);
  const [theme, setTheme] = useState<Theme>(wantedTheme());

  useEffect(() => live.onChange(() => document.hidden || again(0)), []);
  useEffect(() => {
    const moved = () => {
      setPage(here());
      scrollTo(0, 0);
    };
    const turned = () => setTheme(wantedTheme());
    const seen = () => again(0);
    addEventListener("hashchange", moved);
    document.addEventListener("visibilitychange", seen);
    prefersDark.addEventListener("change", turned);
    return () => {
      removeEventListener("hashchange", moved);
      document.removeEventListener("visibilitychange", seen);
      prefersDark.removeEventListener("change", turned);
    };
  }, []);

  const pause = () => {
    live.pause(!paused);
    setPaused(!paused);
  };
  // Where the row of pages is wider than the window the one that is shown is scrolled to.
  useEffect(() => {
    const chosen = document.querySelector<HTMLElement>("nav a[aria-current]");
    const row = chosen?.parentElement;
    if (chosen && row) row.scrollLeft = chosen.offsetLeft - row.offsetLeft - (row.clientWidth - chosen.clientWidth) / 2;
  }, [page]);
  const pages = PAGES.filter(([id]) => page === id || isThere(id));
  useKeys(pages.map(([id]) => id), pause);

  document.title = `${PAGES.find(([id]) => id === page)?.[1] ?? ""} · ${location.host} · Weir`;
  document.documentElement.dataset["theme"] = theme;
  const turn = () => {
    const next = theme === "dark" ? "light" : "dark";
    localStorage.setItem("weir-theme", next);
    setTheme(next);
  };
  const state = paused ? "paused" : live.state;
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>To the figures</a>
      <header>
        <div>
          <h1><Mark />Weir<small>{location.host}</small></h1>
          <nav aria-label="Pages">
            {pages.map(([id, name], n) => (
              <a key={id} href={`#${id}`} title={`Key ${n + 1}`} aria-current={page === id ? "page" : undefined}>{name}</a>
            ))}
          </nav>
          <div class="tools">
            <span class={`state ${state}`} role="status">{state}</span>
            <button type="button" aria-pressed={paused} onClick={pause} title="Key p">{paused ? "Go on" : "Pause"}</button>
            <button type="button" class="round" onClick={turn} aria-label={`Change to ${theme === "dark" ? "light" : "dark"} colours`}>{theme === "dark" ? "☀" : "☾"}</button>
          </div>
        </div>
      </header>
      {live.state === "lost" && <p class="lost" role="alert">The server does not answer. Counts are the last that were seen; of what it does now nothing is known. The page asks again by itself.</p>}
      <main id="main" tabIndex={-1}>
        {page === "overview" && <Overview live={live} theme={theme} />}
        {page === "servers" && <Servers live={live} />}
        {page === "upstreams" && <Upstreams live={live} block="http" title="Upstreams" />}
        {page === "caches" && <CachesAndLimits live={live} />}
        {page === "stream" && <Streams live={live} />}
        {page === "system" && <System live={live} />}
        {page === "problems" && <ProblemsPage live={live} />}
        {page === "visitors" && <Visitors live={live} />}
        {page === "shipping" && <Shipping live={live} />}
        {page === "machines" && <Machines live={live} />}
      </main>
    </>
  );
}

live.start();
render(<Page />, document.getElementById("page")!);
