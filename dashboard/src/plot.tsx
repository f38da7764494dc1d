// A plot over time, by uPlot: drag to zoom, all plots together; double click, or the button beside them, to see all again.
import { useEffect, useRef } from "preact/hooks";
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
  theme: string;
  zoom: Zoom;
  onZoom: (zoom: Zoom) => void;
}

const HEIGHT_PX = 170;
const BINARY_STEPS = Array.from({ length: 48 }, (_, n) => 2 ** n);

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
      { ...axis, size: 62, space: 28, ...(p.binary ? { incrs: BINARY_STEPS } : {}), values: (_, at) => at.map((n) => p.format(n)) },
    ],
    series: [
      {},
      ...p.lines.map((line) => ({
        label: line.label,
        stroke: css(line.color),
        width: p.stacked ? 0 : 1.6,
        fill: p.stacked ? css(line.color) : line.fill ? css(line.color) + "26" : undefined,
        dash: line.dash,
        points: { show: false },
      })),
    ],
  };
}

/** What the lines are at a time, in words. */
function told(p: Props, at: number): string {
  return p.lines.map((l) => `${l.label} ${p.format(l.values[at] ?? 0)}`).join("  ");
}

export function Plot(p: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shown = useRef<HTMLElement>(null);
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
      </figcaption>
      <div ref={box} role="img" aria-label={`${p.title}, now: ${told(p, last)}`} />
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
