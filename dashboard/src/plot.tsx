// A plot over time, by uPlot: drag (or + and -) to zoom, all plots together; double click, 0, or the button beside them, to
// see all again; arrows look along it.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { clock } from "./format";

export interface Line {
  label: string;
  /** The name of a custom property of the style. */
  color: string;
  values: (number | null)[];
  fill?: boolean;
  /** Lines are told apart by more than their colours. */
  dash?: number[];
}

export type Zoom = readonly [number, number] | null;

interface Props {
  title: string;
  times: number[];
  lines: Line[];
  format: (n: number) => string;
  /** Each line is drawn on top of those behind it. */
  stacked?: boolean;
  /** Sizes in bytes have round numbers of their own. */
  binary?: boolean;
  /** Its figures are whole numbers. */
  whole?: boolean;
  theme: string;
  zoom: Zoom;
  onZoom: (zoom: Zoom) => void;
}

const HEIGHT_PX = 170;
const BINARY_STEPS = Array.from({ length: 48 }, (_, n) => 2 ** n);
const WHOLE_STEPS = Array.from({ length: 36 }, (_, n) => [1, 2, 5][n % 3]! * 10 ** Math.floor(n / 3));
/** A finger that moves less has meant to scroll, or nothing. */
const FINGER_PX = 12;
/** Less than this is not zoomed into. */
const LEAST_SECS = 2;

function time(secs: number, withSeconds: boolean): string {
  const text = clock(secs * 1000);
  return withSeconds ? text : text.slice(0, -3);
}

