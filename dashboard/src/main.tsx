import { render } from "preact";
import { useEffect, useReducer, useState } from "preact/hooks";
import { Live } from "./live";
import { Overview } from "./overview";
import { CachesAndLimits, Streams, System } from "./rest";
import { Servers } from "./servers";
import { Upstreams } from "./upstreams";
import "./style.css";

const PAGES = [
  ["overview", "Overview"],
  ["servers", "Servers"],
  ["upstreams", "Upstreams"],
  ["caches", "Caches and limits"],
  ["stream", "Stream"],
  ["system", "Workers and TLS"],
] as const;

type Theme = "light" | "dark";

function wantedTheme(): Theme {
  const kept = localStorage.getItem("weir-theme");
  if (kept === "light" || kept === "dark") return kept;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

function here(): string {
  const name = location.hash.slice(1);
  return PAGES.some(([id]) => id === name) ? name : "overview";
}

const live = new Live(location.pathname.endsWith("/") ? location.pathname : location.pathname + "/");

function Page() {
  const [, again] = useReducer((n: number) => n + 1, 0);
  const [page, setPage] = useState(here());
  const [paused, setPaused] = useState(false);
  const [theme, setTheme] = useState<Theme>(wantedTheme());

  useEffect(() => {
    const stop = live.onChange(() => {
      if (!paused && !document.hidden) again(0);
    });
    return stop;
  }, [paused]);

  useEffect(() => {
    const moved = () => setPage(here());
    const key = (e: KeyboardEvent) => {
      const inField = e.target instanceof HTMLInputElement || e.target instanceof HTMLSelectElement;
      if (inField || e.ctrlKey || e.metaKey || e.altKey) return;
      if (e.key === "/") {
        const field = document.getElementById("search");
        if (field) {
          e.preventDefault();
          field.focus();
        }
      } else if (e.key === "p") {
        setPaused((was) => !was);
      } else if (e.key >= "1" && e.key <= String(PAGES.length)) {
        location.hash = PAGES[Number(e.key) - 1]![0];
      }
    };
    addEventListener("hashchange", moved);
    addEventListener("keydown", key);
    return () => {
      removeEventListener("hashchange", moved);
      removeEventListener("keydown", key);
    };
  }, []);

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
          <h1>Weir<small>{live.text(live.group("nginx"), "address")}</small></h1>
          <nav aria-label="Pages">
            {PAGES.map(([id, name]) => (
              <a key={id} href={`#${id}`} aria-current={page === id ? "page" : undefined}>{name}</a>
            ))}
          </nav>
          <div class="tools">
            <span class={`state ${state}`} role="status">{state}</span>
            <button type="button" aria-pressed={paused} onClick={() => setPaused(!paused)} title="p">{paused ? "Go on" : "Pause"}</button>
            <button type="button" onClick={turn} aria-label={`Change to ${theme === "dark" ? "light" : "dark"} colours`}>{theme === "dark" ? "☀" : "☾"}</button>
          </div>
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {page === "overview" && <Overview live={live} frozen={paused} theme={theme} />}
        {page === "servers" && <Servers live={live} />}
        {page === "upstreams" && <Upstreams live={live} block="http" title="Upstreams" />}
        {page === "caches" && <CachesAndLimits live={live} />}
        {page === "stream" && <Streams live={live} />}
        {page === "system" && <System live={live} />}
      </main>
    </>
  );
}

live.start();
render(<Page />, document.getElementById("page")!);
