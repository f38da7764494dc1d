// What the server tells: names once, values that change once a second, and what there was before the page was opened.

export type Leaf = number | string | boolean | null | number[];
/** A name leads to further names, or to the number of a value. */
export type Node = number | Group | Node[];
export interface Group {
  [name: string]: Node;
}

/** When, and then the counts of `columns`. */
export type Row = number[];
export interface Step {
  secs: number;
  rows: Row[];
}

interface AllEvent {
  t: number;
  names: Group;
  v: Leaf[];
  row: Row | null;
}
interface TickEvent {
  t: number;
  v: Leaf[];
  row: Row | null;
}

export class Live {
  names: Group = {};
  values: Leaf[] = [];
  before: Leaf[] = [];
  now = 0;
  seconds = 1;
  columns: string[] = [];
  steps: Step[] = [];
  state: "connecting" | "live" | "lost" = "connecting";
  private told: (() => void)[] = [];
  private refetchAt = 0;

  constructor(private base: string) {}

  start(): void {
    void this.fetchHistory();
    const events = new EventSource(this.base + "events");
    events.addEventListener("all", (e) => this.all(JSON.parse((e as MessageEvent<string>).data) as AllEvent));
    events.addEventListener("tick", (e) => this.tick(JSON.parse((e as MessageEvent<string>).data) as TickEvent));
    events.onerror = () => {
      this.state = "lost";
      this.tell();
    };
  }

  onChange(f: () => void): () => void {
    this.told.push(f);
    return () => {
      this.told = this.told.filter((g) => g !== f);
    };
  }

  private tell(): void {
    for (const f of this.told) f();
  }

  async fetchHistory(): Promise<void> {
    try {
      const answer = await fetch(this.base + "history");
      const history = (await answer.json()) as { columns: string[]; steps: Step[] };
      this.columns = history.columns;
      this.steps = history.steps;
      this.refetchAt = Date.now() + 60_000;
      this.tell();
    } catch {
      // The events tell that the server is away.
    }
  }

  private all(e: AllEvent): void {
    this.names = e.names;
    this.values = e.v;
    this.before = e.v;
    this.came(e.t, e.row);
  }

  private tick(e: TickEvent): void {
    this.before = this.values.slice();
    for (let i = 0; i + 1 < e.v.length; i += 2) {
      this.values[e.v[i] as number] = e.v[i + 1]!;
    }
    this.came(e.t, e.row);
  }

  private came(now: number, row: Row | null): void {
    this.seconds = this.now ? Math.max(0.2, (now - this.now) / 1000) : 1;
    this.now = now;
    this.state = "live";
    const rows = this.steps[0]?.rows;
    if (row && rows) {
      const last = rows[rows.length - 1];
      if (last && last[0] === row[0]) rows[rows.length - 1] = row;
      else rows.push(row);
      if (rows.length > 301) rows.shift();
    }
    if (Date.now() > this.refetchAt) void this.fetchHistory();
    this.tell();
  }

  group(...path: string[]): Group | undefined {
    let at: Node | undefined = this.names;
    for (const name of path) {
      if (typeof at !== "object" || Array.isArray(at)) return undefined;
      at = Object.hasOwn(at, name) ? at[name] : undefined;
    }
    return typeof at === "object" && !Array.isArray(at) ? at : undefined;
  }

  leaf(group: Group | undefined, name: string): Leaf | undefined {
    const at = group && Object.hasOwn(group, name) ? group[name] : undefined;
    return typeof at === "number" ? this.values[at] : undefined;
  }

  num(group: Group | undefined, name: string): number {
    const value = this.leaf(group, name);
    return typeof value === "number" ? value : 0;
  }

  text(group: Group | undefined, name: string): string {
    const value = this.leaf(group, name);
    return value === undefined || value === null ? "" : String(value);
  }

  /** How many more a second there have been since the last look. */
  rate(group: Group | undefined, name: string): number {
    const at = group && Object.hasOwn(group, name) ? group[name] : undefined;
    if (typeof at !== "number") return 0;
    const [now, before] = [this.values[at], this.before[at]];
    if (typeof now !== "number" || typeof before !== "number") return 0;
    return Math.max(0, now - before) / this.seconds;
  }

  /** Since the last look: how many, and ms for the median, 95, 99 of a hundred and the longest. */
  times(group: Group | undefined, name: string): { count: number; p50: number; p95: number; p99: number } | undefined {
    const value = this.leaf(group, name);
    if (!Array.isArray(value) || value.length < 4) return undefined;
    const [count, p50, p95, p99] = value as [number, number, number, number];
    return { count, p50: p50 / 1000, p95: p95 / 1000, p99: p99 / 1000 };
  }

  column(name: string): number {
    return this.columns.indexOf(name);
  }
}

export function entries(group: Group | undefined): [string, Group][] {
  if (!group) return [];
  return Object.entries(group).filter((e): e is [string, Group] => typeof e[1] === "object" && !Array.isArray(e[1]));
}
