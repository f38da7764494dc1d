// A table that is sorted by a click on its head, and shows no more rows than are looked at.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

export interface Column<T> {
  name: string;
  /** What rows are sorted by. */
  by: (row: T) => number | string;
  show?: (row: T) => ComponentChildren;
  left?: boolean;
}

const FEW = 50;

export function Table<T>(p: { label: string; columns: Column<T>[]; rows: T[]; id: (row: T) => string; sort?: number; few?: number }) {
  const [sort, setSort] = useState<[number, boolean]>([p.sort ?? 0, (p.sort ?? 0) > 0]);
  const [more, setMore] = useState(1);
  const [by, down] = sort;
  const column = p.columns[by] ?? p.columns[0]!;
  const sorted = [...p.rows].sort((a, b) => {
    const [x, y] = [column.by(a), column.by(b)];
    const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
    return (down ? -order : order) || p.id(a).localeCompare(p.id(b));
  });
  const shown = sorted.slice(0, (p.few ?? FEW) * more);
  return (
    <div class="table">
      <table aria-label={p.label}>
        <thead>
          <tr>
            {p.columns.map((c, n) => (
              <th key={c.name} class={c.left ? "left" : ""} aria-sort={n === by ? (down ? "descending" : "ascending") : "none"}>
                <button type="button" onClick={() => setSort([n, n === by ? !down : !c.left])}>
                  {c.name}
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <tr key={p.id(row)}>
              {p.columns.map((c) => (
                <td key={c.name} class={c.left ? "left" : ""}>
                  {c.show ? c.show(row) : c.by(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {shown.length < sorted.length && (
        <button type="button" class="more" onClick={() => setMore(more + 1)}>
          {sorted.length - shown.length} more
        </button>
      )}
    </div>
  );
}
