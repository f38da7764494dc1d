// A table that is sorted by a click on its head. Of many rows it has no more in the page than are looked at.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Column<T> {
  name: string;
  /** What rows are sorted by. */
  by: (row: T) => number | string;
  show?: (row: T) => ComponentChildren;
  left?: boolean;
  /** What the head means, for who rests on it. */
  title?: string;
}

interface Props<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string;
  /** By which column it is sorted first; -1: by none, as the rows are. */
  sort?: number;
  /** No more than these are ever shown. */
  few?: number;
  /** Rows have nothing that is pressed, so that one may become another. */
  plain?: boolean;
}

/** From so many rows on only those are made that are seen. */
const MANY = 60;
const ROW_PX = 34;
/** Rows above and below of what is seen. */
const SPARE = 3;
/** Rows that change their places every second cannot be read. */
const SORT_EVERY_MS = 3000;

const words = new Intl.Collator("en", { numeric: true });

/** The rows in their order, which is kept for a while. */
function useOrder<T>(p: Props<T>, by: number, down: boolean): T[] {
  const kept = useRef<{ of: string; at: number; places: Map<string, number> }>({ of: "", at: 0, places: new Map() });
  const column = p.columns[by];
  const of = `${by} ${down} ${p.rows.length}`;
  const now = Date.now();
  if (!column) return p.rows;
  if (kept.current.of !== of || now - kept.current.at > SORT_EVERY_MS) {
    const keyed = p.rows.map((row) => ({ id: p.id(row), key: column.by(row) }));
    keyed.sort((a, b) => {
      const order = typeof a.key === "number" && typeof b.key === "number" ? a.key - b.key : words.compare(String(a.key), String(b.key));
      return (down ? -order : order) || (a.id < b.id ? -1 : 1);
    });
    kept.current = { of, at: now, places: new Map(keyed.map((k, n) => [k.id, n])) };
  }
  const { places } = kept.current;
  const out = new Array<T | undefined>(p.rows.length);
  const others: T[] = [];
  for (const row of p.rows) {
    const at = places.get(p.id(row));
    if (at === undefined || out[at] !== undefined) others.push(row);
    else out[at] = row;
  }
  return [...out.filter((row): row is T => row !== undefined), ...others];
}

export function Table<T>(p: Props<T>) {
  // As a click on the head would: numbers from the greatest, words from the first.
  const [[by, down], setSort] = useState<[number, boolean]>(() => [p.sort ?? 0, (p.sort ?? 0) > 0 && !p.columns[p.sort ?? 0]?.left]);
  const [top, setTop] = useState(0);
  const box = useRef<HTMLDivElement>(null);
  const ordered = useOrder(p, by, down).slice(0, p.few ?? Infinity);
  const many = ordered.length > MANY;
  const seen = Math.ceil((box.current?.clientHeight ?? 600) / ROW_PX) + 2 * SPARE;
  const first = many ? Math.max(0, Math.min(Math.floor(top / ROW_PX) - SPARE, ordered.length - seen)) : 0;
  const shown = many ? ordered.slice(first, first + seen) : ordered;
  useLayoutEffect(() => {
    if (box.current && !many) setTop(0);
  }, [many]);
  const above = first * ROW_PX;
  const below = (ordered.length - first - shown.length) * ROW_PX;
  return (
    <div class={many ? "table many" : "table"} ref={box} tabIndex={many ? 0 : undefined} role={many ? "group" : undefined}
      aria-label={many ? p.label : undefined} onScroll={many ? (e) => setTop(e.currentTarget.scrollTop) : undefined}>
      <table aria-label={p.label} aria-rowcount={ordered.length + 1}>
        <thead>
          <tr>
            {p.columns.map((c, n) => (
              <th key={c.name} scope="col" class={c.left ? "left" : ""} aria-sort={n === by ? (down ? "descending" : "ascending") : "none"} title={c.title}>
                <button type="button" onClick={() => setSort([n, n === by ? !down : !c.left])}>{c.name}</button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {above > 0 && <tr class="space" aria-hidden="true" style={{ height: `${above}px` }} />}
          {shown.map((row, n) => (
            <tr key={p.plain ? n : p.id(row)} aria-rowindex={first + n + 2}>
              {p.columns.map((c) => (
                <td key={c.name} class={c.left ? "left" : ""}>{c.show ? c.show(row) : c.by(row)}</td>
              ))}
            </tr>
          ))}
          {below > 0 && <tr class="space" aria-hidden="true" style={{ height: `${below}px` }} />}
        </tbody>
      </table>
      {ordered.length === 0 && <p class="nothing">Nothing is found.</p>}
    </div>
  );
}