function css(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function stack(lines: Line[]): (number | null)[][] {
  const out: (number | null)[][] = [];
  for (let n = lines.length - 1; n >= 0; n -= 1) {
    const below = out[0];
    out.unshift(lines[n]!.values.map((v, i) => (v ?? 0) + (below?.[i] ?? 0)));
  }
  return out;
}

/** The same word at two places of an axis would be wrong at one of them. */
function different(words: string[]): string[] {
  return words.map((word, n) => (n > 0 && word === words[n - 1] ? "" : word));
}

/** Points with nothing beside them. */
function alone(values: ArrayLike<number | null | undefined>): number[] {
  const out: number[] = [];
  for (let n = 0; n < values.length; n += 1) {
    if (values[n] != null && values[n - 1] == null && values[n + 1] == null) out.push(n);
  }
  return out;
}

function options(p: Props, width: number): uPlot.Options {
  const axis = { stroke: css("--dim"), grid: { stroke: css("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  return {
    width,
    height: HEIGHT_PX,
    legend: { show: false },
    cursor: {
      points: { size: 6 },
      drag: { x: true, y: false, setScale: false },
      sync: { key: "weir", setSeries: false },
      bind: { dblclick: () => () => (p.onZoom(null), null) },
    },
    scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
    axes: [
      { ...axis, space: 70, size: 28, values: (_, at) => at.map((s) => time(s, (at[1] ?? s + 60) - s < 60)) },
      { ...axis, size: 62, space: 28, ...(p.binary ? { incrs: BINARY_STEPS } : p.whole ? { incrs: WHOLE_STEPS } : {}), values: (_, at) => different(at.map((n) => p.format(n))) },
    ],
    series: [
      {},
      ...p.lines.map((line) => ({
        label: line.label,
        stroke: css(line.color),
        width: p.stacked ? 0 : 1.6,
        fill: p.stacked ? css(line.color) : line.fill ? css(line.color) + "26" : undefined,
        dash: line.dash,
        // A line of one point would not be seen.
        points: { show: true, size: 4, width: 0, fill: css(line.color), filter: (u: uPlot, n: number) => alone(u.data[n] ?? []) },
      })),
    ],
  };
}

/** What the lines are at a time, in words. */
function told(p: Props, at: number): string {
  return p.lines.map((l) => `${l.label} ${l.values[at] == null ? "–" : p.format(l.values[at])}`).join("  ");
}

/** A finger chooses a part as a mouse does. */
function byFinger(u: uPlot, zoom: (from: number, to: number) => void): void {
  let began: number | null = null;
  const x = (e: PointerEvent) => Math.min(Math.max(0, e.clientX - u.over.getBoundingClientRect().left), u.over.clientWidth);
  const clear = () => u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  u.over.addEventListener("pointerdown", (e) => {
    if (e.pointerType === "touch") began = x(e);
  });
  u.over.addEventListener("pointermove", (e) => {
    if (began === null || e.pointerType !== "touch") return;
    const [left, right] = [Math.min(began, x(e)), Math.max(began, x(e))];
    if (right - left >= FINGER_PX) u.setSelect({ left, top: 0, width: right - left, height: u.over.clientHeight }, false);
  });
  u.over.addEventListener("pointerup", (e) => {
    if (began === null || e.pointerType !== "touch") return;
    const [left, right] = [Math.min(began, x(e)), Math.max(began, x(e))];
    began = null;
    clear();
    if (right - left >= FINGER_PX) zoom(u.posToVal(left, "x"), u.posToVal(right, "x"));
  });
  u.over.addEventListener("pointercancel", () => {
    began = null;
    clear();
  });
}

/** What keys do on a plot: look along it, zoom. Whether this was one of them. */
function byKey(key: string, u: uPlot, p: Props): boolean {
  const { min = 0, max = 0 } = u.scales["x"]!;
  const last = p.times.length - 1;
  const at = u.cursor.idx ?? last;
  const look = (n: number) => {
    const left = u.valToPos(p.times[Math.min(Math.max(0, n), last)] ?? 0, "x");
    u.setCursor({ left, top: u.over.clientHeight / 2 }, true);
  };
  const zoom = (part: number) => {
    const [middle, half] = [p.times[at] ?? max, ((max - min) / 2) * part];
    const [first, end] = [p.times[0] ?? 0, p.times[last] ?? 0];
    const wide = Math.max(half, LEAST_SECS / 2);
    p.onZoom(2 * wide >= end - first ? null : [Math.max(first, middle - wide), Math.min(end, middle + wide)]);
  };
  if (key === "ArrowLeft" || key === "ArrowRight") look(u.cursor.idx == null ? last : at + (key === "ArrowLeft" ? -1 : 1));
  else if (key === "Home") look(0);
  else if (key === "End") look(last);
  else if (key === "+" || key === "=") zoom(0.5);
  else if (key === "-") zoom(2);
  else if (key === "0" || key === "Escape") p.onZoom(null);
  else return false;
  return true;
}

export function Plot(p: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shown = useRef<HTMLElement>(null);
  const [said, setSaid] = useState("");
  const latest = useRef(p);
  latest.current = p;
  const shape = `${p.theme} ${p.stacked} ${p.lines.map((l) => l.label).join()}`;

  useEffect(() => {
    const parent = box.current!;
    const size = () => Math.max(200, parent.clientWidth);
    const opts = options(latest.current, size());
    opts.hooks = {
      setCursor: [
        (u) => {
          const at = u.cursor.idx;
          const when = at == null ? undefined : latest.current.times[at];
          if (!shown.current) return;
          shown.current.textContent = at == null || when === undefined ? "" : `${clock(when * 1000)}  ${told(latest.current, at)}`;
        },
      ],
      setSelect: [
        (u) => {
          const { left, width } = u.select;
          if (width < 4) return;
          latest.current.onZoom([u.posToVal(left, "x"), u.posToVal(left + width, "x")]);
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    };
    const u = new uPlot(opts, [[], ...latest.current.lines.map(() => [])] as uPlot.AlignedData, parent);
    plot.current = u;
    byFinger(u, (from, to) => latest.current.onZoom([from, to]));
    const watcher = new ResizeObserver(() => {
      if (u.width !== size()) u.setSize({ width: size(), height: HEIGHT_PX });
    });
    watcher.observe(parent);
    return () => {
      watcher.disconnect();
      u.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => {
    const u = plot.current;
    if (!u) return;
    const values = p.stacked ? stack(p.lines) : p.lines.map((l) => l.values);
    u.batch(() => {
      u.setData([p.times, ...values] as uPlot.AlignedData, !p.zoom);
      if (p.zoom) u.setScale("x", { min: p.zoom[0], max: p.zoom[1] });
    });
  }, [p.times, p.lines, p.zoom, shape]);

  const last = p.times.length - 1;
  return (
    <figure class="plot">
      <figcaption>
        <h3>{p.title}</h3>
        <ul class="key">
          {p.lines.map((l) => (
            <li key={l.label}>
              <i class={l.dash ? "dashed" : ""} style={{ "--of": `var(${l.color})` }} />
              {l.label}
            </li>
          ))}
        </ul>
        <output ref={shown as never} aria-hidden="true" />
        <span class="unseen" role="status">{said}</span>
      </figcaption>
      <div
        ref={box} role="group" tabIndex={0} aria-label={`${p.title}, now: ${told(p, last)}`} aria-roledescription="plot"
        onBlur={() => setSaid("")}
        onKeyDown={(e) => {
          if (e.ctrlKey || e.metaKey || e.altKey || !plot.current || !byKey(e.key, plot.current, p)) return;
          e.preventDefault();
          e.stopPropagation();
          // Told once: what the figures do meanwhile is not read out.
          setSaid(shown.current?.textContent ?? "");
        }}
      />
    </figure>
  );
}

/** A line of the last minute, small enough for a tile. */
export function Spark(p: { values: number[]; color: string }) {
  const most = Math.max(...p.values, 1e-9);
  const points = p.values.map((v, n) => `${((100 * n) / Math.max(1, p.values.length - 1)).toFixed(1)} ${(23 - (21 * v) / most).toFixed(1)}`);
  if (points.length < 2) return <svg class="spark" viewBox="0 0 100 24" aria-hidden="true" />;
  return (
    <svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true" style={{ color: `var(${p.color})` }}>
      <path class="area" d={`M0 24L${points.join("L")}L100 24Z`} />
      <path class="line" d={`M${points.join("L")}`} />
    </svg>
  );
}
