// A plot over time, by uPlot: drag to zoom, double click to see all again.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Line {
  label: string;
  /** The name of a custom property of the style. */
  color: string;
  values: (number | null)[];
  fill?: boolean;
}

interface Props {
  title: string;
  times: number[];
  lines: Line[];
  format: (n: number) => string;
  /** Each line is drawn on top of those behind it. */
  stacked?: boolean;
  frozen: boolean;
  theme: string;
}

function time(secs: number, withSeconds: boolean): string {
  const text = new Date(secs * 1000).toLocaleTimeString([], { hour12: false });
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

function options(p: Props, width: number, height: number): uPlot.Options {
  const axis = { stroke: css("--dim"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  return {
    width,
    height,
    legend: { show: false },
    cursor: { points: { size: 5 }, drag: { x: true, y: false }, sync: { key: "weir" } },
    scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
    axes: [
      { ...axis, space: 70, size: 30, values: (_, at) => at.map((s) => time(s, (at[1] ?? s + 60) - s < 60)) },
      { ...axis, size: 64, space: 28, values: (_, at) => at.map((n) => p.format(n)) },
    ],
    series: [
      {},
      ...p.lines.map((line) => ({
        label: line.label,
        stroke: css(line.color),
        width: p.stacked ? 0 : 1.5,
        fill: p.stacked ? css(line.color) : line.fill ? css(line.color) + "22" : undefined,
        points: { show: false },
      })),
    ],
  };
}

export function Plot(p: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shown = useRef<HTMLElement>(null);
  const shape = `${p.theme} ${p.stacked} ${p.lines.map((l) => l.label).join()}`;
  const latest = useRef(p);
  latest.current = p;

  useEffect(() => {
    const parent = box.current!;
    const size = () => Math.max(200, parent.clientWidth);
    const opts = options(latest.current, size(), 180);
    opts.hooks = {
      setCursor: [
        (u) => {
          const { lines, times, format } = latest.current;
          const at = u.cursor.idx;
          if (!shown.current) return;
          const when = at == null ? undefined : times[at];
          shown.current.textContent =
            at == null || when === undefined
              ? ""
              : `${new Date(when * 1000).toLocaleTimeString([], { hour12: false })}  ` +
                lines.map((l) => `${l.label} ${format(l.values[at] ?? 0)}`).join("  ");
        },
      ],
    };
    const u = new uPlot(opts, [[], ...latest.current.lines.map(() => [])] as uPlot.AlignedData, parent);
    plot.current = u;
    const watcher = new ResizeObserver(() => u.setSize({ width: size(), height: 180 }));
    watcher.observe(parent);
    return () => {
      watcher.disconnect();
      u.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => {
    const u = plot.current;
    if (!u || p.frozen) return;
    const values = p.stacked ? stack(p.lines) : p.lines.map((l) => l.values);
    const all = u.data[0] ?? [];
    const x = u.scales.x!;
    const zoomed = all.length > 1 && x.min != null && x.max != null && (x.min > all[0]! || x.max < all[all.length - 1]!);
    u.setData([p.times, ...values] as uPlot.AlignedData, !zoomed);
  }, [p.times, p.lines, p.frozen, shape]);

  const last = p.times.length - 1;
  const told = p.lines.map((l) => `${l.label} ${p.format(l.values[last] ?? 0)}`).join(", ");
  return (
    <figure class="plot">
      <figcaption>
        <h3>{p.title}</h3>
        <ul class="key">
          {p.lines.map((l) => (
            <li key={l.label}>
              <i style={{ background: `var(${l.color})` }} />
              {l.label}
            </li>
          ))}
        </ul>
        <output ref={shown as never} aria-hidden="true" />
      </figcaption>
      <div ref={box} role="img" aria-label={`${p.title}, now: ${told}`} />
    </figure>
  );
}
